"""Saving by several ranks: all hear what went wrong on one."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from heddle.checkpoint import storage
from heddle.checkpoint.checkpoint import Saver, checkpoints, damage
from heddle.errors import HeddleError
from heddle.parallel.mesh import Mesh
from heddle.spec import Data, Job, ModelSpec, Plan, Train
from heddle.training.step.trainer import Trainer

PLAN = Plan(data=8, zero=1, microbatch=1)


def save_twice(mesh: Mesh, folder: Path) -> tuple[str | None, int, str | None]:
    """With a disk that is full on rank 3 at first: what was said, checkpoints then, and what is wrong after."""
    model = ModelSpec(layers=1, hidden=16, heads=2, vocab=31, sequence=8)
    job = Job(model=model, data=Data(text="-"), train=Train(global_batch=8), plan=PLAN)
    trainer, saver = Trainer(job, np.arange(1000).astype("<u2") % 31, mesh), Saver(folder, mesh)
    trainer.train_step()
    write_file, said = storage.write_file, None

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    try:
        storage.write_file = full if mesh.rank == 3 else write_file
        trainer.save(saver)
        saver.wait()
    except HeddleError as error:
        said = error.why
    finally:
        storage.write_file = write_file
    found = len(checkpoints(folder))
    trainer.save(saver)
    saver.wait()
    return said, found, damage(checkpoints(folder)[-1], mesh)


@pytest.mark.dist
def test_all_ranks_hear_of_a_disk_that_is_full_for_one(world, tmp_path):
    assert world.run(save_twice, PLAN, tmp_path) == 8 * [("No space left on device.", 0, None)]
