"""The commands `lws fit`, `validate` and `test`: LightningCLI for the methods and data sets of this package."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ProgressBar
from lightning.pytorch.cli import ArgsType, LightningArgumentParser, LightningCLI, SaveConfigCallback

# Imported as a whole so that configurations can name their classes without a package.
import lws_lightning.callbacks
import lws_lightning.data
import lws_lightning.methods  # noqa: F401
from lws_lightning import __version__
from lws_lightning.callbacks import ErrorMonitor, RunRecord, StepProgressBar
from lws_lightning.checkpoints import find_checkpoint, read_checkpoint_info, run_folder_of
from lws_lightning.data import MultiTaskDataModule
from lws_lightning.methods import MultiTaskMethod, check_trainer
from lws_lightning.option_errors import one_line
from lws_lightning.records import write_atomically
from lws_lightning.refusal import refusal
from lws_lightning.run_folders import claimed_folder, fixed_folder, overwrite_refusal, run_folder
from lws_lightning.run_summary import run_summary
from lws_lightning.sharing import keep_freed_memory
from lws_lightning.usage import LIGHTNING_COMMANDS

__all__ = ["LWSCLI", "run_lightning"]

_LINKED_FROM_DATA = ("task_names", "num_classes", "image_shape", "validation_prefix")
_HARDWARE = ("accelerator", "devices", "num_nodes", "strategy", "precision")
_NO_CHECKPOINT = "give the checkpoint to evaluate: --ckpt_path"
_LIGHTNING_ALIASES = ("best", "last", "hpc")
"""The values of `ckpt_path` that Lightning accepts besides paths."""


class SaveFitConfig(SaveConfigCallback):
    """Saves the configuration of a training run, but not of a test."""

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Saves `config.yaml` to the run folder, if the run has one."""
        folder = run_folder(trainer) if stage == "fit" else None
        if folder is not None and trainer.is_global_zero:
            write_atomically(folder / self.config_filename, self.parser.dump(self.config, skip_none=False))


class OneLineParser(LightningArgumentParser):
    """Lightning's parser, whose errors are one line."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Prints the error and exits with status 2."""
        if not self.exit_on_error:  # within jsonargparse
            super().error(message, ex)
        parser = getattr(ex, "subcommand_parser", None) or self
        command = parser.prog.replace(" [options]", "")
        self.exit(2, f"{command}: {one_line(message, parser)} Options: {command} --help\n")


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

    def after_fit(self) -> None:
        """Says how the run ended."""
        self._summarise(claimed_folder(self.trainer), self.model.validation_prefix)

    def after_test(self) -> None:
        """Says how the tested networks are."""
        self._summarise(run_folder_of(Path(self._require_checkpoint("test"))), "test")

    def _summarise(self, folder: Path | None, prefix: str) -> None:
        if self.trainer.is_global_zero:
            print("\n".join(run_summary(self.model, self.model.evaluations.get(prefix), folder)), flush=True)

    def before_validate(self) -> None:
        """Refuses to evaluate untrained networks."""
        self._require_checkpoint("validate")

    def before_test(self) -> None:
        """Refuses to test untrained networks, and adds the result to the run's record."""
        folder = run_folder_of(Path(self._require_checkpoint("test")))
        callbacks = self.trainer.callbacks  # type: ignore[attr-defined]
        for kind in (RunRecord, ErrorMonitor) if folder is not None else ():
            if not any(isinstance(c, kind) for c in callbacks):
                callbacks.append(kind(run_dir=str(folder)))

    def _require_checkpoint(self, subcommand: str) -> str:
        path = self.config[subcommand].ckpt_path
        if not path:
            raise SystemExit(f"lws {subcommand}: {_NO_CHECKPOINT} RUN")
        return str(path)


def run_lightning(arguments: list[str], called_from_python: bool) -> None:
    """Runs a command of LightningCLI.

    Args:
        arguments: The command and its options.
        called_from_python: Whether they are not those of the command line.

    Raises:
        SystemExit: If they are wrong, with status 2 or a message.
    """
    _refuse_linked_options(arguments)
    arguments = _add_run_config(arguments)
    if not called_from_python:  # LightningCLI would warn if it got both args and a command line
        sys.argv[1:] = arguments
    cli = _with_parser_of(arguments[0])
    usages = {name: f"lws {name} [--config FILE] [--OPTION VALUE ...]" for name in LIGHTNING_COMMANDS}
    cli(
        MultiTaskMethod,
        MultiTaskDataModule,
        subclass_mode_model=True,
        subclass_mode_data=True,
        auto_configure_optimizers=False,
        save_config_callback=SaveFitConfig,
        seed_everything_default=0,
        parser_class=OneLineParser,
        parser_kwargs={
            "prog": "lws",
            "version": __version__,
            **{name: {"usage": usage} for name, usage in usages.items() if name in cli.subcommands()},
        },
        args=arguments if called_from_python else None,
    )


def _with_parser_of(name: str) -> type[LWSCLI]:
    """Returns the CLI with the parser of one command; to make those of all four takes up to a second."""
    commands = LWSCLI.subcommands()
    if name not in commands:
        return LWSCLI

    class OneCommand(LWSCLI):
        @staticmethod
        def subcommands() -> dict[str, set[str]]:
            return {name: commands[name]}

    return OneCommand


def _refuse_linked_options(arguments: Sequence[str]) -> None:
    for name in _LINKED_FROM_DATA:
        for option in (f"--model.{name}", f"--model.init_args.{name}"):
            if any(argument == option or argument.startswith(f"{option}=") for argument in arguments):
                raise SystemExit(f"lws: {option} cannot be given: it comes from the data (see --data).")


def _add_run_config(arguments: list[str]) -> list[str]:
    """Adds the `config.yaml` of the checkpoint's run if a command line has a checkpoint but no configuration."""
    subcommand, *options = arguments
    names = {option.partition("=")[0] for option in options}
    if subcommand not in LIGHTNING_COMMANDS or names & {"-h", "--help"}:
        return arguments
    path = _option_value("--ckpt_path", options)
    configured = bool(names & {"-c", "--config"}) or {"--model", "--data"} <= names
    if path is None and subcommand != "fit" and not configured:
        meant = f" {options[0]}" if options and not options[0].startswith("-") else " RUN (its folder, or a checkpoint)"
        raise SystemExit(f"lws {subcommand}: {_NO_CHECKPOINT}{meant}")
    if path is None or (configured and _is_lightning_alias(path)):
        return arguments
    checkpoint = find_checkpoint(path, resumable=subcommand == "fit")
    if configured:
        return arguments
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
