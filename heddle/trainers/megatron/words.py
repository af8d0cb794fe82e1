"""The arguments of a launch line by name, and what is known of those that have no counterpart in a plan."""

from __future__ import annotations

from collections.abc import Iterator

from heddle.errors import HeddleError
from heddle.trainers.values import LARGEST

# change neither the plan, nor the model's shape, nor how long a step takes by more than a little
HARMLESS = "|".join(
    (
        *("data-.*", "train-data-path", "valid-data-path", "test-data-path", "split", "mock-data", "num-workers"),
        *(
            ".*tokenizer.*",
            "tiktoken-.*",
            "vocab-file",
            "merge-file",
            "vocab-extra-ids",
            "make-vocab-size-divisible-by",
        ),
        *("save.*", "load.*", "no-load-.*", "no-save-.*", "ckpt-.*", "use-dist-ckpt.*", "dist-ckpt-.*", "async-save"),
        *(
            "finetune",
            "auto-detect-ckpt-format",
            "exit-.*",
            "override-opt.*",
            "use-checkpoint-.*",
            "log-.*",
            "logging-.*",
        ),
        *(
            "tensorboard-.*",
            "wandb-.*",
            "timing-.*",
            "eval-.*",
            "profile.*",
            "distributed-.*",
            "master_addr",
            "nccl-.*",
        ),
        *(
            "master_port",
            "master-addr",
            "master-port",
            "node_rank",
            "node-rank",
            "rdzv.*",
            "max_restarts",
            "init-method.*",
        ),
        *("manual-gc.*", "empty-unused-memory-level", "use-mcore-models", "transformer-impl", "attention-backend"),
        *("use-flash-attn.*", "no-mmap-bin-files", "no-create-attention-mask-in-dataloader", "check-.*", "mmap-.*"),
        *("no-masked-softmax-fusion", "no-bias-.*-fusion", "no-rope-fusion", "no-gradient-accumulation-fusion"),
        *("cross-entropy-.*", "calculate-per-token-loss", "loss-scale.*", "initial-loss-scale", "min-loss-scale"),
        *("lr-decay-samples", "lr-warmup-init", "lr-wsd-decay-style", "hysteresis", "attention-softmax-in-fp32"),
        *(
            "accumulate-allreduce-grads-in-fp32",
            "grad-reduce-in-bf16",
            "no-position-embedding",
            "DDP-impl",
            "rope-type",
        ),
        *("moe-grouped-gemm", "moe-token-dispatcher-type", "moe-permute-fusion", "moe-router-dtype", "ddp-.*"),
        *("moe-per-layer-logging", "moe-router-fusion", "disable-bf16-reduced-precision-matmul", "local-rank"),
        *("persist-layer-norm", "no-persist-layer-norm", "apply-query-key-layer-scaling", "apply-rope-fusion"),
        *("align-grad-reduce", "no-align-.*", "enable-experimental", "export-force-local-attention", "seed-.*"),
        *("start-weight-decay", "end-weight-decay", "weight-decay-incr-style", "no-async-.*", "no-scatter-gather.*"),
        *("activations-checkpoint-num-layers", "decoupled-.*", "optimizer", "te-rng-tracker", "cuda-graph-.*"),
        *("no-check-.*", "init-model-with-meta-device", "use-nccl-ub", "fsdp-.*", "use-layer-wise-.*"),
        *("distribute-saved-activations", "nnodes", "use-cpu-initialization"),
    )
)
# change the run, and are priced without, with the reason
DROPPED = {
    "fp8-.*|fp4-.*|first-last-layers-bf16": "priced in 16 bits",
    "rampup-batch-size|step-batch-size-schedule": "priced at the whole batch",
    "multi-latent-attention|q-lora-rank|kv-lora-rank|qk-head-dim|qk-pos-emb-head-dim|v-head-dim": (
        "latent attention is not read from these arguments"
    ),
    "mtp-.*": "layers that predict further tokens are not known to Heddle",
    "hybrid-.*|mamba-.*|is-hybrid-model": "layers other than attention and MLP are not known to Heddle",
    "moe-expert-capacity-factor|moe-pad-expert-input-to-capacity|moe-token-drop-policy": "no token is dropped",
    "moe-shared-expert-overlap|overlap-moe-expert-parallel-comm|moe-enable-deepep": "priced without",
    "fine-grained-activation-offloading|offload-modules|cpu-offloading.*": "priced without",
    "num-distributed-optimizer-instances": "the optimizer is sharded over all replicas",
    "hierarchical-context-parallel-sizes": "priced as one ring",
    "use-precision-aware-optimizer|main-.*-dtype|exp-avg.*-dtype": "the optimizer's state is held in fp32",
    "quick-geglu|glu-linear-offset|activation-func-clamp-value|openai-gelu": "priced as the nearest activation",
    "enable-gpt-oss|softmax-type": "priced as usual attention",
    "moe-router-(num-groups|group-topk|topk-scaling-factor|enable-expert-bias|bias-update-rate)": "priced without",
    "spec": "layers are priced as the other arguments say",
    "delay-wgrad-compute": "priced without",
}


