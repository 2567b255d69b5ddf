"""Callbacks: scalars and pictures of sharing and errors, the record in the run folder, a progress bar."""

from lws_lightning.callbacks.error_monitor import ErrorMonitor
from lws_lightning.callbacks.progress import StepProgressBar
from lws_lightning.callbacks.run_record import RunRecord
from lws_lightning.callbacks.sharing_monitor import SharingMonitor
from lws_lightning.callbacks.tags import tags_of

__all__ = ["ErrorMonitor", "RunRecord", "SharingMonitor", "StepProgressBar", "tags_of"]
