"""The command `lws`: LightningCLI for the methods and data sets of this package, and the other commands."""

import io
import logging
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ProgressBar
from lightning.pytorch.cli import ArgsType, LightningArgumentParser, LightningCLI, SaveConfigCallback

# Imported as a whole so that configurations can name their classes without a package.
import lws_lightning.callbacks
import lws_lightning.data
import lws_lightning.methods  # noqa: F401
from lws_lightning import __version__
from lws_lightning.callbacks import RunRecord, StepProgressBar
from lws_lightning.checkpoints import find_checkpoint, read_checkpoint_info, run_folder_of
from lws_lightning.data import MultiTaskDataModule
from lws_lightning.export import export
from lws_lightning.methods import MultiTaskMethod, check_trainer
from lws_lightning.output import escape_unencodable_output
from lws_lightning.predict import predict
from lws_lightning.records import fixed_folder, overwrite_refusal, run_folder, write_atomically
from lws_lightning.refusal import refusal
from lws_lightning.results import report
from lws_lightning.sharing import keep_freed_memory
from lws_lightning.sweep import sweep

__all__ = ["LWSCLI", "main"]

_LINKED_FROM_DATA = ("task_names", "num_classes", "image_shape", "validation_prefix")
_WITH_CHECKPOINT = ("fit", "validate", "test")
_HARDWARE = ("accelerator", "devices", "num_nodes", "strategy", "precision")
_NO_CHECKPOINT = "give the checkpoint to evaluate: --ckpt_path FILE"
_LIGHTNING_ALIASES = ("best", "last", "hpc")
"""The values of `ckpt_path` that Lightning accepts besides paths."""


class SaveFitConfig(SaveConfigCallback):
    """Saves the configuration of a training run, but not of a test."""

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Saves `config.yaml` to the run folder, if the run has one."""
        folder = run_folder(trainer) if stage == "fit" else None
        if folder is not None and trainer.is_global_zero:
            write_atomically(folder / self.config_filename, self.parser.dump(self.config, skip_none=False))


class LWSCLI(LightningCLI):
    """LightningCLI that passes the properties of the data on to the method."""

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Links the method's arguments that come from the data."""
        for name in _LINKED_FROM_DATA:
            parser.link_arguments(f"data.{name}", f"model.init_args.{name}", apply_on="instantiate")

    def parse_arguments(self, parser: LightningArgumentParser, args: ArgsType) -> None:
        """Parses the command line, and hides the checkpoint from LightningCLI until the configuration is complete.

        LightningCLI would let the checkpoint's hyper-parameters override the command line. Here given options are
        obeyed or refused with an error (methods/resume.py), and the others come from the run's `config.yaml`.
        """
        super().parse_arguments(parser, args)
        subcommand = self.config["subcommand"]
        path, self.config[subcommand].ckpt_path = self.config[subcommand].ckpt_path, None
        if path and not _is_lightning_alias(path):
            path = str(find_checkpoint(path, resumable=subcommand == "fit"))
        self._checkpoint = path

    def before_instantiate_classes(self) -> None:
        """Refuses configured values that come from the data."""
        self.config[self.config["subcommand"]].ckpt_path = self._checkpoint
        given = self._get(self.config, "model").get("init_args") or {}
        for name in _LINKED_FROM_DATA:
            if given.get(name) not in (None, "val"):  # "val" is the default of validation_prefix
                raise SystemExit(f"lws: model.init_args.{name} cannot be given: it comes from the data.")

    def instantiate_trainer(self, **options: Any) -> Trainer:
        """Adds a progress bar over the whole run, unless the user has configured or disabled one."""
        config = self._get(self.config_init, "trainer")
        if self.subcommand != "fit" and config.get("logger") is None:
            options["logger"] = False  # evaluations are printed and recorded; a log folder would only be clutter
        callbacks = list(config.get("callbacks") or [])
        if config.get("enable_progress_bar") is not False and not any(isinstance(c, ProgressBar) for c in callbacks):
            callbacks.append(StepProgressBar())
        try:
            return super().instantiate_trainer(callbacks=callbacks, **options)
        except Exception as error:
            given = [
                f"trainer.{name} {config[name]}" for name in _HARDWARE if config.get(name) not in (None, "auto", 1)
            ]
            if (message := refusal(error)) is None or not given:
                raise
            raise ValueError(f"{', '.join(given)}: {message}") from error

    def before_fit(self) -> None:
        """Refuses options that cannot work or would overwrite a finished run, before any process is started."""
        check_trainer(self.trainer)
        if self.trainer.strategy.root_device.type == "cpu":
            keep_freed_memory()
        folder, path = fixed_folder(self.trainer), self.config["fit"].ckpt_path
        if folder is None or (path and _is_lightning_alias(path)):
            return
        info = read_checkpoint_info(Path(path)) if path else None
        if reason := overwrite_refusal(folder, info.step if info else 0, info.started if info else None):
            raise ValueError(reason)

    def before_validate(self) -> None:
        """Refuses to evaluate untrained networks."""
        self._require_checkpoint("validate")

    def before_test(self) -> None:
        """Refuses to test untrained networks, and adds the result to the run's record."""
        folder = run_folder_of(Path(self._require_checkpoint("test")))
        callbacks = self.trainer.callbacks  # type: ignore[attr-defined]
        if folder is not None and not any(isinstance(c, RunRecord) for c in callbacks):
            callbacks.append(RunRecord(run_dir=str(folder)))

    def _require_checkpoint(self, subcommand: str) -> str:
        path = self.config[subcommand].ckpt_path
        if not path:
            raise SystemExit(f"lws {subcommand}: {_NO_CHECKPOINT}")
        return str(path)


