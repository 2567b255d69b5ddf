"""What watches a run: scalars and pictures of the sharing, and the record in the run folder."""

from lws_lightning.callbacks.curve import rows_of_csv
from lws_lightning.callbacks.folder import run_folder, write_atomically
from lws_lightning.callbacks.progress import StepProgressBar
from lws_lightning.callbacks.protocol import SharingModule
from lws_lightning.callbacks.run_record import RunRecord
from lws_lightning.callbacks.sharing_monitor import SharingMonitor
from lws_lightning.callbacks.tags import tags_of
from lws_lightning.drawing import copy_letter

__all__ = [
    "RunRecord",
    "SharingModule",
    "SharingMonitor",
    "StepProgressBar",
    "copy_letter",
    "rows_of_csv",
    "run_folder",
    "tags_of",
    "write_atomically",
]
