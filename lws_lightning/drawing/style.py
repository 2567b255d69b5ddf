"""Letters, colours and names that all pictures have in common."""

from collections.abc import Iterator
from contextlib import contextmanager

from matplotlib import rc_context
from matplotlib.colors import to_rgb

__all__ = ["PALE", "copy_colour", "copy_letter", "ink_on", "literal_text", "shorten", "tint"]

# Okabe and Ito's colours, which the colour-blind tell apart, then Paul Tol's "muted" and neighbours. Beyond
# the first seven or so the letters have to help; that is what they are for.
_PALETTE = (
    *("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442"),
    *("#332288", "#999933", "#882255", "#44AA99", "#DDCC77", "#AA4499", "#117733"),
    *("#88CCEE", "#661100", "#6699CC", "#EE99AA", "#AA7744", "#555555"),
)
PALE = 0.28  # how much of its colour a copy keeps that one task uses alone
_MAX_NAME = 28


@contextmanager
def literal_text() -> Iterator[None]:
    """Lets all text that is made stand for itself: a name may hold `$`, `_` and backslashes. Decorates what draws."""
    with rc_context({"text.parse_math": False, "text.usetex": False}):
        yield


def copy_letter(index: int) -> str:
    """Returns the letter of a copy: A for 0, Z for 25, AA for 26."""
    letters = ""
    index += 1
    while index > 0:
        index, rest = divmod(index - 1, 26)
        letters = chr(ord("A") + rest) + letters
    return letters


def copy_colour(index: int) -> tuple[float, float, float]:
    """Returns the colour of a copy, (red, green, blue) in [0, 1]; they repeat after 20."""
    red, green, blue = to_rgb(_PALETTE[index % len(_PALETTE)])
    return red, green, blue


def shorten(name: str, length: int = _MAX_NAME) -> str:
    """Shortens a name in the middle, where names of one family differ least."""
    name = " ".join(name.split())
    if len(name) <= length:
        return name
    tail = (length - 1) // 3
    return f"{name[: length - 1 - tail]}…{name[len(name) - tail :]}"


def tint(colour: tuple[float, float, float], strength: float) -> tuple[float, float, float]:
    """Mixes a colour with white; a strength of 1 leaves it as it is, 0 is white."""
    red, green, blue = (1 - strength * (1 - part) for part in colour)
    return red, green, blue


def ink_on(colour: tuple[float, float, float]) -> str:
    """Returns `black` or `white`, whichever stands out on the colour (by WCAG's relative luminance)."""
    parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour]
    return "black" if 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2] > 0.22 else "white"
