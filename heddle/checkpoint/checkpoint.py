"""Checkpoints: one folder a step, layout-free, whole or not there at all.

Parameters and optimizer state lie under their global names as boxes of their global shapes, so that any plan reads
what any other wrote, without conversion. A checkpoint is written beside its final place and renamed when it is
complete: a crash at any instant leaves the previous one whole and found.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.state_dict_loader import load as dcp_load

from heddle.checkpoint.index import check_shapes, read_index
from heddle.checkpoint.manifest import (
    Progress,
    check_about,
    check_others,
    check_part,
    part_sums,
    read_progress,
)
from heddle.checkpoint.object_store import StoreError
from heddle.checkpoint.places import CheckpointFolder, CheckpointPlace
from heddle.checkpoint.places import checkpoints as checkpoints
from heddle.checkpoint.places import step_of as step_of
from heddle.checkpoint.staging import host_like
from heddle.checkpoint.storage import Boxes, SafetensorsReader, by_file, check_file
from heddle.errors import HeddleError
from heddle.parallel.mesh import Mesh
from heddle.parallel.shards import Piece, boxes_of
from heddle.runtime.device import Mark, SideStream
from heddle.spec.job import Job

ADAM = ("exp_avg", "exp_avg_sq")  # what AdamW remembers of each number
MUON = ("momentum",)  # what Muon does

State = dict[str, Boxes]
Ready = dict[torch.device, Mark]


def state_of(pieces: list[Piece], adam: torch.optim.Optimizer, owned: bool) -> State:
    """Masters and optimizer state as boxes of global tensors; with `owned`, only what no other rank has, too."""
    held = [piece for piece in pieces if piece.counted or not owned]
    return _state(held, [moments_of(piece.master, adam) for piece in held])


def _state(pieces: list[Piece], moments: list[dict[str, Tensor]]) -> State:
    state: State = {}
    for piece, kept in zip(pieces, moments, strict=True):
        kinds = MUON if MUON[0] in kept else ADAM
        for name, values in ((piece.name, piece.master), *((f"{piece.name}:{kind}", kept[kind]) for kind in kinds)):
            state[name] = Boxes(tuple(piece.place.shape), list(boxes_of(piece, values)))
    return state


def moments_of(master: Tensor, adam: torch.optim.Optimizer) -> dict[str, Tensor]:
    """What AdamW remembers of a master, made where there is nothing yet; a copy of it where it is kept in codes."""
    if isinstance(adam, CodedMoments):
        return adam.moments(master)
    kept = adam.state[master]
    if MUON[0] in kept:
        return kept
    for kind in ADAM:
        if kind not in kept:  # before the first update
            kept[kind] = torch.zeros_like(master)
    if "step" not in kept:
        # beside the master, as fused AdamW makes it: its CUDA kernel refuses a counter in host memory
        kept["step"] = torch.zeros((), dtype=torch.float32, device=master.device)
    return kept


@runtime_checkable
class CodedMoments(Protocol):
    """An optimizer that keeps its moments in fewer bits."""

    def moments(self, p: Tensor) -> dict[str, Tensor]:
        """Those of a parameter in full precision."""
        ...

    def take_moments(self, p: Tensor, moments: Mapping[str, Tensor]) -> None:
        """Go on with these."""
        ...


class Saver:
    """Writes checkpoints in the background, from a copy in host memory.

    The copy, too, is made in the background: training goes on, and waits only before it first changes the state.
    """

    def __init__(
        self,
        folder: Path,
        mesh: Mesh,
        keep_last: int = 2,
        keep_every: int = 0,
        tick: Callable[[], None] = lambda: None,
        place: CheckpointPlace | None = None,
    ) -> None:
        """`tick` is called whenever a save has come further, by whichever thread does it."""
        self.folder, self.mesh, self.tick = folder, mesh, tick
        self.place = place or CheckpointFolder(folder)
        self.keep_last, self.keep_every = keep_last, keep_every
        self.best: int | None = None  # the step with the lowest validation loss, whose checkpoint stays
        self.group = mesh.saves.group  # of its own: the background thread must not mix with the messages of training
        self.staged: dict[str, list[Tensor]] = {}
        self.side = SideStream()
        self.thread: threading.Thread | None = None
        self.free = threading.Event()  # whether the state may change
        self.free.set()
        self.failure: BaseException | None = None

    def save(self, state: State, progress: Progress, job: Job) -> None:
        """Begin to write a state, which must not change until `copied`; waits for an earlier save that still runs."""
        self.wait()
        self._reserve(state)
        self.free.clear()
        devices = {values.device for boxes in state.values() for _, values in boxes.boxes}
        ready = {device: Mark(device, timed=False) for device in devices}  # the state is complete from here on
        self.thread = threading.Thread(target=self._run, args=(state, ready, progress, job), name="checkpoint")
        self.thread.start()

    def copied(self) -> None:
        """Until the state that is being saved may change."""
        self.free.wait()

    def wait(self) -> None:
        """Until the last save is on disk; raises what went wrong with it."""
        if self.thread is not None:
            self.thread.join()
            self.thread = None
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure

    def _reserve(self, state: State) -> None:
        """Host memory for a copy of the state, which is laid out once and used for every save.

        Not in the background: beside a GPU it is page-locked, which takes long, and waits until the GPU is idle. There
        a kernel may wait for what another rank sends after a kernel that this one would start next.
        """
        for name, boxes in state.items():
            if name not in self.staged:
                self.staged[name] = [host_like(values) for _, values in boxes.boxes]
                self.tick()

    def _stage(self, state: State, ready: Ready) -> State:
        """A copy in host memory."""
        copy = {}
        for name, boxes in state.items():
            pairs = zip(boxes.boxes, self.staged[name], strict=True)
            copy[name] = Boxes(tuple(boxes.shape), [(offset, buffer) for (offset, _), buffer in pairs])
        for device, mark in ready.items():
            with self.side.copying(device, mark) as overlapped:
                for name, boxes in state.items():
                    for (_, values), buffer in zip(boxes.boxes, self.staged[name], strict=True):
                        if values.device == device:
                            buffer.copy_(values.detach(), non_blocking=overlapped)
                            self.tick()
            self.tick()  # only now have copies beside the computation arrived
        return copy

    def _run(self, state: State, ready: Ready, progress: Progress, job: Job) -> None:
        try:
            try:
                copy = self._stage(state, ready)
            finally:
                self.free.set()
            self._write(copy, progress, job)
        except OSError as error:
            self.failure = HeddleError(
                f"The checkpoint of step {progress.step} could not be written to {self.folder}.",
                f"{error.strerror or error}.",
                "Earlier checkpoints are untouched; free some space, then continue with --resume.",
            )
        except BaseException as error:
            self.failure = error

    def _write(self, state: State, progress: Progress, job: Job) -> None:
        """All ranks end alike: with the checkpoint in its place, or with what went wrong on the first that failed."""
        rank, first = self.mesh.rank, self.mesh.world.ranks[0]
        begun = [_tried(self.place.begin, progress.step) if rank == 0 else None]
        if self.group is not None:
            dist.broadcast_object_list(begun, src=first, group=self.group)
        own = begun[0]
        if not isinstance(own, Exception):
            own = _tried(self.place.write, own, rank, state, self.tick)
        parts = [own] * self.mesh.world.size
        if self.group is not None:
            dist.gather_object(own, parts if rank == 0 else None, dst=first, group=self.group)
        failure = [_tried(self._complete, begun[0], parts, progress, job) if rank == 0 else None]
        if self.group is not None:
            dist.broadcast_object_list(failure, src=first, group=self.group)
        if failure[0] is not None:
            raise failure[0]

    def _complete(self, begun: Any, parts: list[Any], progress: Progress, job: Job) -> None:
        """Once all ranks have written: what describes the checkpoint, and its name."""
        for part in parts:
            if isinstance(part, Exception):
                raise part
        self.place.complete(begun, parts, progress, job)
        self._prune()

    def _prune(self) -> None:
        for old in checkpoints(self.folder)[: -self.keep_last]:
            if not (self.keep_every and step_of(old) % self.keep_every == 0) and step_of(old) != self.best:
                self.place.remove(old)


def newest_good(folder: Path, mesh: Mesh, warn: Callable[[str], None]) -> Path:
    """The newest checkpoint that is whole; damaged ones are named and passed over."""
    found = checkpoints(folder)
    for number in reversed(range(len(found))):
        problem = agree(mesh, damage(found[number], mesh))
        if problem is None:
            return found[number]
        warn(f"{problem} Going back to {found[number - 1].name}." if number else problem)
    if found:
        raise HeddleError(
            f"No checkpoint in {folder} is intact.",
            f"{len(found)} were checked, and all are damaged.",
            f"Restore one from a copy, or delete {folder.parent} and start over.",
        )
    raise HeddleError(
        f"There is no checkpoint in {folder}.",
        "A run writes one when it ends, when it is stopped with Ctrl-C, and every save_every steps.",
        f"Delete {folder.parent} and start over.",
    )


def damage(checkpoint: Path, mesh: Mesh) -> str | None:
    """What is wrong with a checkpoint's files, those that fall to this rank; None if nothing."""
    try:
        check_about(checkpoint)
        read_progress(checkpoint)
        files = by_file(read_index(checkpoint))
        check_others(checkpoint)
        sums = part_sums(checkpoint)
        for name in sorted(files)[mesh.rank :: mesh.world.size]:
            check_file(checkpoint / name, files[name])
            check_part(checkpoint / name, sums)
    except StoreError:  # which says nothing about the checkpoint
        raise
    except HeddleError as error:
        return " ".join(part for part in (error.what, error.why) if part)
    return None


