"""The whole of a training job: one TOML file with [model], [cluster], [data], [train] and [plan]."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

from heddle.errors import HeddleError, nearest, shorten
from heddle.spec.address import parsed_address
from heddle.spec.cluster import Cluster, Device
from heddle.spec.cluster import Precision as Precision
from heddle.spec.data import Data, located
from heddle.spec.hf.peft import lora_of
from heddle.spec.model import ModelSpec
from heddle.spec.network import Network
from heddle.spec.network.as_cluster import cluster_over, network_of
from heddle.spec.network.exchange_rules import check_coded
from heddle.spec.network.link_codes import check_known
from heddle.spec.plan import Plan, Predicted
from heddle.spec.ranges import (
    Amount,
    Count,
    CountOrZero,
    NonNegative,
    Positive,
    Seed,
    Share,
    ShareBelowOne,
    check_ranges,
)
from heddle.spec.ranks import split_in_words
from heddle.spec.rules.adapt import check_adapt
from heddle.spec.rules.meetings import check_meetings
from heddle.spec.rules.muon import check_muon
from heddle.spec.rules.optimizer import OptimizerName, check_optimizer
from heddle.spec.rules.order import check_late
from heddle.spec.rules.own import check_own_job
from heddle.spec.rules.preference import check_preference
from heddle.spec.rules.tune import check_base, check_rank
from heddle.spec.shorthand import cluster_from_table, model_from_table
from heddle.spec.start import model_in, tokenizer_in
from heddle.spec.tables import WHERE_SAID, build, read_toml, to_table, to_toml
from heddle.spec.this_machine import this_machine
from heddle.spec.tune import Preference, Tune, spared_flops

DelayCorrection = Literal["none", "rate", "beta1", "nesterov", "feedback"]
Storage = Literal["fp32", "bf16", "fp16"]
Float8Scaling = Literal["row", "tensor"]
LearningRateSchedule = Literal["cosine", "linear", "wsd", "constant"]


LONGEST_NAME = 200  # bytes of a run's name: folders take 255, and files beside it add to it


@dataclass(frozen=True, kw_only=True)
class Train:
    """How long, how fast and how precisely to train, and where the run goes."""

    name: str = "run"
    runs: str = "runs"  # the run folder is RUNS/NAME
    # weights to begin with: a run, a checkpoint or a Hugging Face folder; new ones if left out
    start_from: str | None = field(default=None, metadata={"key": "from"})
    steps: Count = 1000
    global_batch: Count = 8  # samples per step, over all replicas
    sequence: Count | None = None  # tokens per sample; the model's longest if left out
    seed: Seed = 0
    precision: Precision | None = None  # what the devices are best at if left out: see Job.precision
    # under fp8, what the numbers of a product are divided by before they are rounded: the largest of a row, or of all
    fp8_scaling: Float8Scaling = field(default="row", metadata=WHERE_SAID)
    optimizer: OptimizerName = "adamw"  # "adamw8bit" keeps its two moments in eight bits each
    momentum: ShareBelowOne = 0.95  # of Muon
    learning_rate: NonNegative = 3e-4
    final_learning_rate: Share = 0.1  # as a share of learning_rate
    schedule: LearningRateSchedule = "cosine"
    warmup: CountOrZero = 0  # steps
    decay: Share = 0.2  # share of the steps that WSD decays over
    beta1: ShareBelowOne = 0.9
    beta2: ShareBelowOne = 0.95
    epsilon: Positive = 1e-8
    weight_decay: Amount = 0.1
    outer_learning_rate: NonNegative = 0.7  # of the step that replicas take together after plan.local_steps
    outer_momentum: ShareBelowOne = 0.9  # of the same, Nesterov's
    outer_mixing: ShareBelowOne = 0.5  # what a replica keeps of its own weights when a meeting was overlapped
    # where sites that come and go meet, HOST:PORT of `heddle meeting`; after how many steps; what this one is called
    meeting: str | None = None
    meet_every: Count = 100
    site: str = "site"
    clip: NonNegative = 1.0  # largest gradient norm; 0 leaves gradients alone
    log_every: Count = 10
    # where numbers go beside metrics.jsonl; if none is named, to TensorBoard where it is installed
    log: tuple[Literal["tensorboard", "wandb", "mlflow"], ...] = field(default=(), metadata=WHERE_SAID)
    notify: str | None = None  # a command that is run when the run has ended; it finds HEDDLE_STATUS in its environment
    eval_every: CountOrZero = 0  # steps; 0: only at the end
    eval_batches: CountOrZero = 20
    # stop after so many evaluations in a row that were no better than the best; 0: never
    patience: CountOrZero = field(default=0, metadata=WHERE_SAID)
    keep_best: bool = field(default=False, metadata=WHERE_SAID)  # save at the best evaluation, and keep that checkpoint
    save_every: CountOrZero = 0  # steps; 0: only at the end
    keep_last: Count = 2  # newest checkpoints that stay on disk
    keep_every: CountOrZero = 0  # checkpoints of these steps stay for good; 0: none
    # the URL of an object store where checkpoints go, such as s3://bucket/runs; by default they stay in the run folder
    checkpoints: str | None = None
    restarts: CountOrZero = 3  # how often a run goes on by itself after a process died
    replan: bool = field(default=True, metadata=WHERE_SAID)  # for the devices that are left, where that are fewer
    watch_links: bool = True  # with a [network]: measure its links at every checkpoint, and say if they have changed
    hang_after: Amount = 0.0  # seconds after which a step counts as hung; 0: many times as long as usual
    compile: bool | None = None  # torch.compile the layers; where GPUs compute whole layers if left out
    # the same bits whenever a step is repeated, on GPUs, too, where the fastest kernels add in any order
    deterministic: bool = field(default=False, metadata=WHERE_SAID)
    # where files of what a plan offloads to disk lie; by default where temporary files do
    offload_folder: str | None = None
    delay_warmup: CountOrZero = 0  # steps with synchronous updates, before those of a late method
    delay_correction: DelayCorrection = "none"  # of late updates; see heddle.training.step.correction

    def __post_init__(self) -> None:
        check_ranges(self, "train")
        plain = self.name.strip() and "/" not in self.name and self.name[0] != "." and self.name.isprintable()
        if not plain or len(self.name.encode()) > LONGEST_NAME:
            raise HeddleError(
                f"train.name = {shorten(self.name)} is not a name for a folder.",
                f"It becomes RUNS/NAME, of at most {LONGEST_NAME} bytes, and stands in scripts and on terminals.",
                f"For example {re.sub(r'[^A-Za-z0-9_.+-]+', '-', self.name).strip('-.')[:40] or 'small'!r}.",
            )
        if self.checkpoints is not None and not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^\s:][^\s]*", self.checkpoints):
            raise HeddleError(
                f"train.checkpoints = {self.checkpoints!r} is not the URL of an object store.",
                "It names a protocol, a bucket and a folder; the checkpoints lie in URL/NAME.",
                "For example s3://bucket/runs or gs://bucket/runs. For a folder, leave it out and use train.runs.",
            )
        if self.meeting is not None:
            try:
                parsed_address(self.meeting)
            except HeddleError as error:
                raise HeddleError(f"train.meeting: {error.what}", error.why, error.hint) from None


@dataclass(frozen=True, kw_only=True)
class Job:
    """A model, what it runs on, what it learns from, how, and (once decided) under which plan."""

    model: ModelSpec
    data: Data | None = None  # None: to be planned, simulated and proven, not trained
    train: Train = field(default_factory=Train)
    cluster: Cluster | None = None  # None: this machine, looked at when it is needed
    plan: Plan | None = None
    predicted: Predicted | None = None  # of the plan
    network: Network | None = None  # links and devices that differ; None: those of the cluster
    tune: Tune | None = None  # what learns beside frozen weights; None: everything learns
    preference: Preference | None = None  # which of two answers is better is learned; None: to go on as texts do

    def __repr__(self) -> str:
        plan = self.plan
        split = split_in_words(plan) if plan else "no plan"
        return f"<Job {self.train.name!r}: model {self.model.name!r}, {self.model.parameters:,} parameters, {split}>"

    def __post_init__(self) -> None:
        if self.sequence > self.model.sequence:
            raise HeddleError(
                f"train.sequence = {self.sequence} is longer than the model's {self.model.sequence} positions.",
                "The model has no positions for the tokens beyond that.",
                f"Use train.sequence = {self.model.sequence}, or model.sequence = {self.sequence}.",
            )
        if self.model.own:
            check_own_job(self.train.optimizer, self.tune is not None, self.preference is not None)
        check_preference(self.preference, self.data, self.tune, self.plan, self.train.meeting)
        check_rank(self.tune, self.model)
        check_base(self.tune, self.model, bool(self.train.compile))
        if self.plan is not None:
            self.plan.check(self.model, self.train.global_batch, self.sequence)
            check_meetings(self.plan, self.train)
            check_late(self.plan, self.train)
            check_optimizer(self.plan, self.train, self.model.layers)
            check_adapt(self.plan, self.train.meeting, self.network is not None)
            check_muon(self.plan, self.train, self.model)
            check_coded(self.plan, self.train.precision)
            if self.model.own and self.train.precision == "fp8":
                raise HeddleError(
                    "precision = 'fp8' cannot be combined with a module of one's own.",
                    "Its products are its own to compute.",
                    "Use precision = 'bf16'.",
                )
            if self.plan.tensor_chunks > 1 and self.train.precision == "fp8":
                raise HeddleError(
                    f"tensor_chunks = {self.plan.tensor_chunks} cannot be combined with precision = 'fp8'.",
                    "Products in 8 bits round all of their input at once.",
                    "Use tensor_chunks = 1, or precision = 'bf16'.",
                )
            if self.network is not None and self.plan.context > 1:
                raise HeddleError(
                    f"context = {self.plan.context} cannot be combined with [network].",
                    "Ranks that share samples exchange keys and values in every layer, over links that must be equal.",
                    "Use context = 1, or [cluster] in place of [network].",
                )
            if self.network is not None and self.plan.zero_within:
                raise HeddleError(
                    f"zero_within = {self.plan.zero_within} cannot be combined with [network].",
                    "Which replicas are neighbors is for the nodes of a cluster to say.",
                    "Leave zero_within out, or use [cluster] in place of [network].",
                )
            if self.network is not None:  # who prices a plan over a network may hold that apart
                check_known(self.plan, self.network)

    @property
    def sequence(self) -> int:
        """Tokens per sample."""
        return self.train.sequence or self.model.sequence

    @cached_property
    def precision(self) -> Precision:
        """What matrix products are computed in: as the job says, else what its devices are best at."""
        return self.train.precision or self._device.precision

    @property
    def storage(self) -> Storage:
        """What weights and activations are kept in: with products in 8 bits, bf16."""
        return "bf16" if self.precision == "fp8" else self.precision

    @property
    def precision_in_words(self) -> str:
        """It, and who chose it if the job does not say."""
        chosen = self.train.precision is None
        return f"{self.precision} (chosen for {self._device.name})" if chosen else self.precision

    @property
    def _device(self) -> Device:
        return (self.cluster or this_machine()).device

    def stating(self, precision: Precision | None = None) -> Self:
        """The same job in this precision, or in its own, which then is no longer a choice."""
        return replace(self, train=replace(self.train, precision=precision or self.precision))

    @property
    def planned(self) -> PlannedJob:
        """The same job with its plan's stages written out; `heddle.planning.best` plans a job that has no plan."""
        if self.plan is None:
            raise HeddleError(
                "The job has no [plan].",
                "What is asked for depends on how the model is split over devices.",
                "Add one with `heddle plan JOB.toml -o plan.toml`, or write [plan] with nothing in it for one device.",
            )
        return self.with_plan(self.plan)

    def with_plan(self, plan: Plan) -> PlannedJob:
        """The same job under that plan, its stages written out."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return PlannedJob(**given | {"plan": plan.resolved(self.model)})

    @property
    def run_folder(self) -> Path:
        """Where this job's run goes."""
        return Path(self.train.runs) / self.train.name

    @property
    def corpus(self) -> Data:
        """Where its tokens come from, without which nothing is trained."""
        if self.data is None:
            raise HeddleError(
                "The job has no [data].",
                "Planning and simulating do without; training needs tokens to learn from.",
                'Add [data] with, for example, text = "corpus/**/*.txt".',
            )
        return self.data

    @property
    def tokens_per_step(self) -> int:
        """Tokens one optimizer step learns from."""
        return self.train.global_batch * self.sequence

    def mfu(self, seconds: float, peak: float, causal: bool = False) -> float:
        """Model FLOPs of a step over what devices with `peak` FLOP/s in all could do in that time.

        The only definition: predictions, metrics and the page use it. Recomputation does not count (arXiv 2205.05198
        §6.3); attention counts over its full square, or with `causal` as far as its mask goes.
        """
        return self.flops(causal) / (seconds * peak)

    def flops(self, causal: bool = False) -> float:
        """Model FLOPs of a step: forward once, backward twice, or of frozen weights once."""
        samples, sequence = self.train.global_batch, self.sequence
        every = self.model.flops(samples, sequence, causal=causal)
        return every - (0 if self.tune is None else samples * spared_flops(self.model, self.tune, sequence))


