"""Executes one run of a sweep: `python -m lws_lightning.sweep.worker FOLDER`.

Trains from the newest checkpoint, or from the start without one, and then tests the final networks. The worker holds a
lock on the folder until it exits. So two sweeps of the same folder share the runs, and a worker that outlives a killed
sweep is waited for instead of started twice.
"""

import os
import signal
import sys
from pathlib import Path

from filelock import FileLock, Timeout

from lws_lightning.checkpoints import newest_checkpoint
from lws_lightning.output import escape_unencodable_output
from lws_lightning.records import find_run
from lws_lightning.sweep.plan import CONFIG_FILE

__all__ = ["work"]


def work(folder: Path, tested: Path | None = None) -> None:
    """Trains and tests the run in a folder with a `run.yaml`, as far as this is not done already.

    Args:
        folder: Of the run.
        tested: The checkpoint to test; None: the newest one.
    """
    escape_unencodable_output()
    # Background jobs of a shell inherit that SIGINT is ignored; the sweep stops its runs by this signal.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        print("Another process is working on this run; waiting for it.", flush=True)
        lock.acquire()
    with lock:
        if (run := find_run(folder)) is None or run.status != "finished":
            checkpoint = newest_checkpoint(folder)
            print(f"Process {os.getpid()} trains from {checkpoint or 'the start'}.", flush=True)
            _run_lws("fit", folder, checkpoint)
        run, checkpoint = find_run(folder), tested or newest_checkpoint(folder, resumable=False)
        if run is not None and run.status == "finished" and run.test is None:
            if checkpoint is None:
                raise SystemExit("the run left no checkpoint; let a ModelCheckpoint save one at the last step")
            _run_lws("test", folder, checkpoint)


def _run_lws(subcommand: str, folder: Path, checkpoint: Path | None) -> None:
    from lws_lightning.cli import main

    sys.argv[1:] = [subcommand, "--config", str(folder / CONFIG_FILE)]
    if checkpoint is not None:
        sys.argv += ["--ckpt_path", str(checkpoint)]
    if subcommand != "fit":
        sys.argv += ["--trainer.logger", "false"]
    main()


if __name__ == "__main__":
    work(Path(sys.argv[1]))
