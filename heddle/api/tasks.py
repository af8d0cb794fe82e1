"""A trained model as lm-eval sees one: it answers what is asked of log-likelihoods, and goes on with texts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from heddle.errors import HeddleError, how_to_install, nearest
from heddle.models.transformer import Microbatch

if TYPE_CHECKING:
    from heddle.api.text import TextModel

Request = tuple[tuple[str, str], list[int], list[int]]  # texts, and the tokens of what is given and of what follows


def answers(model: TextModel, given: list[int], following: list[int]) -> tuple[float, bool]:
    """The log-probability of some tokens after others, and whether each was the likeliest."""
    inside = model.model.spec.sequence + 1
    ids = [*(given or [model.tokenizer.end]), *following][-inside:]
    count = min(len(following), len(ids) - 1)
    device = next(model.model.parameters()).device
    with torch.no_grad():
        logits = model.model(torch.tensor(ids[:-1], device=device), Microbatch(sequence=len(ids) - 1))
    logs = torch.log_softmax(logits[-count:].float(), dim=1)
    wanted = torch.tensor(ids[-count:], device=device)
    found = logs.gather(1, wanted[:, None]).double().sum()
    return float(found), bool((logs.argmax(1) == wanted).all())


def lm_eval_model(model: TextModel) -> Any:
    """The model behind lm-eval's interface; that library must be installed."""
    from lm_eval.api.model import TemplateLM

    class HeddleModel(TemplateLM):  # type: ignore[misc]
        @property
        def eot_token_id(self) -> int:
            return model.tokenizer.end

        @property
        def tokenizer_name(self) -> str:
            return str(model.run)

        def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:  # noqa: ARG002
            return [int(i) for i in model.tokenizer.encode(string)]

        def _loglikelihood_tokens(self, requests: list[Request], **_: Any) -> list[tuple[float, bool]]:
            return [answers(model, given, following) for _, given, following in requests]

        def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = False) -> list[float]:  # noqa: ARG002
            length = model.model.spec.sequence
            found = []
            for request in requests:
                ids = self.tok_encode(request.args[0])
                windows = range(0, len(ids), length)  # each token once, with its own window before it
                found.append(sum(answers(model, ids[max(0, i - 1) : i], ids[i : i + length])[0] for i in windows))
            return found

        def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:  # noqa: ARG002
            return [self._continued(*request.args) for request in requests]

        def _continued(self, prompt: str, options: dict[str, Any]) -> str:
            until = options.get("until") or []
            ends = [until] if isinstance(until, str) else list(until)
            warm = float(options.get("temperature") or 0.0) if options.get("do_sample") else 0.0
            most = int(options.get("max_gen_toks") or 256)
            text = ""
            tokens: list[int] = []
            for token in model.continued(model.encode(prompt), most, temperature=warm):
                tokens.append(token)
                text = model.tokenizer.decode(tokens)
                if any(end in text for end in ends):
                    break
            for end in ends:
                text = text.split(end)[0]
            return text

    return HeddleModel()


def run_tasks(model: TextModel, tasks: list[str], folder: Path | None, limit: int | None) -> dict[str, dict[str, Any]]:
    """The numbers of each task, by lm-eval's names for them."""
    try:
        import lm_eval
        from lm_eval.tasks import TaskManager
    except ImportError:
        raise HeddleError(
            "The library 'lm_eval' is not installed.",
            "It brings the tasks, and asks the questions.",
            f"Install it: {how_to_install('evaluate')}. Perplexity on files needs no library.",
        ) from None
    manager = TaskManager(include_path=None if folder is None else str(folder))
    for name in tasks:
        if name not in manager.all_tasks:
            raise HeddleError(f"lm-eval has no task '{name}'.", "Nothing was run.", nearest(name, manager.all_tasks))
    found = lm_eval.simple_evaluate(
        lm_eval_model(model), tasks=list(tasks), task_manager=manager, limit=limit, bootstrap_iters=0
    )
    return {
        task: {key.removesuffix(",none"): value for key, value in numbers.items() if isinstance(value, int | float)}
        for task, numbers in found["results"].items()
    }
