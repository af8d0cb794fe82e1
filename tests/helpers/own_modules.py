"""Modules that Heddle did not write, as users would give them: tiny ones of transformers, and of research."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

TOKENS, VOCAB = 16, 61
NORMS = ["*norm*"]


def loss(module: nn.Module, batch) -> tuple[Tensor, Tensor]:
    logits, targets = module(input_ids=batch.ids).logits.flatten(0, 1), batch.targets.flatten()
    return F.cross_entropy(logits, targets, reduction="sum", ignore_index=-100), targets.ne(-100).sum()


def opt() -> nn.Module:
    from transformers import OPTConfig, OPTForCausalLM

    return OPTForCausalLM(
        OPTConfig(
            vocab_size=VOCAB,
            hidden_size=32,
            ffn_dim=64,
            num_hidden_layers=3,
            num_attention_heads=4,
            max_position_embeddings=TOKENS,
            word_embed_proj_dim=32,
            dropout=0.0,
            layerdrop=0.0,
        )
    )


def bloom() -> nn.Module:
    from transformers import BloomConfig, BloomForCausalLM

    return BloomForCausalLM(BloomConfig(vocab_size=VOCAB, hidden_size=32, n_layer=3, n_head=4))


def mpt() -> nn.Module:
    from transformers import MptConfig, MptForCausalLM

    return MptForCausalLM(MptConfig(vocab_size=VOCAB, d_model=32, n_layers=3, n_heads=4, max_seq_len=TOKENS))


def mamba() -> nn.Module:
    from transformers import MambaConfig, MambaForCausalLM

    return MambaForCausalLM(MambaConfig(vocab_size=VOCAB, hidden_size=16, num_hidden_layers=3, state_size=4))


def llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCAB,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=TOKENS,
        )
    )


class Norm(nn.Module):
    """Runs whatever slice of its features it is given, and says nothing."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight


class Layer(nn.Module):
    """Gives a pair, as some do; its heads have a name of their own; queries and keys are normalized head by head."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.count, self.each = heads, size // heads
        self.before, self.behind = Norm(size), Norm(size)
        self.q, self.k, self.v, self.o = (nn.Linear(size, size) for _ in range(4))
        self.scale = Norm(self.each)  # of this rank's heads only
        self.wide, self.gate, self.narrow = nn.Linear(size, 96), nn.Linear(size, 96), nn.Linear(96, size)
        self.middle: nn.Module = nn.Identity()
        self.switch = nn.Linear(size, 1)

    def forward(self, state: Tensor, mask: Tensor) -> tuple[Tensor, None]:
        x = self.before(state)
        q, k, v = (part(x).unflatten(-1, (self.count, self.each)).transpose(1, 2) for part in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(self.scale(q), self.scale(k), v, attn_mask=mask)
        state = state + self.o(y.transpose(1, 2).flatten(2))
        x = self.behind(state)
        return state + self.narrow(self.middle(F.silu(self.gate(x)) * self.wide(x))) * self.switch(x).sigmoid(), None


class Research(nn.Module):
    """A shared weight, a parameter without a module, a table in a buffer, one that nothing uses, tokens first."""

    mask: Tensor

    def __init__(self, middle: bool = False) -> None:
        super().__init__()
        size = 32
        self.words = nn.Embedding(VOCAB, size)
        self.places = nn.Parameter(torch.randn(TOKENS, size) * 0.1)
        self.idle = nn.Parameter(torch.ones(3))
        stack = [Layer(size, 4) for _ in range(5)]
        self.body = nn.ModuleDict({"stack": nn.ModuleList(stack)})
        if middle:
            for layer in stack:
                layer.middle = Norm(96)
        self.end = Norm(size)
        self.register_buffer("mask", torch.full((TOKENS, TOKENS), -torch.inf).triu(1), persistent=False)
        self.apply(self._begin)

    @staticmethod
    def _begin(module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.1)

    def forward(self, ids: Tensor) -> Tensor:
        tokens = ids.shape[1]
        state = self.words(ids) + self.places[:tokens]
        stack = self.body["stack"]
        assert isinstance(stack, nn.ModuleList)
        for layer in stack:
            state, _ = layer(state, mask=self.mask[:tokens, :tokens])
        return F.linear(self.end(state), self.words.weight)


def research() -> nn.Module:
    return Research()


def with_middle() -> nn.Module:
    return Research(middle=True)


def two_losses(module: nn.Module, batch) -> tuple[Tensor, int]:
    """Counts only what is not a multiple of seven: microbatches differ in what they count."""
    logits = module(batch.ids).flatten(0, 1)
    targets = torch.where(batch.targets.flatten() % 7 == 0, -100, batch.targets.flatten())
    learned = targets.ne(-100)
    total = F.cross_entropy(logits, targets, reduction="sum", ignore_index=-100)
    return total + 0.01 * (logits.logsumexp(-1).square() * learned).sum(), int(learned.sum())
