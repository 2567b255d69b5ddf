"""Executes one run of a comparison: `python -m lws_lightning.compare.worker FOLDER`.

As a run of a sweep, but what is tested is the checkpoint with the lowest validation error.
"""

import json
import sys
import time
from pathlib import Path

from lws_lightning.records import write_atomically
from lws_lightning.sweep.worker import work

__all__ = ["SECONDS_FILE"]

SECONDS_FILE = "seconds.json"
"""How long the whole process of a run took, in its folder."""

_STARTED = time.monotonic()


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    work(folder, tested=folder / "checkpoints" / "best.ckpt")
    write_atomically(folder / SECONDS_FILE, json.dumps({"seconds": time.monotonic() - _STARTED}))
