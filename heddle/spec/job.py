"""The whole of a training job: one TOML file with [model], [cluster], [data], [train] and [plan]."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

from heddle.errors import HeddleError, nearest
from heddle.spec.cluster import Cluster, Device
from heddle.spec.cluster import Precision as Precision
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
from heddle.spec.rules.order import check_late
from heddle.spec.shorthand import cluster_from_table, model_from_table
from heddle.spec.start import model_in, tokenizer_in
from heddle.spec.tables import build, read_toml, to_table, to_toml
from heddle.spec.this_machine import this_machine

DelayCorrection = Literal["none", "rate", "beta1", "nesterov", "feedback"]
LearningRateSchedule = Literal["cosine", "linear", "wsd", "constant"]


@dataclass(frozen=True, kw_only=True)
class Data:
    """Where the text comes from and how it becomes tokens. Give either `text` or `tokens`."""

    text: tuple[str, ...] | str = ()  # files or globs, .jsonl or any text; "stdlib:" is Python's own library
    tokens: str | None = None  # a folder made by `heddle data prepare`
    # "bytes", "bpe:SIZE" (trained on the text), or the path of a tokenizer.json; in a file, train.from brings its own
    tokenizer: str = "bytes"
    key: str = "text"  # the field of a JSONL line that holds the text
    validation: ShareBelowOne = 0.05  # share of the tokens that is kept for evaluation
    cache: str = "prepared"  # where tokens made from `text` are kept
    verify: bool = True  # check the checksum of the token files before training

    def __post_init__(self) -> None:
        check_ranges(self, "data")
        if bool(self.text) == bool(self.tokens):
            raise HeddleError(
                "[data] needs either 'text' or 'tokens'.",
                "Training reads text files, or a folder of tokens made by `heddle data prepare`.",
                'For example text = "corpus/**/*.txt".',
            )


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
    optimizer: Literal["adamw"] = "adamw"
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
    eval_every: CountOrZero = 0  # steps; 0: only at the end
    eval_batches: CountOrZero = 20
    save_every: CountOrZero = 0  # steps; 0: only at the end
    keep_last: Count = 2  # newest checkpoints that stay on disk
    keep_every: CountOrZero = 0  # checkpoints of these steps stay for good; 0: none
    restarts: CountOrZero = 3  # how often a run goes on by itself after a process died
    watch_links: bool = True  # with a [network]: measure its links at every checkpoint, and say if they have changed
    hang_after: Amount = 0.0  # seconds after which a step counts as hung; 0: many times as long as usual
    compile: bool = False  # torch.compile the layers
    # where files of what a plan offloads to disk lie; by default where temporary files do
    offload_folder: str | None = None
    delay_warmup: CountOrZero = 0  # steps with synchronous updates, before those of a delayed method
    delay_correction: DelayCorrection = "none"  # of late updates; see heddle.train.step.correction

    def __post_init__(self) -> None:
        check_ranges(self, "train")
        if not self.name or "/" in self.name or self.name.startswith("."):
            raise HeddleError(
                f"train.name = {self.name!r} is not a name for a folder.",
                "It becomes RUNS/NAME.",
                "For example 'small'.",
            )


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
        if self.plan is not None:
            self.plan.check(self.model, self.train.global_batch, self.sequence)
            check_meetings(self.plan, self.train)
            check_late(self.plan, self.train)
            check_adapt(self.plan, self.train.meeting, self.network is not None)
            check_coded(self.plan, self.train.precision)
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
        """The same job with a plan, its stages written out; without one, a single device does everything at once."""
        return self.with_plan(self.plan or Plan(microbatch=self.train.global_batch))

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


@dataclass(frozen=True, kw_only=True)
class PlannedJob(Job):
    """A job that has its plan, with the stages written out: what is simulated, proven and trained."""

    plan: Plan

    @property
    def planned(self) -> PlannedJob:
        """Itself, unless its plan was given another whose stages are not written out."""
        return self if self.plan.stages else super().planned


TABLES = ("model", "cluster", "network", "data", "train", "plan", "predicted")


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
    return Job(
        model=model_from_table(_started_model(document.get("model", {}), start), folder),
        data=_located(build(Data, _started_data(document["data"], start), "data"), folder)
        if "data" in document
        else None,
        train=train,
        cluster=cluster if network is None else cluster_over(network, cluster),
        network=network,
        plan=plan,
        predicted=build(Predicted, document["predicted"], "predicted") if "predicted" in document else None,
    )


def _located(data: Data, folder: Path) -> Data:
    """Inputs lie relative to the job file; what is written lies where the command is run."""

    def place(path: str) -> str:
        return path if path.startswith("stdlib:") else str((folder / path).absolute())

    texts = (data.text,) if isinstance(data.text, str) else data.text
    is_file = data.tokenizer.endswith(".json")
    return replace(
        data,
        text=tuple(place(text) for text in texts),
        tokens=None if data.tokens is None else place(data.tokens),
        tokenizer=place(data.tokenizer) if is_file else data.tokenizer,
    )


def _started(train: Train, folder: Path) -> Train:
    """What a run starts from is an input: it, too, lies relative to the job file."""
    return train if train.start_from is None else replace(train, start_from=str((folder / train.start_from).absolute()))


def _started_model(table: dict[str, Any], start: Path | None) -> dict[str, Any]:
    """Weights bring their model; [model] may change what is not in the weights, or describe the whole of it."""
    if start is None or table.keys() & {"preset", "config", "layers"}:
        return table
    return to_table(model_in(start)) | table


def _started_data(table: dict[str, Any], start: Path | None) -> dict[str, Any]:
    """Weights bring their tokenizer: text is written in the tokens that they know."""
    if start is None or table.keys() & {"tokenizer", "tokens"} or "text" not in table:
        return table
    return table | {"tokenizer": str(tokenizer_in(start))}


def dumps_job(job: Job) -> str:
    """The job as TOML; reading it gives the same job, wherever it is read: a precision that was chosen is stated."""
    job = job.stating()
    return to_toml({name: to_table(getattr(job, name)) for name in TABLES if getattr(job, name) is not None})