@dataclass(frozen=True, kw_only=True)
class PlannedJob(Job):
    """A job that has its plan, with the stages written out: what is simulated, proven and trained."""

    plan: Plan

    @property
    def planned(self) -> PlannedJob:
        """Itself, unless its plan was given another whose stages are not written out."""
        return self if self.plan.stages else super().planned


TABLES = ("model", "cluster", "network", "data", "train", "tune", "preference", "plan", "predicted")


def load_job(path: str | Path) -> Job:
    """Read a job file; every mistake in it is a HeddleError that names the file."""
    path = Path(path)
    document = read_toml(path)
    try:
        return job_from_tables(document, path.parent)
    except HeddleError as error:
        raise HeddleError(f"{path}: {error.what}", error.why, error.hint) from None


def check_tables(document: dict[str, Any]) -> None:
    """Refuse what a job file has no place for at its top."""
    for key, table in document.items():
        if key not in TABLES:
            raise HeddleError(f"There is no table [{key}].", "Heddle never ignores a key.", nearest(key, TABLES))
        if not isinstance(table, dict):
            raise HeddleError(f"'{key}' is not a table.", "A job is made of tables.", f"Write [{key}] on its own line.")


def job_from_tables(document: dict[str, Any], folder: Path = Path()) -> Job:
    """Make a job from the tables of a parsed file; `folder` is where its relative paths start."""
    check_tables(document)
    train = _started(build(Train, document.get("train", {}), "train"), folder)
    start = None if train.start_from is None else Path(train.start_from)
    if "model" not in document and start is None:
        raise HeddleError(
            "The table [model] is missing.",
            "A job needs at least a model; [train] from brings its own.",
            "Add [model].",
        )
    cluster = cluster_from_table(document["cluster"], folder) if "cluster" in document else None
    network = network_of(document["network"], folder) if "network" in document else None
    plan = build(Plan, document["plan"], "plan") if "plan" in document else None
    if plan is not None and network is None:
        check_known(plan, None)
    if plan is None and "predicted" in document:
        raise HeddleError(
            "The job has [predicted], but no [plan].",
            "A prediction is about a plan.",
            "Remove [predicted], or plan again with `heddle plan JOB.toml -o plan.toml`.",
        )
    return Job(
        model=model_from_table(_started_model(document.get("model", {}), start), folder),
        data=_data(document, start, folder) if "data" in document else None,
        train=train,
        cluster=cluster if network is None else cluster_over(network, cluster),
        network=network,
        tune=_tuned(document["tune"], folder) if "tune" in document else None,
        preference=build(Preference, document["preference"], "preference") if "preference" in document else None,
        plan=plan,
        predicted=build(Predicted, document["predicted"], "predicted") if "predicted" in document else None,
    )


