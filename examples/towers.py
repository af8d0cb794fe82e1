"""A model that is no stack of layers: an image tower and a text tower that meet at the end.

heddle place examples/towers.py:make
"""

import torch
from torch import Tensor, nn

TOKENS, WORDS, WIDTH = 32, 1000, 128


class Towers(nn.Module):
    """Scores how well an image and a text fit."""

    def __init__(self) -> None:
        super().__init__()
        self.image = nn.Sequential(
            nn.Conv2d(3, 32, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(64, WIDTH, 3, stride=2, padding=1),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.words = nn.Embedding(WORDS, WIDTH)
        self.text = nn.Sequential(
            *(nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, 0.0, batch_first=True) for _ in "12")
        )
        self.score = nn.Bilinear(WIDTH, WIDTH, 1)

    def forward(self, image: Tensor, text: Tensor) -> Tensor:
        """One number for each pair."""
        return self.score(self.image(image), self.text(self.words(text)).mean(1))


def make() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    """The module and inputs of the shapes that it will see."""
    torch.manual_seed(0)
    return Towers(), (torch.randn(8, 3, 64, 64), torch.randint(0, WORDS, (8, TOKENS)))
