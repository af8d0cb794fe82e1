"""A chunk of the user's own module: all of it as code, of its weights only what some blocks need.

Every chunk calls the user's loss on the whole module. Blocks of earlier chunks do nothing, and the first block of this
one is given what arrived in place of its input. When a block of a later chunk is called, the chunk is done: what that
block would have read is what is sent on. Only the last chunk comes to the loss. So whatever a module makes from its
tokens for all blocks, such as masks and positions, every chunk makes for itself.

Where code before the blocks asks for a weight that this chunk does not have, it gets numbers that are none. If they
came anywhere near the loss, it would be none either, and nobody would take it for right.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from heddle.errors import HeddleError
from heddle.models.chunk import Chunk, ChunkPart
from heddle.models.own.files import OwnBatch, OwnFile, failed
from heddle.models.own.look import ModuleFacts, ParameterUse, check_loss, find_blocks, first_tensor, hidden_of
from heddle.models.random import key
from heddle.models.transformer import Microbatch


class _Done(Exception):  # noqa: N818
    """The last block of a chunk was passed, with what it gave."""

    def __init__(self, hidden: Tensor) -> None:
        super().__init__()
        self.hidden = hidden


class OwnChunk(Chunk):
    """The blocks from `start` to `stop`, and what is outside of blocks and belongs to them."""

    def __init__(self, file: OwnFile, module: nn.Module, seen: ModuleFacts, start: int, stop: int, seed: int) -> None:
        """`module` is whole, its parameters without memory; what is not of this chunk is taken out of it."""
        super().__init__()
        self.file, self.module, self.seen, self.seed = file, module, seen, seed
        _, blocks = find_blocks(file, module)
        self.start, self.stop, self.last = start, stop, not blocks or stop == len(blocks)
        self.layers = {str(i): blocks[i] for i in range(start, stop)} if blocks else {}
        self.arrived: Tensor | None = None
        self.counted: list[Tensor] = []  # of each microbatch of a step: targets over how many there are on average
        self.absent: list[tuple[nn.Module, str, torch.Size]] = []
        self.dtype, self.device = torch.float32, torch.device("cpu")
        self._learns, self.calm = True, False
        owned = {name for name, _ in module.named_parameters() if holds(seen.uses.get(name, set()), start, self._end)}
        self._take_out(owned)
        for number, block in enumerate(blocks):
            if number < start:
                block.forward = _Skip(seen.outputs[number])
            elif number >= stop:
                block.forward = _end
        if blocks and start > 0:
            blocks[start].register_forward_pre_hook(self._inject, with_kwargs=True)

    @property
    def _end(self) -> int | None:
        """The end of its blocks; None: it is the last chunk."""
        return None if self.last else self.stop

    def _take_out(self, owned: set[str]) -> None:
        names = {parameter: name for name, parameter in self.module.named_parameters()}
        for module in self.module.modules():
            for own, parameter in list(module._parameters.items()):
                if parameter is not None and names[parameter] not in owned:
                    del module._parameters[own]
                    self.absent.append((module, own, parameter.shape))

    def reset(self, device: torch.device, dtype: torch.dtype) -> None:
        """Once parameters have memory: buffers go where they are, and what is not here becomes no number."""
        self.dtype, self.device = dtype, device
        nothing = torch.full((1,), torch.nan, device=device, dtype=dtype)
        for module, name, shape in self.absent:
            object.__setattr__(module, name, nothing.expand(shape))
        for module in self.module.modules():
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    module._buffers[name] = buffer.to(device)

    def named_weights(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Its parameters by their names in the user's module."""
        return self.module.named_parameters()

    def parts(self) -> list[ChunkPart]:
        """What is outside of blocks is needed all the while."""
        inside = {parameter for block in self.layers.values() for parameter in block.parameters()}
        outside = [parameter for parameter in self.module.parameters() if parameter not in inside]
        blocks = [ChunkPart(name, block, block, True, list(block.parameters())) for name, block in self.layers.items()]
        return [ChunkPart("outside", self, self, False, outside), *blocks]

    def forward(self, x: Tensor, batch: Microbatch) -> Tensor:
        """Tokens, or what arrived, to what is sent on, or to the loss."""
        assert batch.samples is not None
        ids, targets = batch.samples
        given = OwnBatch(ids, targets, tuple(map(tuple, batch.documents)))
        if self._learns != torch.is_grad_enabled() and not self.calm:
            self._learns = torch.is_grad_enabled()
            self.module.train(self._learns)
        self.arrived = None if self.start == 0 else x.view(self._hidden(ids))
        with self._same_chances(batch):
            try:
                result = self.file.loss(self.module, given)
            except _Done as done:
                return done.hidden.reshape(ids.numel(), -1).to(self.dtype)
            except (HeddleError, RuntimeError, MemoryError, OSError):
                raise  # among these is what peers and devices do; their handlers know better
            except (Exception, SystemExit) as error:
                raise failed(self.file.path, "cannot compute its loss", error) from error
            finally:
                self.arrived = None
        check_loss(self.file, result)
        total, count = result
        usual = ids.numel() if batch.count is None else batch.count
        self.counted.append(torch.as_tensor(count, device=total.device, dtype=torch.float64).detach() / usual)
        return total / usual

    def be_calm(self) -> None:
        """From here on nothing in the module is random, as for an evaluation, nor has a kink: for a proof."""
        self.calm = True
        calm(self.module)

    def _hidden(self, ids: Tensor) -> tuple[int, ...]:
        """Of what arrived: as many samples as there are now, the rest as it was seen."""
        samples, tokens = ids.shape
        seen = self.seen.shape  # of one sample
        if len(seen) < 3:
            return (samples * tokens, *seen[1:])
        return (samples, tokens, *seen[2:]) if seen[0] == 1 else (tokens, samples, *seen[2:])

    def _inject(self, _module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        found = hidden_of(args, kwargs)
        assert found is not None
        place, _ = found
        if isinstance(place, str):
            return args, kwargs | {place: self.arrived}
        return (*args[:place], self.arrived, *args[place + 1 :]), kwargs

    @contextlib.contextmanager
    def _same_chances(self, batch: Microbatch) -> Iterator[None]:
        """Whatever is random in the module depends on the samples and the chunk: on no rank, and on no step before."""
        if batch.first is None:
            yield
            return
        seed, before = key("own", self.seed, batch.first, self.start), torch.get_rng_state()
        torch.default_generator.manual_seed(seed)  # alone: to seed devices that there are not takes longer
        if self.device.type != "cpu":
            torch.get_device_module(self.device).manual_seed(seed)
        try:
            yield
        finally:
            torch.set_rng_state(before)


class _Skip:
    """In place of a block of an earlier chunk: what it would give, of no number, in the same structure."""

    def __init__(self, output: Any) -> None:
        self.output = output

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        found = hidden_of(args, kwargs)
        assert found is not None
        hidden, one = found[1], first_tensor(self.output)

        def given(leaf: Any) -> Any:
            if leaf is one:
                return hidden
            return hidden.new_full((1,), torch.nan).expand(leaf.shape) if isinstance(leaf, Tensor) else leaf

        return tree_map(given, self.output)


KINKED = (nn.ReLU, nn.LeakyReLU, nn.Hardtanh)


def calm(module: nn.Module) -> None:
    """For a proof: nothing is random, and GELU is taken for activations with a kink.

    Where rounding alone decides on which side of a kink a number falls, AdamW moves all weights of that unit otherwise,
    and two correct runs are apart by 1e-4 after some steps. Which function it is, no plan asks.
    """
    module.eval()
    for each in module.modules():
        if isinstance(each, KINKED):
            setattr(each, "forward", F.gelu)  # noqa: B010


def _end(*args: Any, **kwargs: Any) -> Any:
    found = hidden_of(args, kwargs)
    assert found is not None
    raise _Done(found[1])


def holds(uses: set[ParameterUse], start: int, stop: int | None) -> bool:
    """Whether a chunk needs a parameter that is used there; what is used nowhere is the first one's.

    What comes between two blocks is the earlier one's. `stop` is None for the last chunk.
    """
    if not uses:
        return start == 0
    for inside, place in uses:
        if inside and place >= start and (stop is None or place < stop):
            return True
        if not inside and (start == place == 0 or (place > start and (stop is None or place <= stop))):
            return True
    return False
