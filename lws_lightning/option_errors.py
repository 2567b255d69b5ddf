"""Turns jsonargparse's errors about options, which print whole types and values, into one sentence."""

import argparse
import inspect
import re
from collections.abc import Iterator
from pkgutil import resolve_name

import lws_lightning
from lws_lightning.parsing import did_you_mean

__all__ = ["one_line"]

_UNRECOGNISED = re.compile(r"unrecognized arguments: (\S+)")
_KEY = re.compile(r'Parser key "([^"]*)":')
_CLASS = re.compile(r"Problem with given class_path '([^']*)'")
_NOT_ACCEPTED = re.compile(r"Option '([^']*)' is not accepted")
_NO_CLASS = re.compile(r"Expected a dot import path string: (\S+)")
_REQUIRED = re.compile(r"the following arguments are required: (.*)")
_NOISE = re.compile(r"Does not validate|Subtypes:|Errors:|Given value|Expected a <class 'NoneType'>|$")
_MAX_LENGTH = 500


def one_line(message: str, parser: argparse.ArgumentParser) -> str:
    """Returns an error of jsonargparse as a sentence, with the option that was probably meant.

    Args:
        message: What jsonargparse would print, of any number of lines.
        parser: The parser of the command.
    """
    if unknown := _UNRECOGNISED.match(message):
        option = unknown[1].partition("=")[0]
        if not option.startswith("-"):
            return f"{option!r} is not an option; a file is given with --config {option}."
        known = [name for name in parser._option_string_actions if name.startswith("--")]
        return f"there is no option {option}.{did_you_mean(option, [*known, *_nested_options()])}"
    key, owner = _KEY.search(message), _CLASS.search(message)
    section = f"--{key[1]}" if key else ""
    if (rejected := _NOT_ACCEPTED.search(message)) and owner and key:
        option = f"{section}.{rejected[1]}"
        known = [f"{section}.{name}" for name in _constructor_options(owner[1])]
        return f"there is no option {option} of {_short(owner[1])}.{did_you_mean(option, known)}"
    if (required := _REQUIRED.search(message)) and not key:
        options = ", ".join(f"--{name.rpartition('.')[2]}" for name in required[1].split(", "))
        return f"{options} must be given; most easily as a configuration, --config FILE."
    if (missing := _NO_CLASS.search(message)) and section in ("--model", "--data"):
        return f"{section}: there is no class {missing[1]}.{did_you_mean(missing[1], lws_lightning.__all__)}"
    lines = (_KEY.sub("", line).strip().removeprefix("- ") for line in message.splitlines())
    said = dict.fromkeys(line.rstrip(":.") for line in lines if not _NOISE.match(line) and not _CLASS.match(line))
    where = "--" + ".".join(_KEY.findall(message)) + ": " if key else ""
    of_class = f"{_short(owner[1])}: " if owner and where.count(".") == 0 else ""
    text = f"{where}{of_class}{'; '.join(said)}"
    return f"{text[:_MAX_LENGTH]}."


def _nested_options() -> Iterator[str]:
    """Yields the options of all methods and DataModules."""
    for name in lws_lightning.__all__:
        value = getattr(lws_lightning, name)
        for section, base in (("model", lws_lightning.MultiTaskMethod), ("data", lws_lightning.MultiTaskDataModule)):
            if isinstance(value, type) and issubclass(value, base):
                yield from (f"--{section}.{option}" for option in _constructor_options(f"lws_lightning.{name}"))


def _constructor_options(class_path: str) -> list[str]:
    """Returns the arguments of a class and its bases that the command line accepts."""
    try:
        cls = resolve_name(class_path)
    except (ImportError, AttributeError, ValueError):
        return []
    parameters = [
        parameter
        for parent in cls.__mro__
        if "__init__" in vars(parent) and parent.__module__.startswith(cls.__module__.partition(".")[0])
        for parameter in inspect.signature(parent.__init__).parameters.values()
    ]
    hidden = {"self", "design", "task_names", "num_classes", "image_shape", "validation_prefix"}
    variadic = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return list(dict.fromkeys(p.name for p in parameters if p.kind not in variadic and p.name not in hidden))


def _short(class_path: str) -> str:
    return class_path.rpartition(".")[2]
