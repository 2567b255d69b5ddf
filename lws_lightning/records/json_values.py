"""Conversion of values and dataclasses to JSON and back."""

import dataclasses
import math
from collections.abc import Collection, Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Self, get_args, get_origin, get_type_hints

__all__ = ["Record", "to_json_value"]

_MAX_NUMBERS = 1000


class Record:
    """Base of dataclasses that are stored as JSON."""

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as JSON values."""
        names = (field.name for field in dataclasses.fields(self))  # type: ignore[arg-type]
        return {name: to_json_value(getattr(self, name)) for name in names}

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Makes an instance from the result of `to_json`, directly or after a round trip through JSON.

        Raises:
            ValueError: If a field is missing or has the wrong type; the message names it.
        """
        record: Self = _read(cls, value, "")
        return record


def to_json_value(value: Any) -> Any:
    """Converts a value to one that JSON can represent.

    Non-finite numbers become `"nan"`, `"inf"` or `"-inf"`, which `float` reads; functions and classes become their
    import path; anything else becomes its `repr`, cut at 200 characters.
    """
    if value is None or (isinstance(value, bool | int | str) and not isinstance(value, Enum)):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist") and not isinstance(value, type):  # of NumPy or torch, which are not imported for this
        small = math.prod(value.shape) <= _MAX_NUMBERS
        return to_json_value(value.tolist()) if small else f"{type(value).__name__} {tuple(value.shape)}"
    if isinstance(value, Record):
        return value.to_json()
    if isinstance(value, Mapping):
        return {str(key): to_json_value(item) for key, item in value.items()}
    if isinstance(value, Collection) and not isinstance(value, bytes):
        return [to_json_value(item) for item in value]
    if hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    return repr(value)[:200]


def _read(annotation: Any, value: Any, path: str) -> Any:
    """Converts a JSON value to a type: a dataclass, `list`, `dict`, `Literal`, `X | None` or a simple one."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation is Any:
        return value
    if origin is UnionType:
        (annotation,) = (argument for argument in arguments if argument is not NoneType)
        return None if value is None else _read(annotation, value, path)
    if origin is Literal and value in arguments:
        return value
    if origin is list and isinstance(value, list):
        return [_read(arguments[0], item, f"{path}[{number}]") for number, item in enumerate(value)]
    if origin is dict and isinstance(value, Mapping):
        return {key: _read(arguments[1], item, f"{path}.{key}".lstrip(".")) for key, item in value.items()}
    if isinstance(annotation, type) and issubclass(annotation, Record) and isinstance(value, Mapping):
        return annotation(**_read_fields(annotation, value, path))
    if annotation is float:
        return _read_float(value, path)
    if isinstance(annotation, type) and type(value) is annotation:
        return value
    raise ValueError(f"{path} is {str(value)[:100]!r}" if path else f"it is {str(value)[:100]!r}, not an object")


def _read_fields(cls: Any, value: Mapping[str, Any], path: str) -> dict[str, Any]:
    fields = {}
    for name, annotation in _stored_fields(cls).items():
        field_path = f"{path}.{name}".lstrip(".")
        if name not in value:
            raise ValueError(f"{field_path} is missing")
        fields[name] = _read(annotation, value[name], field_path)
    return fields


@cache
def _stored_fields(cls: Any) -> dict[str, Any]:
    hints = get_type_hints(cls)
    # A field with a default, such as the folder of a record, is not stored.
    return {field.name: hints[field.name] for field in dataclasses.fields(cls) if field.default is dataclasses.MISSING}


def _read_float(value: Any, path: str) -> float:
    try:
        if not isinstance(value, bool):
            return float(value)
    except (TypeError, ValueError):
        pass
    raise ValueError(f"{path} is {value!r}, not a number")