def main(args: Sequence[str] | None = None) -> None:
    """Runs `lws`.

    Args:
        args: Arguments instead of those of the command line.

    Raises:
        SystemExit: On an error that the user can fix, with its message; after a signal with 128 + its number.
    """
    escape_unencodable_output()
    arguments = list(sys.argv[1:] if args is None else args)
    try:
        _run(arguments, called_from_python=args is not None)
    except Exception as error:
        message = refusal(error)
        if message is None:
            raise
        raise SystemExit(f"lws {arguments[0]}: {message}") from error
    except SystemExit as error:
        if isinstance(error.__context__, KeyboardInterrupt):  # Lightning exits with 1 on Ctrl-C
            raise SystemExit(128 + signal.SIGINT) from error
        raise


def _run(arguments: list[str], called_from_python: bool) -> None:
    if arguments[:1] == ["report"]:
        report(arguments[1:])
        return
    _filter_warnings()
    if arguments[:1] == ["export"]:
        export(arguments[1:])
        return
    if arguments[:1] == ["predict"]:
        predict(arguments[1:])
        return
    if arguments[:1] == ["sweep"]:
        sweep(arguments[1:], resolve_config)
        return
    _refuse_linked_options(arguments)
    arguments = _add_run_config(arguments)
    if not called_from_python:  # LightningCLI would warn if it got both args and a command line
        sys.argv[1:] = arguments
    LWSCLI(
        MultiTaskMethod,
        MultiTaskDataModule,
        subclass_mode_model=True,
        subclass_mode_data=True,
        auto_configure_optimizers=False,
        save_config_callback=SaveFitConfig,
        seed_everything_default=0,
        parser_kwargs={
            "prog": "lws",
            "version": __version__,
            "description": "Learned Weight Sharing. Besides the subcommands below: lws sweep CONFIG... --seeds 0-9 "
            "trains many runs, lws report FOLDER... compares them, and lws export writes a task's network as a plain "
            "model file.",
            # Without these, the error about an option comes after fifty lines of options.
            **{name: {"usage": f"lws {name} [--config FILE] [--OPTION VALUE ...]"} for name in _WITH_CHECKPOINT},
        },
        args=arguments if called_from_python else None,
    )


