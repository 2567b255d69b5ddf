"""The command `lws predict`."""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.cli import LightningArgumentParser
from torch.utils.data import DataLoader

from lws_lightning.checkpoints import find_checkpoint
from lws_lightning.data import count_unread
from lws_lightning.methods import MultiTaskMethod, method_from_checkpoint
from lws_lightning.parsing import ALL_TASKS, SOME_BROKEN
from lws_lightning.predict.images import ImageFiles, decoder_for, find_images
from lws_lightning.predict.writer import PredictionWriter

__all__ = ["predict"]

_TRAINER_DEFAULTS = {"logger": False, "enable_checkpointing": False, "enable_model_summary": False, "devices": 1}


def predict(options: argparse.Namespace, trainer_arguments: Sequence[str]) -> None:
    """Runs `lws predict`: writes class probabilities of image files to a CSV file.

    The checkpoint has all that is needed: the networks, the preprocessing, the names of tasks and classes.

    Args:
        options: Those of `predict_parser`.
        trainer_arguments: Options of the Trainer, as on the command line.

    Raises:
        SystemExit: With a message if nothing could be written; with the status 3 if some images could not be read.
    """
    trainer_options = _trainer_options(trainer_arguments)
    try:
        method = method_from_checkpoint(find_checkpoint(options.ckpt_path), options.trust_network)
        tasks = _tasks(method, options.task)
        writer = PredictionWriter(options.out, method.task_names, method.data_record.class_names, options.top_k)
        decoder = decoder_for(method.data_record, method.image_shape)
        images, others = find_images(options.images)
        files = ImageFiles(images, decoder, tasks)
        if options.batch_size < 1:
            raise ValueError(f"--batch_size must be at least 1, but is {options.batch_size}.")
    except (ValueError, OSError) as error:
        raise SystemExit(f"lws predict: {error}") from error
    _note_missing_preprocessing(method)
    if others:
        print(f"note: {count_unread(others)}, such as {others[0]}", file=sys.stderr)
    callbacks = trainer_options.pop("callbacks") or []
    trainer = Trainer(
        **trainer_options, callbacks=[*(callbacks if isinstance(callbacks, list) else [callbacks]), writer]
    )
    if trainer.world_size > 1:
        raise SystemExit("lws predict: works in one process; leave --trainer.devices and --trainer.num_nodes at 1")
    loader = DataLoader(files, batch_size=options.batch_size, collate_fn=files.collate, num_workers=options.num_workers)
    try:
        trainer.predict(method, loader, return_predictions=False)
    except OSError as error:
        raise SystemExit(f"lws predict: cannot write {options.out} ({error})") from error
    for file, reason in writer.broken:
        print(f"lws predict: cannot read {file}: {reason}", file=sys.stderr)
    if writer.images == 0:
        raise SystemExit("lws predict: none of the images can be read; nothing was written")
    print(f"{options.out}: {writer.images:,} images, tasks: {', '.join(method.task_names[task] for task in tasks)}")
    if writer.broken:
        raise SystemExit(SOME_BROKEN)


def _trainer_options(arguments: Sequence[str]) -> dict[str, Any]:
    parser = LightningArgumentParser(prog="lws predict")
    parser.add_lightning_class_args(Trainer, "trainer")
    parser.set_defaults({f"trainer.{name}": value for name, value in _TRAINER_DEFAULTS.items()})
    # jsonargparse 4.49 renamed `instantiate_classes`.
    instantiate = getattr(parser, "instantiate", None) or parser.instantiate_classes
    return dict(instantiate(parser.parse_args(list(arguments))).trainer)


def _tasks(method: MultiTaskMethod, names: Sequence[str]) -> list[int]:
    if list(names) == [ALL_TASKS] and ALL_TASKS not in method.task_names:
        return list(range(len(method.task_names)))
    return list(dict.fromkeys(method.task_index(name) for name in names))


def _note_missing_preprocessing(method: MultiTaskMethod) -> None:
    preprocessing: dict[str, Any] | None = method.data_record.preprocessing
    size = "x".join(map(str, method.image_shape[1:]))
    if preprocessing is None:
        print(
            "note: the checkpoint does not describe the preprocessing of its images; bytes are divided by 255, without "
            f"normalisation, and images that are not {size} pixels are stretched",
            file=sys.stderr,
        )
    elif "mode" not in preprocessing:
        print(f"note: the training resized no images; those that are not {size} pixels are stretched", file=sys.stderr)