class MegatronArguments:
    """By name without dashes, as a launcher and a trainer read them: the last of two wins."""

    def __init__(self, values: dict[str, list[str]]) -> None:
        self.values = values
        self.asked: set[str] = set()

    @classmethod
    def of(cls, words: list[str]) -> MegatronArguments:
        """Every word that begins with two dashes is a name; what follows it are its values."""
        values: dict[str, list[str]] = {}
        name = None
        for word in words:
            if word.startswith("--") and len(word) > 2:
                name, equals, value = word[2:].partition("=")
                values[name] = [value] if equals else []
            elif name is not None:
                values[name].append(word)
        return cls(values)

    def said(self, *names: str) -> bool:
        """Whether one of these is there; what is asked so is not yet accounted for."""
        return any(name in self.values for name in names)

    def flag(self, *names: str) -> bool:
        """Whether one of these is set."""
        self.asked.update(names)
        return self.said(*names)

    def word(self, name: str, usual: str = "") -> str:
        """The value of one that takes a word."""
        self.asked.add(name)
        return (self.values.get(name) or [usual])[0]

    def words(self, name: str) -> list[str]:
        """The values of one that takes several words, or one with commas."""
        self.asked.add(name)
        return [word for value in self.values.get(name, []) for word in value.strip("[]").replace(",", " ").split()]

    def number(self, *names: str, default: int | None = None) -> int | None:
        """The value of the first of these that is there."""
        value = self.real(*names)
        if value is not None and not (abs(value) <= LARGEST and value == int(value)):
            raise _wrong(names[0], str(value), "a whole number")
        return default if value is None else int(value)

    def degree(self, *names: str) -> int:
        """Into how many parts something is split: 1 if it is not said."""
        value = self.number(*names, default=1)
        assert value is not None
        if value < 1:
            raise _wrong(names[0], str(value), "a whole number of at least 1")
        return value

    def real(self, *names: str) -> float | None:
        """The same for any number."""
        self.asked.update(names)
        for name in names:
            if self.values.get(name):
                text = self.values[name][0]
                try:
                    return float(text)
                except ValueError:
                    raise _wrong(name, text, "a number") from None
        return None

    def left(self) -> Iterator[tuple[str, list[str]]]:
        """Those that nobody asked for."""
        for name, values in self.values.items():
            if name not in self.asked:
                yield name, values[:4]


def _wrong(name: str, text: str, expected: str) -> HeddleError:
    return HeddleError(
        f"--{name} {text[:40]!r} is not {expected}.",
        "Variables of a script that are set elsewhere are empty here.",
        f"Replace it by its value, for example --{name} 8.",
    )