def _data(document: dict[str, Any], start: Path | None, folder: Path) -> Data:
    """With [preference], conversations are pairs of them, unless it is said otherwise, and then refused."""
    table = _started_data(document["data"], start)
    if "preference" in document and "chat" in table:
        table = {"learn": "preference"} | table
    return located(build(Data, table, "data"), folder)


def _tuned(table: dict[str, Any], folder: Path) -> Tune:
    """Adapters that are there already lie relative to the job file, and bring their description."""
    tune = build(Tune, table, "tune")
    if tune.adapter is None:
        return tune
    place = folder / tune.adapter
    lora = lora_of(place) if tune.lora is None else tune.lora
    return replace(tune, adapter=str(place.absolute()), lora=lora)


def _started(train: Train, folder: Path) -> Train:
    """What a run starts from is an input: it, too, lies relative to the job file."""
    return train if train.start_from is None else replace(train, start_from=str((folder / train.start_from).absolute()))


def _started_model(table: dict[str, Any], start: Path | None) -> dict[str, Any]:
    """Weights bring their model; [model] may change what is not in the weights, or describe the whole of it."""
    if start is None or table.keys() & {"preset", "config", "layers", "module"}:
        return table
    found = to_table(model_in(start))
    if "module" in found:
        raise HeddleError(
            f"The weights in {start} are those of a module, made by code that they name: {found['module']}.",
            "Heddle runs code only if your own job file names it, never because weights came with it.",
            'Name the file yourself: [model] module = "mine.py:make".',
        )
    return found | table


def _started_data(table: dict[str, Any], start: Path | None) -> dict[str, Any]:
    """Weights bring their tokenizer: text is written in the tokens that they know."""
    if start is None or table.keys() & {"tokenizer", "tokens"} or not table.keys() & {"text", "chat"}:
        return table
    return table | {"tokenizer": str(tokenizer_in(start))}


def dumps_job(job: Job) -> str:
    """The job as TOML; reading it returns the same job, wherever it is read: a precision that was chosen is stated."""
    job = job.stating()
    return to_toml({name: to_table(getattr(job, name)) for name in TABLES if getattr(job, name) is not None})
