"""From Python: try, prove, launch and train a job, and let its model write."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from heddle.api.given import job_of, path_of

if TYPE_CHECKING:
    from heddle.spec.job import Job
    from heddle.training.dry_run.dry_run import DryRun
    from heddle.training.loop import Result
    from heddle.training.prove.prove import Proof
    from heddle.training.selftest import SelftestVerdict


def train(
    job: Job | str | Path,
    *,
    resume: bool = False,
    auto_resume: bool = False,
    trace: bool = False,
    allow_changes: bool = False,
    on_step: Callable[[dict[str, Any]], object] | None = None,
    on_evaluation: Callable[[dict[str, Any]], object] | None = None,
) -> Result | None:
    """Train a job, on as many processes as its plan needs; a job without a plan is planned first.

    In a script that starts several processes, call it under `if __name__ == "__main__":`.

    Args:
        job: what to train.
        resume: continue from the newest checkpoint.
        auto_resume: continue if the run has begun, and else start it.
        trace: record what every rank does.
        allow_changes: resume with other settings: another corpus, batch, seed, …
        on_step: called with the numbers of every step, as metrics.jsonl has them, by the first rank.
        on_evaluation: called with `step` and `validation_loss` of every evaluation.

    Returns:
        How the run ended. None on all but the first rank of a launcher such as torchrun.
    """
    from heddle.training.loggers import Functions
    from heddle.training.loop import train as run
    from heddle.training.planned import plan_to_train

    planned = plan_to_train(job_of(job), resume or auto_resume)[0]
    functions = None if on_step is None and on_evaluation is None else Functions(on_step, on_evaluation)
    return run(
        planned,
        resume=resume,
        auto_resume=auto_resume,
        trace=trace,
        allow_changes=allow_changes,
        functions=functions,
    )


def dry_run(job: Job | str | Path) -> DryRun:
    """Run one step of every kind of rank in a job's plan, with meta tensors: nothing is allocated.

    What would fail in training is a `HeddleError` here; the result says what each rank would hold, send and receive.
    """
    from heddle.training.dry_run.dry_run import dry_run as try_job
    from heddle.training.planned import plan_to_train

    return try_job(plan_to_train(job_of(job), dry_run=True)[0])


def prove(job: Job | str | Path, steps: int = 20) -> Proof | None:
    """Check that a job's plan trains like one device: losses and every gradient, on a shrunken model.

    Args:
        job: what to prove; a job without a plan is planned first.
        steps: how many steps to train.

    Returns:
        What was tried, and the result. None on all but the first rank of a launcher.
    """
    from heddle.training.prove.prove import prove as run_proof

    return run_proof(job_of(job), steps)


def generate(
    run: str | Path,
    prompt: str = "",
    *,
    tokens: int = 200,
    temperature: float = 0.8,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
    tiles: bool = False,
    weights: Literal["float32", "bfloat16", "int8", "int4"] = "float32",
    chat: bool = False,
) -> str:
    """Let a trained model continue a text, or answer a question.

    Args:
        run: a run's folder, a checkpoint or a Hugging Face folder.
        prompt: the text.
        tokens: how many to add, at most.
        temperature: 0 always takes the likeliest token.
        top_k: sample from this many likeliest tokens; 0: from all.
        top_p: sample from the likeliest tokens that together reach this probability.
        seed: the same seed gives the same text.
        tiles: run on CPU cores tile by tile.
        weights: how tiles keep weights to decode with; `heddle.tiles.generate.weight_error` says how far off they are.
        chat: the prompt is a question, which the chat template writes; the answer ends where the template ends one.

    Returns:
        The text that was added.
    """
    import warnings

    from heddle.api.text import TextModel

    where = path_of(run, "a run's folder, a checkpoint or a Hugging Face folder")
    model = TextModel(
        where, lambda words: warnings.warn(words, stacklevel=4), weights if tiles or weights != "float32" else None
    )
    ids, ending = model.asked(prompt) if chat else (model.encode(prompt), [])
    added = model.continued(ids, tokens, ending, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    return model.tokenizer.decode(list(added))


def launch(
    path: str | Path,
    launcher: Literal["slurm", "torchrun", "mpi", "kubernetes", "kubeflow", "skypilot"],
    *,
    changes: Iterable[str] = (),
    name: str | None = None,
    time: str | None = None,
    partition: str | None = None,
    account: str | None = None,
    cpus: int | None = None,
    mem: str | None = None,
    port: int | None = None,
    image: str | None = None,
    volume: str | None = None,
    rdma: str | None = None,
    accelerator: str | None = None,
) -> str:
    """What starts a job on a cluster: a script, commands or a manifest. Nothing is started.

    A job without a plan is planned first; a comment says which plan was chosen.

    Args:
        path: the job file, which every process reads.
        launcher: "slurm", "torchrun", "mpi", "kubernetes" (a JobSet), "kubeflow" (a TrainJob) or "skypilot".
        changes: keys to change, as `--set` does.
        name: of the run's folder, instead of the job's.
        time: Slurm's time limit, such as "1-12:00:00".
        partition: Slurm's partition.
        account: Slurm's account.
        cpus: per process; 8 with GPUs and 1 without, if left out.
        mem: memory per node, such as "500G"; all of it if left out.
        port: on the first node, where processes meet.
        image: container image with Heddle; Kubernetes needs one, Slurm runs it by its plugin pyxis.
        volume: Kubernetes' claim of the volume with the job and its runs.
        rdma: Kubernetes' network adapters per node, such as "rdma/ib=8".
        accelerator: what SkyPilot calls the GPU, if not as the job's cluster says.

    >>> import heddle
    >>> script = heddle.launch("examples/plans/gpt3-175b.toml", "slurm", partition="gpu")
    >>> "#SBATCH --partition=gpu" in script.splitlines()
    True
    """
    from heddle.runs.launch_script import LaunchRequest, launch_script

    request = LaunchRequest(
        changes=list(changes),
        name=name,
        time=time,
        partition=partition,
        account=account,
        cpus=cpus,
        mem=mem,
        port=port,
        image=image,
        volume=volume,
        rdma=rdma,
        accelerator=accelerator,
    )
    return launch_script(path_of(path, "a job file"), launcher, request).text


def selftest(
    folder: str | Path = "selftest",
    *,
    processes: int | None = None,
    plan: Job | str | Path | None = None,
    quick: bool = False,
) -> SelftestVerdict | None:
    """Test everything on this machine's devices in a few minutes: prove, profile, train, resume, kill -9.

    Args:
        folder: for the test's files and its verdict.
        processes: how many; one per GPU, or two on CPUs, if left out.
        plan: a job whose plan is proved, too.
        quick: leave out the proofs of single mechanisms, such as ZeRO levels.

    Returns:
        What passed. None on all but the first rank of a launcher.
    """
    from heddle.planning.best import with_best_plan
    from heddle.spec.this_machine import this_machine
    from heddle.training.selftest import selftest as run

    here = this_machine()
    own = None if plan is None else with_best_plan(job_of(plan))[0]
    return run(Path(folder), processes or (2 if here.device.host else here.devices), own, quick)
