"""Letters, colours and names, the same in all figures."""

from collections.abc import Iterator
from contextlib import contextmanager

from matplotlib import rc_context
from matplotlib.colors import to_rgb

__all__ = ["PALE", "copy_colour", "copy_letter", "ink_on", "literal_text", "shorten", "tint"]

# Okabe and Ito's colour-blind safe colours, then Paul Tol's "muted" and similar ones. Beyond the first seven or so, the
# letters are needed to tell copies apart.
_PALETTE = (
    *("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442"),
    *("#332288", "#999933", "#882255", "#44AA99", "#DDCC77", "#AA4499", "#117733"),
    *("#88CCEE", "#661100", "#6699CC", "#EE99AA", "#AA7744", "#555555"),
)
PALE = 0.28  # strength of the colour of a copy that only one task uses
_MAX_NAME = 28


@contextmanager
def literal_text() -> Iterator[None]:
    """Disables mathtext and TeX, so that names may contain `$`, `_` and backslashes; decorates drawing functions."""
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
    """Returns the colour of a copy, (red, green, blue) in [0, 1]; colours repeat after 20."""
    return to_rgb(_PALETTE[index % len(_PALETTE)])


def shorten(name: str, length: int = _MAX_NAME) -> str:
    """Shortens a name in the middle, where similar names differ least."""
    name = " ".join(name.split())
    if len(name) <= length:
        return name
    tail = (length - 1) // 3
    return f"{name[: length - 1 - tail]}…{name[len(name) - tail :]}"


def tint(colour: tuple[float, float, float], strength: float) -> tuple[float, float, float]:
    """Mixes a colour with white; a strength of 1 leaves it unchanged, 0 gives white."""
    red, green, blue = (1 - strength * (1 - channel) for channel in colour)
    return red, green, blue


def ink_on(colour: tuple[float, float, float]) -> str:
    """Returns `black` or `white`, whichever contrasts with the colour (by WCAG's relative luminance)."""
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour)
    return "black" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.22 else "white"
