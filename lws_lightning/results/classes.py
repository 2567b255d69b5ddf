"""The classes of each task in a report: accuracies and confusions of the tested networks, over the runs of a row."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from lws_lightning.records import ClassResult, TaskClasses, find_classes
from lws_lightning.results.rows import Row, Section
from lws_lightning.results.table import Column, Table

__all__ = ["Confusions", "class_table", "section_confusions"]

MAX_CLASSES = 20  # in the matrix of a page


class Cell(NamedTuple):
    """A cell of a confusion matrix: the number of images, and its share of those of the true class in [0, 1]."""

    images: int
    share: float


@dataclass(frozen=True)
class Confusions:
    """The classes of one task in the tests of a row.

    Attributes:
        row: The row.
        task: Name of the task.
        runs: Number of runs that the counts add up.
        classes: The counts.
    """

    row: Row
    task: str
    runs: int
    classes: TaskClasses

    @property
    def title(self) -> str:
        """Names the row and the task."""
        return f"{self.row.letter} {self.row.label}, {self.task}"

    @property
    def shown(self) -> list[int]:
        """The classes in the matrix: all, or the 20 with the most errors."""
        return self.classes.most_confused(MAX_CLASSES)

    @property
    def names(self) -> list[str]:
        """The names of the classes in the matrix."""
        return [self.classes.class_names[number] for number in self.shown]

    @property
    def matrix(self) -> list[tuple[str, list[Cell]]]:
        """The matrix by true class."""
        results = self.classes.classes()
        rows = zip(self.shown, self.classes.matrix(self.shown), strict=True)
        return [
            (results[number].name, [Cell(count, count / max(results[number].images, 1)) for count in counts])
            for number, counts in rows
        ]

    @property
    def table(self) -> Table[ClassResult]:
        """The accuracy of each class, the least accurate first."""
        columns: list[Column[ClassResult]] = [
            Column("class", lambda each: each.name, "class", text=True),
            Column("images", lambda each: each.images, "images", "{:,}"),
            Column("accuracy", lambda each: each.accuracy, "accuracy", "{:.1f} %"),
            Column("taken_for", _most_often, "most often taken for", text=True),
        ]
        classes = [each for each in self.classes.classes() if each.images]
        return Table(sorted(classes, key=lambda each: each.accuracy or 0.0), columns)


def section_confusions(section: Section) -> list[Confusions]:
    """Reads the classes of each row and task, added up over the runs of the row.

    Rows that were not evaluated by a test, and those of which a run has no `test_classes.json`, have none.

    Args:
        section: Rows of one data set.
    """
    found = []
    for row in section.rows:
        results = [find_classes(run.folder) for run in row.runs] if row.key.prefix == "test" else [None]
        known = [each.tasks for each in results if each is not None]
        if len(known) < len(results):
            continue
        for task in section.task_names:
            parts = [tasks[task] for tasks in known if task in tasks]
            if len(parts) == len(known) and len({tuple(part.class_names) for part in parts}) == 1:
                found.append(Confusions(row, task, len(parts), TaskClasses.sum(parts)))
    return found


def class_table(section: Section, found: list[Confusions]) -> Table[Any]:
    """Returns a line for each row, task and class, for CSV."""
    columns: list[Column[tuple[Confusions, ClassResult]]] = [
        Column("row", lambda item: item[0].row.letter),
        Column("data", lambda item: section.data),
        Column("data_options", lambda item: section.variant),
        Column("network", lambda item: item[0].row.network),
        Column("method", lambda item: item[0].row.label),
        Column("task", lambda item: item[0].task),
        Column("class", lambda item: item[1].name),
        Column("runs", lambda item: item[0].runs),
        Column("images", lambda item: item[1].images),
        Column("accuracy", lambda item: item[1].accuracy),
        Column("taken_for", lambda item: item[1].taken_for),
        Column("times", lambda item: item[1].times),
    ]
    return Table(list(_lines(found)), columns)


def _lines(found: list[Confusions]) -> Iterator[tuple[Confusions, ClassResult]]:
    for each in found:
        for result in each.classes.classes():
            yield each, result


def _most_often(each: ClassResult) -> str | None:
    return f"{each.taken_for} ({each.times:,})" if each.times else None
