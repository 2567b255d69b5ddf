"""A table as Markdown, as CSV, in a terminal, and as cells for HTML."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table as RichTable
from rich.text import Text

__all__ = ["Column", "Table", "csv_text", "escape_cell"]

Item = TypeVar("Item")
_MAX_TEXT_WIDTH = 40  # characters; longer cells are wrapped in a terminal


@dataclass(frozen=True)
class Column(Generic[Item]):
    """A column of a table.

    Attributes:
        name: Identifies the column; its heading in CSV.
        value: Returns the value of an item. In CSV a list is written as JSON, numbers with all digits, None as nothing.
        heading: For readers; a column without one is only in the CSV file.
        format: Formats the value for readers: a format such as `{:.2f}`, or a function. None is shown as a dash.
        text: Whether cells are text, aligned left, instead of numbers, aligned right.
        csv: Whether the column is in the CSV file.
    """

    name: str
    value: Callable[[Item], Any]
    heading: str = ""
    format: str | Callable[[Any], str] = "{}"
    text: bool = False
    csv: bool = True

    def cell(self, item: Item) -> str:
        """Returns the cell of an item for readers."""
        value = self.value(item)
        if value is None:
            return "-"
        return self.format.format(value) if isinstance(self.format, str) else self.format(value)


@dataclass(frozen=True)
class Table(Generic[Item]):
    """Items by columns.

    Attributes:
        items: One for each row.
        columns: The columns.
        caption: Explains the table, may be empty.
        keys: Number of columns at the left that identify a row; a terminal repeats them if a table is too wide.
    """

    items: Sequence[Item]
    columns: Sequence[Column[Item]]
    caption: str = ""
    keys: int = 1

    @property
    def shown(self) -> list[Column[Item]]:
        """The columns for readers."""
        return [column for column in self.columns if column.heading]

    @property
    def cells(self) -> list[list[str]]:
        """For each item the cells of `shown`."""
        return [[column.cell(item) for column in self.shown] for item in self.items]

    def select(self, names: Iterable[str], caption: str = "") -> "Table[Item]":
        """Returns a table with the named columns, in the order given."""
        columns = {column.name: column for column in self.columns}
        return replace(self, columns=[columns[name] for name in names], caption=caption)

    def records(self) -> list[dict[str, Any]]:
        """Returns the values of each item by column name, for CSV."""
        return [{column.name: column.value(item) for column in self.columns if column.csv} for item in self.items]

    def markdown(self) -> str:
        """Returns a Markdown table with aligned columns."""
        escaped = [[escape_cell(cell) for cell in row] for row in ([c.heading for c in self.shown], *self.cells)]
        widths = [max(3, *map(len, cells)) for cells in zip(*escaped, strict=True)]
        rule = [
            "-" * width if column.text else "-" * (width - 1) + ":"
            for column, width in zip(self.shown, widths, strict=True)
        ]
        aligned = [
            [
                cell.ljust(width) if column.text else cell.rjust(width)
                for column, cell, width in zip(self.shown, row, widths, strict=True)
            ]
            for row in escaped
        ]
        return "".join(f"| {' | '.join(row)} |\n" for row in (aligned[0], rule, *aligned[1:]))

    def in_terminal(self, console: Console) -> list[RichTable]:
        """Returns tables to print below each other, each with as many columns as fit the terminal."""
        keys, rest = self.shown[: self.keys], self.shown[self.keys :]
        wide = console.options.update(width=100_000)
        views: list[list[Column[Item]]] = [[]]
        for column in rest:
            wider = Measurement.get(console, wide, self._rich([*keys, *views[-1], column])).maximum
            if views[-1] and wider > console.width:
                views.append([])
            views[-1].append(column)
        return [self._rich([*keys, *view]) for view in views]

    def _rich(self, columns: Sequence[Column[Item]]) -> RichTable:
        table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        for column in columns:
            table.add_column(
                Text(column.heading),
                justify="left" if column.text else "right",
                overflow="fold",
                max_width=_MAX_TEXT_WIDTH if column.text else None,
                no_wrap=not column.text,
            )
        for item in self.items:
            table.add_row(*(Text(column.cell(item)) for column in columns))
        return table


def csv_text(tables: Iterable[Table[Any]]) -> str:
    """Returns tables below each other as one CSV file with the columns of all; empty if there are no rows."""
    records = [record for table in tables for record in table.records()]
    if not records:
        return ""
    text = io.StringIO()
    writer = csv.DictWriter(
        text, list(dict.fromkeys(name for record in records for name in record)), lineterminator="\n"
    )
    writer.writeheader()
    for record in records:
        lists = {k: json.dumps(v, ensure_ascii=False) for k, v in record.items() if isinstance(v, list)}
        writer.writerow(record | lists)
    return text.getvalue()


def escape_cell(text: str) -> str:
    """Escapes what would end a cell of a Markdown table or start HTML."""
    return " ".join(text.split()).replace("|", r"\|").replace("<", r"\<")
