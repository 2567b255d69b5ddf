"""Checks of options that the data sets share."""

from collections.abc import Sequence
from typing import Any

__all__ = ["require_at_least", "require_fraction", "require_one_of"]


def require_at_least(dataset: str, option: str, value: int, minimum: int) -> None:
    """Raises a ValueError that names the option if `value` is below `minimum`."""
    if value < minimum:
        raise ValueError(f"{dataset}: {option} must be at least {minimum}, got {value}.")


def require_fraction(dataset: str, option: str, value: float) -> None:
    """Raises a ValueError that names the option if `value` is not in (0, 1)."""
    if not 0 < value < 1:
        raise ValueError(f"{dataset}: {option} must lie between 0 and 1, got {value}.")


def require_one_of(dataset: str, option: str, value: Any, allowed: Sequence[Any]) -> None:
    """Raises a ValueError that names the option if `value` is not one of those allowed."""
    if value not in allowed:
        raise ValueError(f"{dataset}: {option} must be one of {', '.join(map(str, allowed))}, got {value!r}.")
