"""How good a trained model is: perplexity on files, and tasks of lm-eval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heddle.api.given import path_of

if TYPE_CHECKING:
    from heddle.api.text import TextModel
    from heddle.training.evaluation import Perplexity


@dataclass(frozen=True)
class ModelEvaluation:
    """What was found."""

    what: str  # was evaluated
    perplexity: Perplexity | None = None
    tasks: dict[str, dict[str, Any]] | None = None  # numbers of each task, as lm-eval names them

    def to_json(self) -> dict[str, Any]:
        """As `heddle evaluate --json` prints it."""
        found: dict[str, Any] = {"evaluated": self.what}
        if self.perplexity is not None:
            found |= {
                "tokens": self.perplexity.tokens,
                "loss": self.perplexity.loss,
                "perplexity": self.perplexity.perplexity,
                "bits_per_byte": self.perplexity.bits_per_byte,
            }
        return found | ({} if self.tasks is None else {"tasks": self.tasks})


def evaluate(
    run: str | Path,
    files: str | Sequence[str] = (),
    *,
    chat: bool = False,
    sequence: int | None = None,
    tasks: Sequence[str] = (),
    task_folder: str | Path | None = None,
    limit: int | None = None,
) -> ModelEvaluation:
    """Measure a trained model: its perplexity on files, or its scores in tasks of lm-eval.

    Args:
        run: a run, a checkpoint or a Hugging Face folder.
        files: texts, or globs of them; if left out, what the run kept for validation.
        chat: the files are conversations, of which the assistant's turns are predicted.
        sequence: tokens that are seen together; the run's if left out, or the model's.
        tasks: names of tasks, which lm-eval runs where it is installed; without `files`, only these are done.
        task_folder: a folder with tasks of your own, as lm-eval describes them.
        limit: questions of each task; all if left out.

    Returns:
        Loss, perplexity and bits per byte, and the numbers of each task.
    """
    import warnings

    from heddle.api.text import TextModel
    from heddle.training.evaluation import chat_perplexity, text_perplexity

    where = path_of(run, "a run's folder, a checkpoint or a Hugging Face folder")
    model = TextModel(where, lambda words: warnings.warn(words, stacklevel=4))
    scores = None
    if tasks:
        from heddle.api.tasks import run_tasks

        scores = run_tasks(model, list(tasks), None if task_folder is None else Path(task_folder), limit)
    named = (files,) if isinstance(files, str) else tuple(files)
    if not named and tasks:
        return ModelEvaluation(", ".join(tasks), tasks=scores)
    length = sequence or _sequence(where, model.model.spec.sequence)
    if not named:
        return ModelEvaluation("what the run kept for validation", _kept(model, length), scores)
    if chat:
        from heddle.spec.start import companions_in

        found = chat_perplexity(model.model, model.tokenizer, named, length, companions_in(where))
    else:
        found = text_perplexity(model.model, model.tokenizer, named, length)
    return ModelEvaluation(", ".join(named), found, scores)


def _sequence(folder: Path, longest: int) -> int:
    """Tokens that a run's samples have; the most that the model can see, of other folders."""
    from heddle.spec.job import load_job
    from heddle.spec.start import JOB

    return load_job(folder / JOB).sequence if (folder / JOB).is_file() else longest


def _kept(model: TextModel, sequence: int) -> Perplexity:
    """On the validation data of a run."""
    from heddle.data import Documents, prepared_for
    from heddle.data.documents import MixedDocuments
    from heddle.errors import HeddleError
    from heddle.spec.job import load_job
    from heddle.spec.start import JOB
    from heddle.training.evaluation import documents_perplexity, tokens_perplexity

    if not (model.run / JOB).is_file():
        raise HeddleError(
            f"{model.run} is no run.",
            "Only a run knows what it kept for validation.",
            f"Name files: heddle evaluate {model.run} texts/*.txt.",
        )
    data = prepared_for(load_job(model.run / JOB).corpus)
    validation = data.validation
    if isinstance(validation, MixedDocuments):
        validation = validation.parts[0] if len(validation.parts) == 1 else validation
    if isinstance(validation, MixedDocuments) or (isinstance(validation, Documents) and validation.pairs):
        kind = "pairs of answers" if isinstance(validation, Documents) else "a mixture"
        raise HeddleError(
            f"What {model.run} kept for validation is {kind}.",
            "Its loss is in the run's metrics; perplexity is of one set of texts.",
            f"Name files: heddle evaluate {model.run} texts/*.txt.",
        )
    if not len(validation):
        raise HeddleError(
            f"{model.run} kept nothing for validation.", "data.validation was 0.", "Name files to evaluate on."
        )
    if isinstance(validation, Documents):
        return documents_perplexity(model.model, validation, sequence)
    return tokens_perplexity(model.model, validation, sequence, data.meta.validation.bytes)