def resolve_config(path: Path, options: Sequence[str]) -> Mapping[str, Any]:
    """Reads a configuration file as `lws fit` does.

    Args:
        path: The file.
        options: Options of the command line.

    Returns:
        Every option, with its value.

    Raises:
        ValueError: If `lws fit` would refuse them.
    """
    stdout, stderr, old_arguments = io.StringIO(), io.StringIO(), sys.argv[1:]
    sys.argv[1:] = ["fit", "--config", str(path), *options, "--print_config"]
    try:
        with redirect_stdout(stdout), redirect_stderr(stderr):
            main()
    except SystemExit as error:
        if error.code not in (0, None):
            message = error.code if isinstance(error.code, str) else stderr.getvalue().strip()
            raise ValueError(f"{path}: {message}") from error
    finally:
        sys.argv[1:] = old_arguments
    config: Mapping[str, Any] = yaml.safe_load(stdout.getvalue())
    return config


def _filter_warnings() -> None:
    """Hides warnings of Lightning that do not concern users of this command."""
    # Lightning's own use of torch; and images in memory need no loader processes.
    warnings.filterwarnings("ignore", message=r".*isinstance\(treespec, LeafSpec\).*")
    warnings.filterwarnings("ignore", message=r".*does not have many workers.*")
    # Every checkpoint is saved after a complete step, as this advice asks; logged values are the same on all ranks.
    warnings.filterwarnings("ignore", message="Using ModelCheckpoint with manual optimization")
    warnings.filterwarnings("ignore", message=r"It is recommended to use `self.log\(.*sync_dist=True")
    # A resumed run has a new folder.
    warnings.filterwarnings("ignore", message=r"The dirpath has changed.*")
    # If a thread cannot write TensorBoard's file, the run reports the error, too.
    threading.excepthook = partial(_thread_excepthook, threading.excepthook)
    logging.getLogger("lightning.pytorch.utilities.rank_zero").addFilter(lambda r: "litlogger" not in r.getMessage())


def _thread_excepthook(default: Callable[[threading.ExceptHookArgs], Any], error: threading.ExceptHookArgs) -> None:
    if not isinstance(error.exc_value, OSError):
        default(error)


def _refuse_linked_options(arguments: Sequence[str]) -> None:
    for name in _LINKED_FROM_DATA:
        for option in (f"--model.{name}", f"--model.init_args.{name}"):
            if any(argument == option or argument.startswith(f"{option}=") for argument in arguments):
                raise SystemExit(f"lws: {option} cannot be given: it comes from the data (see --data).")


def _add_run_config(arguments: list[str]) -> list[str]:
    """Adds the `config.yaml` of the checkpoint's run if a command line has a checkpoint but no configuration."""
    if not arguments or arguments[0] not in _WITH_CHECKPOINT:
        return arguments
    subcommand, *options = arguments
    names = {option.partition("=")[0] for option in options}
    path = _option_value("--ckpt_path", options)
    if names & {"-c", "--config", "-h", "--help"} or {"--model", "--data"} <= names:
        return arguments
    if path is None:
        if subcommand != "fit":
            raise SystemExit(f"lws {subcommand}: {_NO_CHECKPOINT}")
        return arguments
    checkpoint = find_checkpoint(path, resumable=subcommand == "fit")
    folder = run_folder_of(checkpoint)
    if folder is None:
        raise SystemExit(f"lws {subcommand}: no config.yaml found for the run of {checkpoint}; give --config FILE")
    added = ["--config", str(folder / "config.yaml")]
    if subcommand != "fit":
        added += ["--trainer.logger", "false"]
    return [subcommand, *added, *options]


def _is_lightning_alias(path: str) -> bool:
    return path in _LIGHTNING_ALIASES or ":" in path.partition("/")[0]


def _option_value(option: str, arguments: Sequence[str]) -> str | None:
    for number, argument in enumerate(arguments):
        if argument.startswith(f"{option}="):
            return argument.split("=", 1)[1]
        if argument == option and number + 1 < len(arguments):
            return arguments[number + 1]
    return None
