"""Exports one stand-alone model file for each task: `lws export`."""

from lws_lightning.export.command import export
from lws_lightning.export.formats import FORMATS, MissingPackageError
from lws_lightning.export.names import file_names
from lws_lightning.export.network import task_network
from lws_lightning.export.task import Exported, ExportError, export_task

__all__ = [
    "FORMATS",
    "ExportError",
    "Exported",
    "MissingPackageError",
    "export",
    "export_task",
    "file_names",
    "task_network",
]
