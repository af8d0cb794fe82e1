"""A TOML file of torchtitan as a job; or its flags, as releases without files take them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from heddle.errors import HeddleError, nearest, shorten
from heddle.files import parse_toml, read_text
from heddle.schedule.registry import named_by_torch, rule_of, usual
from heddle.trainers.imported import ImportedSettings
from heddle.trainers.launch_line import launch_words
from heddle.trainers.torchtitan.flavors import FLAVORS
from heddle.trainers.torchtitan.stages import stages_in, usual_stages
from heddle.trainers.values import check_chunks, real, whole

TRAINER = "torchtitan"
HARMLESS = (
    "job",
    "profiling",
    "metrics",
    "checkpoint",
    "comm",
    "memory_estimation",
    "validation",
    "debug",
    "experimental",
)


def read_torchtitan(given: str) -> ImportedSettings:
    """From the path of a TOML file, its text, or a launch line with flags."""
    if "\n" not in given and " --" in given:
        tables, processes, per_node = _flags(launch_words(given))
    else:
        text = given if "\n" in given else read_text(Path(given), "a job, described in TOML for torchtitan")
        processes = per_node = None
        try:
            tables = parse_toml(text)
        except ValueError as error:
            raise HeddleError(
                "The file for torchtitan is not valid TOML.", f"{error}.", "Strings need quotes; tables are [training]."
            ) from None
    found = ImportedSettings(trainer=TRAINER, processes=processes, per_node=per_node)
    training, parallelism = _table(tables, "training"), _table(tables, "parallelism")
    flavor = _model(tables, found)
    layers = int(flavor["layers"]) if flavor is not None else None
    found.plan = _plan(tables, training, parallelism, layers, found)
    found.train = _train(tables, training)
    found.software = {"profile": "torch FSDP2"}
    _account(tables, found)
    return found


def _table(tables: dict[str, Any], name: str) -> dict[str, Any]:
    found = tables.get(name, {})
    if not isinstance(found, dict):
        raise HeddleError(f"[{name}] is not a table.", "A file for torchtitan is made of tables.", f"Write [{name}].")
    return found


def _flags(words: list[str]) -> tuple[dict[str, Any], int | None, int | None]:
    """The tables that flags such as `--training.steps 100` make, and how many processes are started."""
    tables: dict[str, Any] = {}
    launcher = {"nproc_per_node": None, "nproc-per-node": None, "nnodes": 1}
    at = 0
    while at < len(words):
        name, equals, value = words[at].removeprefix("--").partition("=")
        section, dot, key = name.partition(".")
        if words[at].startswith("--") and not equals and at + 1 < len(words) and not words[at + 1].startswith("--"):
            at, value = at + 1, words[at + 1]
        if dot and words[at - (not equals and bool(value))].startswith("--"):
            tables.setdefault(section, {})[key] = _value(value)
        elif name in launcher and value.isdecimal():
            launcher[name] = int(value)
        elif name in ("module", "config"):
            tables.setdefault("model", {})[{"module": "name", "config": "flavor"}[name]] = value
        at += 1
    model = tables.get("model", {})
    if "flavor" in model and "name" in model:  # "llama3_8b" of module "llama3"
        stem = str(model["flavor"]).removeprefix(f"{model['name']}_").lower()
        known = {flavor.lower().replace("-", "_"): flavor for name, flavor in FLAVORS if name == model["name"]}
        model["flavor"] = known.get(stem, stem)
    each = launcher["nproc_per_node"] or launcher["nproc-per-node"]
    return tables, None if each is None else each * (launcher["nnodes"] or 1), each


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False, "True": True, "False": False}.get(text, text)


def _model(tables: dict[str, Any], found: ImportedSettings) -> dict[str, Any] | None:
    """The model by name and flavor; None: not one that Heddle knows, so the reader must say."""
    named = _table(tables, "model")
    key = str(named.get("name", "llama3")), str(named.get("flavor", "debugmodel"))
    if key not in FLAVORS:
        same = [flavor for name, flavor in FLAVORS if name == key[0]]
        hint = nearest(key[1], same) if same else ""
        found.assumed.append(
            f"model: {key[0]} {key[1]} is not known to Heddle, so --model says its shape. {hint}".strip()
        )
        return None
    table = dict(FLAVORS[key])
    sequence = whole(_table(tables, "training"), "seq_len", 2048, "training.", 1)
    table |= {"name": f"{key[0]}-{key[1]}", "sequence": sequence}
    if named.get("converters"):
        found.dropped.append(f"model.converters = {named['converters']}: priced in 16 bits")
    found.model = table
    return table


def _plan(
    tables: dict[str, Any],
    training: dict[str, Any],
    parallelism: dict[str, Any],
    layers: int | None,
    found: ImportedSettings,
) -> dict[str, Any]:
    def degree(name: str, usual: int = 1) -> int:
        value = parallelism.get(name, usual)
        if type(value) is not int or not (value >= 1 or value == usual):
            raise HeddleError(
                f"parallelism.{name} = {shorten(value)} is not a whole number of at least 1.",
                "It is a degree.",
                f"For example {name} = {usual}.",
            )
        return value

    tensor, pipeline = degree("tensor_parallel_degree"), degree("pipeline_parallel_degree")
    context = degree("context_parallel_degree")
    replicas, shards = degree("data_parallel_replicate_degree"), degree("data_parallel_shard_degree", -1)
    plan: dict[str, Any] = {"tensor": tensor, "sequence": tensor > 1, "pipeline": pipeline}
    if parallelism.get("enable_sequence_parallel") is False:
        plan["sequence"] = False
    if context > 1:
        gather = parallelism.get("context_parallel_rotate_method", "allgather") == "allgather"
        plan |= {"context": context, "context_exchange": "gather" if gather else "ring"}
    if (experts := degree("expert_parallel_degree")) > 1:
        plan["expert"] = experts
    if replicas > 1 and shards not in (1, -1):
        found.dropped.append(f"data_parallel_replicate_degree = {replicas}: weights are sharded over all replicas")
    if shards >= 1:
        plan["data"] = replicas * shards
    policy = parallelism.get("fsdp_reshard_after_forward", "default")
    keeps = policy == "never" or (policy == "default" and pipeline > 1)
    plan["zero"] = 0 if shards == 1 and context == 1 else 2 if keeps else 3
    plan |= _pipeline(training, parallelism, pipeline, layers, found)
    if plan["zero"] > 1 and pipeline > 1 and rule_of(plan["schedule"]).splits:
        plan["zero"] = 1  # of Heddle's schedules these shard no weights
        found.dropped.append(f"data_parallel_shard_degree = {shards}: with this schedule priced as zero = 1")
    again = _table(tables, "activation_checkpoint")
    mode = again.get("mode", "selective")
    by_operator = str(again.get("selective_ac_option", "op")) == "op"
    plan["recompute"] = mode if mode in ("none", "full") else "elementwise" if by_operator else "selective"
    if training.get("enable_cpu_offload"):
        plan["offload"] = ["weights:host", "optimizer:host"]
    return plan


def _pipeline(
    training: dict[str, Any],
    parallelism: dict[str, Any],
    pipeline: int,
    layers: int | None,
    found: ImportedSettings,
) -> dict[str, Any]:
    """Chunks, schedule and microbatch."""
    if pipeline == 1:
        return {"microbatch": whole(training, "local_batch_size", 8, "training.", 1)}
    word = str(parallelism.get("pipeline_parallel_schedule", "1F1B"))
    schedule = named_by_torch(word)
    several = "nterleaved" in word or "Looped" in word
    if schedule is None:
        schedule = usual(2 if several else 1)
        found.dropped.append(f"pipeline_parallel_schedule = {word}: priced as {schedule}")
    each_rank = rule_of(schedule).usual_virtual
    modules = parallelism.get("module_fqns_per_model_part")
    less = [
        whole(parallelism, f"pipeline_parallel_{end}_stage_less_layers", 1, "parallelism.") or 0
        for end in ("first", "last")
    ]
    microbatch = whole(parallelism, "pipeline_parallel_microbatch_size", 1, "parallelism.", 1)
    if modules:
        stages = stages_in(modules)
    elif layers is None:
        return {"schedule": schedule, "microbatch": microbatch}
    else:
        each = whole(parallelism, "pipeline_parallel_layers_per_stage", None, "parallelism.", 1)
        chunks = pipeline * each_rank if each is None else -(-(layers + sum(less)) // each)
        check_chunks(chunks, layers + sum(less))
        stages = usual_stages(layers, chunks, *less)
    return {
        "schedule": schedule,
        "virtual": len(stages) // pipeline,
        "stages": stages,
        "microbatch": microbatch,
    }


def _train(tables: dict[str, Any], training: dict[str, Any]) -> dict[str, Any]:
    optimizer, rates = _table(tables, "optimizer"), _table(tables, "lr_scheduler")
    train: dict[str, Any] = {"sequence": whole(training, "seq_len", 2048, "training.", 1)}
    if (batch := whole(training, "global_batch_size", -1, "training.", -1) or 0) > 0:
        train["global_batch"] = batch
    for key, table, name in (
        ("steps", training, "steps"),
        ("clip", training, "max_norm"),
        ("learning_rate", optimizer, "lr"),
        ("beta1", optimizer, "beta1"),
        ("beta2", optimizer, "beta2"),
        ("epsilon", optimizer, "eps"),
        ("weight_decay", optimizer, "weight_decay"),
        ("warmup", rates, "warmup_steps"),
        ("final_learning_rate", rates, "min_lr_factor"),
    ):
        value = whole(table, name) if key in ("steps", "warmup") else real(table, name)
        if value is not None:
            train[key] = value
    ratio, kind = real(rates, "decay_ratio", "lr_scheduler."), rates.get("decay_type", "linear")
    to_the_end = ratio is None or round(ratio * train.get("steps", 1000)) >= train.get("steps", 1000) - train.get(
        "warmup", 0
    )
    if ratio == 0:
        train["schedule"] = "constant"
    elif to_the_end:
        train["schedule"] = kind if kind in ("linear", "cosine") else "linear"
    else:
        train |= {"schedule": "wsd", "decay": float(ratio or 0.0)}
    param = training.get("mixed_precision_param", "bfloat16")
    train["precision"] = "fp32" if param == "float32" and training.get("dtype", "float32") == "float32" else "bf16"
    if type(seed := _table(tables, "debug").get("seed", training.get("seed"))) is int:
        train["seed"] = seed
    if _table(tables, "compile").get("enable"):
        train["compile"] = True
    return train


def _account(tables: dict[str, Any], found: ImportedSettings) -> None:
    """What became of the tables that nobody asked for."""
    known = ("model", "optimizer", "lr_scheduler", "training", "parallelism", "activation_checkpoint", "compile")
    for name in tables:
        if name in known:
            continue
        if name in HARMLESS:
            found.harmless += 1
        elif name in ("quantize", "float8", "mx"):
            if not any("converters" in each for each in found.dropped) and "converters" not in str(found.dropped):
                found.harmless += 1  # without its converter it does nothing
        else:
            found.unknown.append(f"[{name}]")
