"""Does one run of a sweep: `python -m lws_lightning.sweep.worker FOLDER`.

Trains from the newest checkpoint, or from the start without one, and then tests the final networks. The worker holds a
lock on the folder as long as it lives. So two sweeps of the same folder share the runs, and what a killed sweep has
left running is waited for, not started twice.
"""

import os
import signal
import sys
from pathlib import Path

from filelock import FileLock, Timeout

from lws_lightning.checkpoints import newest_checkpoint
from lws_lightning.output import print_all_names
from lws_lightning.records import find_run
from lws_lightning.sweep.plan import CONFIG_FILE

__all__ = ["work"]


def work(folder: Path) -> None:
    """Does what is left to do in a run's folder.

    Args:
        folder: Holds `run.yaml`.
    """
    print_all_names()
    # A shell's background job ignores Ctrl-C and hands that down; the sweep stops its runs by this signal.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        print("Another process is at work on this run; waiting for it.", flush=True)
        lock.acquire()
    with lock:
        if (run := find_run(folder)) is None or run.status != "finished":
            checkpoint = newest_checkpoint(folder)
            print(f"Process {os.getpid()} trains from {checkpoint or 'the start'}.", flush=True)
            _lws("fit", folder, checkpoint)
        run, checkpoint = find_run(folder), newest_checkpoint(folder, resumable=False)
        if run is not None and run.status == "finished" and run.test is None:
            if checkpoint is None:
                raise SystemExit("the run left no checkpoint; let a ModelCheckpoint save one at the last step")
            _lws("test", folder, checkpoint)


def _lws(subcommand: str, folder: Path, checkpoint: Path | None) -> None:
    from lws_lightning.cli import main

    sys.argv[1:] = [subcommand, "--config", str(folder / CONFIG_FILE)]
    if checkpoint is not None:
        sys.argv += ["--ckpt_path", str(checkpoint)]
    if subcommand != "fit":
        sys.argv += ["--trainer.logger", "false"]
    main()


if __name__ == "__main__":
    work(Path(sys.argv[1]))
