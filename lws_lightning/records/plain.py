"""Values that JSON holds, and dataclasses that are made of them and become them again."""

import dataclasses
import math
from collections.abc import Collection, Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Self, get_args, get_origin, get_type_hints

import numpy as np
import torch

__all__ = ["Record", "to_plain"]

_MAX_NUMBERS = 1000


class Record:
    """Base of dataclasses that go to JSON and back."""

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as plain values."""
        names = (field.name for field in dataclasses.fields(self))  # type: ignore[arg-type]
        return {name: to_plain(getattr(self, name)) for name in names}

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Makes an instance from what `to_json` returned, or from what JSON makes of it.

        Raises:
            ValueError: If a field is missing or of another type; the message names it.
        """
        made: Self = _read(cls, value, "")
        return made


def to_plain(value: Any) -> Any:
    """Turns a value into what JSON can hold.

    Numbers that are not finite become `"nan"`, `"inf"` or `"-inf"`, which `float` reads; functions and classes
    become their import path; what has no plain form becomes its `repr`, cut at 200 characters.
    """
    if value is None or (isinstance(value, bool | int | str) and not isinstance(value, Enum)):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, np.generic | np.ndarray | torch.Tensor):
        count = value.numel() if isinstance(value, torch.Tensor) else value.size
        return to_plain(value.tolist()) if count <= _MAX_NUMBERS else f"{type(value).__name__} {tuple(value.shape)}"
    if isinstance(value, Record):
        return value.to_json()
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, Collection) and not isinstance(value, bytes):
        return [to_plain(item) for item in value]
    if hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    return repr(value)[:200]


def _read(kind: Any, value: Any, name: str) -> Any:
    """Makes a value of a type (a dataclass, `list`, `dict`, `Literal`, `X | None` or a simple one) of plain values."""
    outer, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if outer is UnionType:
        (kind,) = (each for each in inner if each is not NoneType)
        return None if value is None else _read(kind, value, name)
    if outer is Literal and value in inner:
        return value
    if outer is list and isinstance(value, list):
        return [_read(inner[0], item, f"{name}[{number}]") for number, item in enumerate(value)]
    if outer is dict and isinstance(value, Mapping):
        return {key: _read(inner[1], item, f"{name}.{key}".lstrip(".")) for key, item in value.items()}
    if isinstance(kind, type) and issubclass(kind, Record) and isinstance(value, Mapping):
        return kind(**_fields(kind, value, name))
    if kind is float:
        return _number(value, name)
    if isinstance(kind, type) and type(value) is kind:
        return value
    raise ValueError(f"{name} is {str(value)[:100]!r}" if name else f"it is {str(value)[:100]!r}, not an object")


def _fields(kind: Any, value: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = {}
    for field, of_kind in _types(kind).items():
        path = f"{name}.{field}".lstrip(".")
        if field not in value:
            raise ValueError(f"{path} is missing")
        found[field] = _read(of_kind, value[field], path)
    return found


@cache
def _types(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    # A field with a default, such as the folder that a record lies in, is not stored.
    return {field.name: hints[field.name] for field in dataclasses.fields(kind) if field.default is dataclasses.MISSING}


def _number(value: Any, name: str) -> float:
    try:
        if not isinstance(value, bool):
            return float(value)
    except (TypeError, ValueError):
        pass
    raise ValueError(f"{name} is {value!r}, not a number")
