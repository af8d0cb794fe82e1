"""From Python: text to tokens, weights from and for other systems, plans from and for other trainers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from heddle.data import Prepared
    from heddle.data.look import DataLook
    from heddle.spec.job import Job
    from heddle.trainers.exported import ExportedPlan


def prepare_data(
    text: str | Sequence[str],
    output: str | Path,
    *,
    tokenizer: str = "bytes",
    validation: float = 0.05,
    key: str = "text",
    chat: bool = False,
    template: str | None = None,
) -> Prepared:
    """Turn text, or conversations, into a folder of tokens, which jobs use as data.tokens.

    Args:
        text: files or globs of text or .jsonl.
        output: the folder to create.
        tokenizer: "bytes", "bpe:SIZE", or the path of a tokenizer.json.
        validation: share of the tokens that is kept for evaluation.
        key: the field of a JSONL line that holds the text.
        chat: the files are conversations, written by a chat template.
        template: with `chat`, a .jinja file, or "chatml"; the tokenizer's own if left out.
    """
    from heddle.data import prepare
    from heddle.spec.data import Data

    files = (text,) if isinstance(text, str) else tuple(text)
    texts, chats = ((), files) if chat else (files, ())
    data = Data(text=texts, chat=chats, tokenizer=tokenizer, validation=validation, key=key, template=template)
    return prepare(data, Path(), Path(output))


def look_at_data(
    chat: str | Sequence[str],
    tokenizer: str,
    *,
    template: str | None = None,
    learn: Literal["assistant", "last", "each", "all", "preference"] = "assistant",
    key: str | None = None,
    samples: int = 3,
    strict: bool = False,
) -> DataLook:
    """Show what a job would learn from conversations, without writing anything.

    Args:
        chat: files or globs of .jsonl, .json, .csv or .parquet, or "datasets:NAME".
        tokenizer: a folder with a tokenizer.json, as of a Hugging Face model; or "bytes".
        template: a .jinja file, or "chatml"; the tokenizer's own if left out.
        learn: what is learned.
        key: the field to learn from, where it is not one of the usual.
        samples: how many to keep whole.
        strict: the first row that is not right is an error; otherwise such rows are counted.

    Returns:
        The first samples with what is learned of them, counts, lengths, and what was left out and why.
    """
    from heddle.data.look import look
    from heddle.spec.data import ChatSource, Data

    source = ChatSource(path=chat if isinstance(chat, str) else tuple(chat), key=key)
    bad: Literal["refuse", "skip"] = "refuse" if strict else "skip"
    data = Data(chat=(source,), tokenizer=tokenizer, template=template, learn=learn, bad_rows=bad)
    return look(data, Path(), samples)[0]


def import_hf(folder: str | Path, output: str | Path, *, check: bool = True) -> Path:
    """Turn a Hugging Face folder into a checkpoint, which jobs use as train.from.

    Args:
        folder: config.json and safetensors.
        output: the checkpoint to create.
        check: compare logits with transformers, if it is installed.

    Returns:
        Where the checkpoint is.
    """
    from heddle.checkpoint.exchange.agreement import Agreed
    from heddle.checkpoint.exchange.convert import import_huggingface
    from heddle.checkpoint.source import checkpoint_source, huggingface_source

    source = huggingface_source(Path(folder))
    agreed = Agreed(source.model, check)
    written = import_huggingface(source, Path(output), lambda made: agreed.check(Path(folder), checkpoint_source(made)))
    return written.folder


def import_dcp(
    folder: str | Path,
    output: str | Path,
    *,
    trainer: Literal["torchtitan", "megatron"],
    model: str,
    dtype: Literal["fp32", "bf16", "fp16"] | None = None,
    shard_gib: float = 5.0,
) -> Path:
    """Turn a distributed checkpoint of torchtitan or Megatron-LM into a Hugging Face folder, for train.from.

    Args:
        folder: the checkpoint of one step, or a folder of several, of which it is the last.
        output: the folder to create.
        trainer: who wrote it; of Megatron-LM the format `torch_dist`.
        model: what was trained: a preset, or a config.json.
        dtype: round the weights to this type; left as they are if left out.
        shard_gib: the largest file, and about the most held in memory at once.

    Returns:
        Where the folder is.
    """
    from heddle.checkpoint.exchange.distributed import import_distributed
    from heddle.format import GIB
    from heddle.runtime.device import DTYPES
    from heddle.spec.shorthand import named_model

    rounded = None if dtype is None else DTYPES[dtype]
    shape = named_model(model)
    return import_distributed(Path(folder), Path(output), trainer, shape, rounded, int(shard_gib * GIB)).folder


def export_hf(
    weights: str | Path,
    output: str | Path,
    *,
    dtype: Literal["fp32", "bf16", "fp16"] | None = None,
    shard_gib: float = 5.0,
    check: bool = True,
    onto: Literal["trained", "original"] | None = None,
) -> Path:
    """Write the weights of a run or a checkpoint as a Hugging Face folder, tokenizer included.

    Args:
        weights: a run or a checkpoint.
        output: the folder to create.
        dtype: round the weights to this type; left as they are if left out.
        shard_gib: the largest file, and the most held in memory at once.
        check: compare logits with transformers, if it is installed.
        onto: with tune.base = "nf4", what adapters are added to: the base that they learned beside, or the original.

    Returns:
        Where the folder is.
    """
    import warnings

    from heddle.checkpoint.exchange.agreement import Agreed
    from heddle.checkpoint.exchange.convert import export_huggingface
    from heddle.checkpoint.exchange.merge import merged_onto
    from heddle.checkpoint.source import find_source
    from heddle.format import GIB
    from heddle.parallel.mesh import Mesh
    from heddle.runtime.device import DTYPES

    found = find_source(Path(weights), Mesh(), lambda words: warnings.warn(words, stacklevel=3))
    source = merged_onto(found, onto)
    rounded = None if dtype is None else DTYPES[dtype]
    agreed = Agreed(source.model, check)
    written = export_huggingface(
        source, Path(output), rounded, int(shard_gib * GIB), lambda made: agreed.check(made, source, rounded)
    )
    return written.folder


def export_peft(run: str | Path, output: str | Path, *, base: str | None = None) -> Path:
    """Write the adapters of a run as PEFT reads them; `export_hf` writes the weights with adapters added.

    Args:
        run: a run with [tune], or one of its checkpoints.
        output: the folder to create.
        base: what the folder calls its base; train.from if left out.

    Returns:
        Where the folder is.
    """
    import warnings

    from heddle.checkpoint.adapters import export_peft as export

    return export(Path(run), Path(output), lambda words: warnings.warn(words, stacklevel=3), base)


def export_plan(
    job: Job | str | Path, trainer: Literal["megatron", "torchtitan", "deepspeed", "accelerate", "nemo"]
) -> ExportedPlan:
    """Write a job's plan for another trainer; a job without a plan is planned first.

    Args:
        job: a job, or the path of its file.
        trainer: which one.

    Returns:
        The file's `text`, and in `missing` what the trainer has no word for.
    """
    from heddle.api.given import job_of
    from heddle.planning.best import with_best_plan
    from heddle.trainers.registry import exported_plan

    return exported_plan(with_best_plan(job_of(job))[0], trainer)


def import_plan(
    trainer: Literal["megatron", "torchtitan", "deepspeed"],
    line: str | Path,
    *,
    model: str | None = None,
    cluster: str | None = None,
    nodes: int | None = None,
    job: Job | str | Path | None = None,
) -> Job:
    """Make a job of another trainer's launch line or file; what is assumed or left out is a warning.

    Args:
        trainer: which one.
        line: the arguments, the whole command, or the path of a script or file.
        model: a preset or a config.json, where the line does not say.
        cluster: a preset, or a file with [cluster]; dgx-h100 if left out.
        nodes: how many of it; as the line says if left out.
        job: a job that says what the line does not.

    Returns:
        The job, with its plan.
    """
    import warnings

    from heddle.api.given import job_of
    from heddle.spec.shorthand import named_cluster, named_model
    from heddle.trainers.registry import imported_settings

    found = imported_settings(trainer, str(line))
    made = found.job(
        None if model is None else named_model(model),
        None if cluster is None else named_cluster(cluster),
        nodes,
        None if job is None else job_of(job),
    )
    for words in (*found.assumed, *found.dropped, *found.unknown):
        warnings.warn(words, stacklevel=2)
    return made.planned
