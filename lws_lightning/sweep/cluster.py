"""Runs a sweep on a cluster, through submitit."""

import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lws_lightning.sweep.display import Display
from lws_lightning.sweep.local import worker_command
from lws_lightning.sweep.outcome import LOG_FILE, Outcome, outcome_of
from lws_lightning.sweep.plan import SweepRun

__all__ = ["RunJob", "run_on_cluster"]

_POLL_SECONDS = 1.0


class RunJob:
    """One run as a job; if the cluster preempts it, submitit requeues it and the run resumes."""

    def __init__(self, run: SweepRun) -> None:
        self.run = run

    def __call__(self) -> int:
        """Runs the worker; returns its exit status."""
        with (self.run.folder / LOG_FILE).open("ab") as log:
            return subprocess.run(
                worker_command(self.run), stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False
            ).returncode

    def checkpoint(self) -> Any:
        """Returns the same job for submitit to requeue; the run resumes from its folder."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def run_on_cluster(
    runs: Sequence[SweepRun], cluster: str, folder: Path, options: Mapping[str, Any], display: Display
) -> list[Outcome]:
    """Submits runs, one job each, and waits for them.

    Args:
        runs: The runs.
        cluster: `slurm`, or `local` for processes on this machine.
        folder: For submitit's files; every machine must have access to it.
        options: For submitit's executor, such as `timeout_min`, `slurm_partition`, `slurm_array_parallelism`.
        display: Shows the progress.

    Returns:
        How each run ended.

    Raises:
        ValueError: If submitit is not installed or refuses the cluster or an option.
        KeyboardInterrupt: On Ctrl-C; jobs on a cluster continue, those on this machine are cancelled.
    """
    try:
        import submitit
    except ImportError as error:
        raise ValueError("--cluster needs submitit: pip install 'lws-lightning[cluster]'.") from error
    try:
        executor = submitit.AutoExecutor(folder=folder, cluster=cluster)
        executor.update_parameters(name="lws", **options)
    except (NameError, RuntimeError, TypeError, ValueError, AssertionError) as error:
        raise ValueError(f"--cluster {cluster}: {error}") from error
    with executor.batch():
        jobs = [executor.submit(RunJob(run)) for run in runs]
    started = time.time()
    pending = dict(zip(jobs, runs, strict=True))
    display.say(f"Submitted {len(jobs)} jobs to {cluster}, with their files in {folder}.")
    outcomes = []
    try:
        while pending:
            for job in [job for job in pending if job.done()]:
                outcomes.append(outcome_of(pending.pop(job), started))
                display.say(outcomes[-1].text)
            display.refresh([run for job, run in pending.items() if job.state.upper() == "RUNNING"])
            time.sleep(_POLL_SECONDS)
    except KeyboardInterrupt:
        if cluster == "local":
            for job in pending:
                job.cancel()
        raise
    return outcomes
