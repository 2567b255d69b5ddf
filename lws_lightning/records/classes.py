"""Which classes the tested networks take for which, `test_classes.json` beside a run's record."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lws_lightning.records.json_values import Record

__all__ = ["CLASSES_FILE", "ClassResult", "ClassResults", "TaskClasses", "find_classes"]

CLASSES_FILE = "test_classes.json"


@dataclass(frozen=True)
class ClassResult:
    """One class of a task.

    Attributes:
        name: Its name, or its number.
        images: Its test images.
        right: How many of them were classified rightly.
        taken_for: The wrong class that most of them were taken for, empty without errors.
        times: How often.
    """

    name: str
    images: int
    right: int
    taken_for: str
    times: int

    @property
    def accuracy(self) -> float | None:
        """Percentage of its images that were classified rightly, None without images."""
        return 100 * self.right / self.images if self.images else None


@dataclass(frozen=True)
class TaskClasses(Record):
    """The confusion matrix of one task.

    Attributes:
        class_names: Names of the classes, or their numbers.
        counts: `[true class, predicted class, images]` for each pair of classes with images, in order.
    """

    class_names: list[str]
    counts: list[list[int]]

    def __post_init__(self) -> None:
        """Raises ValueError if counts are not those of the classes."""
        classes = range(len(self.class_names))
        for entry in self.counts:
            if len(entry) != 3 or entry[0] not in classes or entry[1] not in classes or entry[2] < 1:
                raise ValueError(f"{entry} is not a count of {len(classes)} classes")

    @classmethod
    def of(cls, class_names: Sequence[str], matrix: Sequence[Sequence[int]]) -> "TaskClasses":
        """Makes it from a whole matrix `(classes, classes)`, true classes in rows."""
        entries = [[i, j, count] for i, row in enumerate(matrix) for j, count in enumerate(row) if count]
        return cls(list(class_names), entries)

    @classmethod
    def sum(cls, parts: Iterable["TaskClasses"]) -> "TaskClasses":
        """Adds the counts of several runs with the same classes, at least one.

        Raises:
            ValueError: If the classes differ.
        """
        parts = list(parts)
        if any(part.class_names != parts[0].class_names for part in parts):
            raise ValueError("the classes differ")
        total: dict[tuple[int, int], int] = {}
        for part in parts:
            for true, predicted, count in part.counts:
                total[true, predicted] = total.get((true, predicted), 0) + count
        return cls(parts[0].class_names, [[*pair, count] for pair, count in sorted(total.items())])

    def classes(self) -> list[ClassResult]:
        """Returns the result of each class, in order."""
        rows: list[dict[int, int]] = [{} for _ in self.class_names]
        for true, predicted, count in self.counts:
            rows[true][predicted] = count
        results = []
        for number, (name, row) in enumerate(zip(self.class_names, rows, strict=True)):
            right = row.pop(number, 0)
            most = max(row, key=lambda other: (row[other], -other), default=None)
            results.append(
                ClassResult(
                    name,
                    right + sum(row.values()),
                    right,
                    "" if most is None else self.class_names[most],
                    0 if most is None else row[most],
                )
            )
        return results

    def most_confused(self, limit: int) -> list[int]:
        """Returns the classes with the most errors, as true or as predicted class; at most `limit`, ascending."""
        errors = [0] * len(self.class_names)
        for true, predicted, count in self.counts:
            if true != predicted:
                errors[true] += count
                errors[predicted] += count
        worst = sorted(range(len(errors)), key=lambda number: (-errors[number], number))[:limit]
        return sorted(worst)

    def matrix(self, classes: Sequence[int]) -> list[list[int]]:
        """Returns the confusion matrix of some classes, true classes in rows."""
        place = {number: index for index, number in enumerate(classes)}
        rows = [[0] * len(classes) for _ in classes]
        for true, predicted, count in self.counts:
            if true in place and predicted in place:
                rows[place[true]][place[predicted]] = count
        return rows


@dataclass(frozen=True)
class ClassResults(Record):
    """The confusion matrices of a test.

    Attributes:
        tasks: By name; tasks without images, and those with too many classes for a matrix, are omitted.
    """

    tasks: dict[str, TaskClasses]

    def text(self) -> str:
        """Returns the content of `test_classes.json`: a line for each task."""
        lines = [f"{json.dumps(name)}: {json.dumps(task.to_json())}" for name, task in self.tasks.items()]
        return '{"tasks": {\n' + ",\n".join(lines) + "\n}}\n"


def find_classes(folder: Path) -> ClassResults | None:
    """Reads the `test_classes.json` of a run; None if it is missing or damaged."""
    try:
        return ClassResults.from_json(json.loads((folder / CLASSES_FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None
