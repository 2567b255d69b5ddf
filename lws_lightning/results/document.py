"""A document of headings, paragraphs, lists and tables, as Markdown or in a terminal."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from lws_lightning.results.table import Table, escape_cell

__all__ = ["Block", "Bullets", "Heading", "as_markdown", "print_blocks"]


@dataclass(frozen=True)
class Heading:
    """The heading of a section, one line."""

    text: str


@dataclass(frozen=True)
class Bullets:
    """A list with a line above it."""

    title: str
    items: Sequence[str]


Block: TypeAlias = str | Heading | Bullets | Table[Any]
"""A string is a paragraph; its line breaks are kept."""


def as_markdown(blocks: Iterable[Block]) -> str:
    """Returns blocks as Markdown, separated by empty lines."""
    return "\n".join(map(_markdown, blocks))


def _markdown(block: Block) -> str:
    match block:
        case Heading(text):
            return f"### {escape_cell(text)}\n"
        case Bullets(title, items):
            return f"{title}:\n\n" + "".join(f"- {_escape(item)}\n" for item in items)
        case Table(caption=caption):
            return f"{_escape(caption)}\n\n{block.markdown()}" if caption else block.markdown()
        case str():
            return f"{_escape(block)}\n"


def _escape(text: str) -> str:
    return text.replace("<", r"\<")


def print_blocks(blocks: Iterable[Block], console: Console) -> None:
    """Prints blocks to a terminal; wide tables are split into parts below each other."""
    for block in blocks:
        match block:
            case Heading(text):
                console.print(Text(text, style="bold"))
            case Bullets(title, items):
                console.print(Text(f"{title}:"))
                grid = Grid.grid(padding=(0, 1, 0, 0))
                grid.add_column(no_wrap=True)
                grid.add_column(overflow="fold")
                for item in items:
                    grid.add_row("-", Text(item))
                console.print(grid)
            case Table(caption=caption):
                if caption:
                    console.print(Text(caption))
                for view in block.in_terminal(console):
                    console.print(view)
            case str():
                console.print(Text(block, overflow="fold"))
        console.print()
