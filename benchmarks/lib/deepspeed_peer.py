"""DeepSpeed as a peer, where it is installed: its pipeline engine and its ZeRO-1, on CPU over gloo."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

from torch import nn

from benchmarks.lib.gpt import GPT, Batches, Setting, loss_of

INSTALLED = importlib.util.find_spec("deepspeed") is not None
SKIPPED = None if INSTALLED else "DeepSpeed is not installed: skipped"


def _engine(module: nn.Module, setting: Setting, **config: object) -> Any:
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    import deepspeed

    engine, *_ = deepspeed.initialize(
        model=module,
        optimizer=setting.optimizer(module.parameters()),
        config={
            "train_micro_batch_size_per_gpu": setting.plan.microbatch,
            "gradient_accumulation_steps": setting.microbatches,
            "gradient_clipping": setting.job.train.clip,
            "steps_per_print": 1 << 30,
            "zero_allow_untested_optimizer": True,
            **config,
        },
    )
    return engine


def join() -> None:
    """Let DeepSpeed use the processes that are there, and build what it compiles at its first start."""
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    import deepspeed

    deepspeed.init_distributed(dist_backend="gloo", auto_mpi_discovery=False, verbose=False)


class DeepSpeedPipeline:
    """1F1B by PipelineModule, a stage one layer of it: it has nothing to do between the layers of a stage."""

    def __init__(self, setting: Setting) -> None:
        from deepspeed.pipe import LayerSpec, PipelineModule

        join()
        plan, model = setting.plan, setting.model
        stages = [
            LayerSpec(GPT, model, list(plan.layers_of(i, model.layers)), first=i == 0, last=i == plan.pipeline - 1)
            for i in range(plan.pipeline)
        ]
        module = PipelineModule(stages, num_stages=plan.pipeline, loss_fn=loss_of, partition_method="uniform")
        for part in module.modules():
            if isinstance(part, GPT):
                setting.initialized(part)
        self.engine = _engine(module, setting)
        self.batches = Batches(setting)

    def train_step(self) -> float:
        return self.engine.train_batch(self.batches()).item()


class DeepSpeedZero:
    """ZeRO of some stage."""

    def __init__(self, setting: Setting, rank: int, stage: int) -> None:
        join()
        self.engine = _engine(setting.initialized(GPT(setting.model)), setting, zero_optimization={"stage": stage})
        self.batches, self.microbatches = Batches(setting, rank), setting.microbatches

    def train_step(self) -> float:
        total = 0.0
        for ids, targets in self.batches():
            loss = loss_of(self.engine(ids), targets)
            self.engine.backward(loss)
            self.engine.step()
            total += loss.item() / self.microbatches
        return total