def agree(mesh: Mesh, problem: str | None) -> str | None:
    """The first problem that any rank has."""
    if mesh.world.size == 1:
        return problem
    problems: list[str | None] = [None] * mesh.world.size
    dist.all_gather_object(problems, problem, group=mesh.host.group)
    return next((problem for problem in problems if problem), None)


def load_state(reader: SafetensorsReader, state: State, mesh: Mesh) -> None:
    """Fill boxes from a checkpoint, whatever plan wrote it."""
    group = mesh.host.group
    with warnings.catch_warnings():  # torch remarks that a single process is a single process
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        dcp_load(state, storage_reader=reader, process_group=group, no_dist=group is None)


@torch.no_grad()
def load_pieces(checkpoint: Path, pieces: list[Piece], adam: torch.optim.Optimizer, mesh: Mesh) -> Progress:
    """Fill masters and optimizer state, and the low-precision parameters from the masters."""
    progress, index = read_progress(checkpoint), read_index(checkpoint)
    wanted = {piece.name: tuple(piece.place.shape) for piece in pieces}  # other ranks look after the others
    check_shapes(checkpoint, {name: tensor.shape for name, tensor in index.items() if name in wanted}, wanted)
    moments = [moments_of(piece.master, adam) for piece in pieces]
    state = _state(pieces, moments)
    if (lacking := next((name for name in state if name not in index), None)) is not None:
        name, _, kind = lacking.partition(":")
        raise HeddleError(
            f"{checkpoint} has no {kind} of {name}.",
            "It was written by a run with another optimizer.",
            f'Go on with that one, or begin a new run with its weights: [train] from = "{checkpoint}".',
        )
    load_state(SafetensorsReader(checkpoint, index), state, mesh)
    for piece, kept in zip(pieces, moments, strict=True):
        if isinstance(adam, CodedMoments):
            adam.take_moments(piece.master, kept)
        if MUON[0] not in kept:
            adam.state[piece.master]["step"].fill_(progress.updates)
        if piece.target is not None:
            piece.target.copy_(piece.master)
    return progress


def _tried(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns, or what it raises: a rank that fails must still tell the others."""
    try:
        return function(*arguments)
    except Exception as error:
        return error
