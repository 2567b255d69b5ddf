"""The command `lws export`."""

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path

from lws_lightning.checkpoints import find_checkpoint, run_folder_of
from lws_lightning.export.formats import FORMATS, MissingPackageError
from lws_lightning.export.names import file_names
from lws_lightning.export.task import ExportError, export_task
from lws_lightning.methods import MultiTaskMethod, method_from_checkpoint
from lws_lightning.parsing import ALL_TASKS
from lws_lightning.run_summary import decisions_of

__all__ = ["export"]


def export(options: argparse.Namespace) -> None:
    """Runs `lws export`: writes the networks of one or all tasks of a checkpoint as stand-alone model files.

    Args:
        options: Those of `export_parser`.

    Raises:
        SystemExit: If nothing could be written; the message says why.
    """
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    try:
        FORMATS[options.format].require_packages(options.format)  # before a large checkpoint is read
        checkpoint = find_checkpoint(options.ckpt_path)
        method = method_from_checkpoint(checkpoint, options.trust_network)
        tasks = _tasks(method, options.task)
        paths = _paths(method, tasks, options.format, options.out, checkpoint)
        if (decisions := decisions_of(method)) is not None and not decisions.settled:
            print(f"warning: the search has {decisions}; which weights the tasks share is partly chance")
        if method.data_record.preprocessing is None:
            print("note: the checkpoint does not describe the preprocessing of its images, so the files do not either")
        for task, path in zip(tasks, paths, strict=True):
            exported = export_task(method, task, options.format, path, checkpoint)
            print(
                f"{path}: task {exported.task!r}, {exported.parameters:,} parameters, logits equal to the "
                f"checkpoint's within {exported.difference:.1e}",
                flush=True,
            )
            if not exported.has_code and options.format in ("safetensors", "state_dict"):
                print("note: this network has modules that are not torch.nn's, so the file has no code to rebuild it")
    except (ValueError, OSError, NotImplementedError, MissingPackageError, ExportError) as error:
        raise SystemExit(f"lws export: {error}") from error


def _tasks(method: MultiTaskMethod, name: str | None) -> list[int]:
    if name is None or (name == ALL_TASKS and ALL_TASKS not in method.task_names):
        return list(range(len(method.task_names)))
    return [method.task_index(name)]


def _paths(
    method: MultiTaskMethod, tasks: Sequence[int], format: str, out: Path | None, checkpoint: Path
) -> list[Path]:
    suffix = FORMATS[format].suffix
    if out is not None and len(tasks) == 1 and not out.is_dir():
        return [out]
    if out is not None and out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is a file, but there are {len(tasks)} tasks; give a folder.")
    if out is None:
        parent = checkpoint.parent
        without_config = parent.parent if parent.name == "checkpoints" else parent
        out = (run_folder_of(checkpoint) or without_config) / "exported"
    names = file_names(method.task_names)  # of all tasks, so that a task's file always has the same name
    return [out / f"{names[task]}{suffix}" for task in tasks]
