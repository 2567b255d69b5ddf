"""Puts a report together and writes its files."""

import base64
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from lws_lightning.callbacks import write_atomically
from lws_lightning.results.affinity import Affinity, section_affinities
from lws_lightning.results.affinity_tables import MAX_LAYERS, affinity_table, pair_table, stability_table
from lws_lightning.results.document import Block, Bullets, Heading, Image, as_markdown
from lws_lightning.results.drawing import styles
from lws_lightning.results.figures import KINDS, Picture, section_pictures
from lws_lightning.results.grouping import Section, Source, group_runs
from lws_lightning.results.origin import Origin, machines, row_origin, when
from lws_lightning.results.row_tables import cost_table, error_table, foot_notes, row_table, run_table
from lws_lightning.results.runs import Run
from lws_lightning.results.significance import Comparison, compare, significance_table
from lws_lightning.results.table import Table, csv_text

__all__ = ["Report", "comparison_table", "folder_names", "make_report"]

_ENDINGS = ("png", "svg")
_TABLES = ("table", "runs", "tests", "affinity", "stability")
_A_FIGURE = re.compile(rf"({'|'.join(KINDS)})_[A-Z]+_\w+\.(png|svg)")


@dataclass(frozen=True)
class Part:
    """What a report says about one data set.

    Attributes:
        section: Its rows.
        comparisons: The tests.
        folder_name: What a folder is called.
        origins: How the runs of each row were made.
        pictures: The figures, none if they were not wanted.
        problems: Sentences about runs that a figure has to do without.
        affinities: Which tasks share in each learned row, none if figures were not wanted.
    """

    section: Section
    comparisons: tuple[Comparison, ...]
    folder_name: Callable[[Path], str] = str
    origins: tuple[Origin, ...] = ()
    pictures: tuple[Picture, ...] = ()
    problems: tuple[str, ...] = ()
    affinities: tuple[Affinity, ...] = ()

    @property
    def errors(self) -> Table[Any] | None:
        """The table of the rows, None without a finished run."""
        return error_table(self.section) if self.section.rows else None

    @property
    def notes(self) -> list[str]:
        """Sentences that belong to the table of the rows."""
        return [*foot_notes(self.section), *self.section.notes]

    @property
    def costs(self) -> Table[Any] | None:
        """What a prediction costs, None if it was not measured."""
        return cost_table(self.section)

    @property
    def tests(self) -> Table[Any] | None:
        """The tests, None if there is nothing to compare."""
        return significance_table(self.section, self.comparisons, self.folder_name) if self.comparisons else None

    @property
    def sharing(self) -> list[Table[Any]]:
        """Which tasks share: how far the seeds agree, and the pairs that share most; none without a learned row."""
        if not self.affinities:
            return []
        tables = (stability_table(self.section, self.affinities, MAX_LAYERS), pair_table(self.section, self.affinities))
        return list(tables)

    @property
    def left_out(self) -> list[str]:
        """Sentences about the runs in no row."""
        return [each.text(self.folder_name) for each in self.section.left_out]

    @property
    def files(self) -> dict[str, Table[Any]]:
        """The tables of the CSV files, by their names without ending."""
        tables: tuple[Table[Any], ...] = (
            row_table(self.section, self.folder_name),
            run_table(self.section, self.folder_name),
            significance_table(self.section, self.comparisons, self.folder_name),
            affinity_table(self.section, self.affinities),
            stability_table(self.section, self.affinities),
        )
        return dict(zip(_TABLES, tables, strict=True))

    def blocks(self, figures: str | None = None) -> Iterator[Block]:
        """Yields the part as text and tables.

        Args:
            figures: Where the figures lie, seen from the document; None leaves them out.
        """
        yield Heading(self.section.title)
        if self.errors is None:
            yield "No finished runs."
        else:
            yield self.errors
            if self.notes:
                yield "\n".join(self.notes)
            rows = self.section.rows
            folders = [f"{row.letter}: {', '.join(self.folder_name(run.folder) for run in row.runs)}" for row in rows]
            yield Bullets("Runs in each row", folders)
            yield from filter(None, (self.costs, self.tests))
        if self.left_out:
            yield Bullets("Left out", self.left_out)
        if figures is not None:
            yield from self.sharing
            for picture in self.pictures:
                yield Image(f"{figures}/{picture.name}.png", picture.alt, picture.caption)
                if picture.numbers:
                    yield picture.numbers
            if self.problems:
                yield Bullets("Missing in the figures", self.problems)


@dataclass(frozen=True)
class Report:
    """A comparison of runs: tables, tests, figures and where they come from.

    Attributes:
        parts: One for each data set.
        not_read: Sentences about records that could not be read.
        machines: Sentences about versions and hardware.
        summary: How many runs, and when they ran.
    """

    parts: tuple[Part, ...]
    not_read: tuple[str, ...]
    machines: tuple[str, ...]
    summary: str

    @property
    def problems(self) -> tuple[str, ...]:
        """Sentences about runs that a figure has to do without."""
        return tuple(problem for part in self.parts for problem in part.problems)

    def blocks(self, figures: str | None = None) -> Iterator[Block]:
        """Yields tables and tests as a document.

        Args:
            figures: Where the figures lie, seen from the document; None leaves them out.
        """
        if figures is not None:
            yield Heading("Comparison of runs", level=1)
            yield self.summary
        for part in self.parts:
            yield from part.blocks(figures)
        if self.machines:
            yield "\n".join(self.machines)
        if self.not_read:
            yield Bullets("Not read", self.not_read)

    def markdown(self, figures: str | None = None) -> str:
        """Returns tables and tests as Markdown; see `blocks`."""
        return as_markdown(self.blocks(figures))

    def html(self) -> str:
        """Returns the report as one HTML document that needs no other file, no network and no script."""
        environment = Environment(
            loader=PackageLoader("lws_lightning.results"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
        )
        environment.filters["data_uri"] = _data_uri
        return environment.get_template("report.html.j2").render(report=self)

    def write(self, folder: Path) -> list[Path]:
        """Writes `report.md`, `report.html`, the CSV files and `figures/`, each file atomically.

        Figures of an earlier report there that this one does not have are removed.

        Args:
            folder: Made if it does not exist.

        Returns:
            The files, the HTML document last.

        Raises:
            OSError: If a file cannot be written.
        """
        files: dict[str, str | bytes] = {}
        for part in self.parts:
            for picture in part.pictures:
                files |= {f"figures/{picture.name}.{ending}": getattr(picture, ending) for ending in _ENDINGS}
        tables = [part.files for part in self.parts]
        files |= {f"{name}.csv": csv_text(each[name] for each in tables) for name in _TABLES}
        files["report.md"] = self.markdown("figures")
        files["report.html"] = self.html()
        for name, content in files.items():
            write_atomically(folder / name, content)
        for path in (folder / "figures").glob("*"):
            if _A_FIGURE.fullmatch(path.name) and f"figures/{path.name}" not in files:
                path.unlink(missing_ok=True)
        return [folder / name for name in files]


def comparison_table(runs: Sequence[Run], problems: Sequence[str] = (), source: Source = "auto") -> str:
    """Makes a table for each data set, with a row for each network and method over its seeds, and tests.

    Only finished runs that were measured alike (same kind of evaluation, step and number of images) are
    averaged. Every other run is named below the table, with the reason. Runs that differ in an option of the
    method are rows of their own. Of runs with the same seed and options only the last one counts.

    Args:
        runs: What `load_runs` returned.
        problems: Sentences of `load_runs`, repeated at the end.
        source: `test` for what `test` measured, `curve` for the last evaluation of the training; `auto` is `test`
            where all finished runs of a data set have one, otherwise `curve`.

    Returns:
        Markdown. Errors in percent, mean ± standard deviation (n - 1) over runs; one run shows just its value.
    """
    blocks: list[Block] = []
    for section in group_runs(runs, source):
        blocks += Part(section, tuple(compare(section))).blocks()
    blocks = blocks or ["No runs."]
    if problems:
        blocks.append(Bullets("Not read", problems))
    return as_markdown(blocks)


def make_report(
    runs: Sequence[Run],
    not_read: Sequence[str] = (),
    *,
    folders: Sequence[str | Path] = (),
    source: Source = "auto",
    figures: bool = True,
) -> Report:
    """Compares runs.

    Args:
        runs: What `load_runs` returned.
        not_read: Its sentences about what could not be read.
        folders: What it was given; run folders are then called by their path below it.
        source: As in `group_runs`.
        figures: False draws none.
    """
    folder_name = folder_names(folders)
    sections = group_runs(runs, source)
    looks = styles(sections)
    parts = []
    for section in sections:
        affinities = section_affinities(section) if figures else []
        pictures, problems = section_pictures(section, looks, folder_name, affinities) if figures else ([], [])
        parts.append(
            Part(
                section,
                tuple(compare(section)),
                folder_name,
                tuple(row_origin(row, folder_name) for row in section.rows),
                tuple(pictures),
                tuple(problems),
                tuple(affinities),
            )
        )
    averaged = sum(len(row.members) for section in sections for row in section.rows)
    rows = sum(len(section.rows) for section in sections)
    left_out = len(runs) - averaged
    days = when(run for section in sections for row in section.rows for run in row.runs)
    summary = f"{averaged} run{'s' * (averaged != 1)} in {rows} row{'s' * (rows != 1)}, {left_out or 'none'} left out."
    if days:
        summary += f" Trained {days} (UTC)."
    shortened = tuple(_shortened(sentence, folders) for sentence in not_read)
    return Report(tuple(parts), shortened, tuple(machines(sections)), summary)


def folder_names(folders: Sequence[str | Path]) -> Callable[[Path], str]:
    """Says how to call run folders.

    Args:
        folders: Where they were looked for.

    Returns:
        A function of a path: its part below the only folder; of several, with that folder's name in front where
        these names differ; otherwise the path itself.
    """
    bases = [Path(folder).parent if Path(folder).is_file() else Path(folder) for folder in folders]
    names = [base.resolve().name for base in bases]
    distinct = len(set(names)) == len(names)

    def folder_name(path: Path) -> str:
        for base, own in zip(bases, names, strict=True):
            if path == base or (path.is_relative_to(base) and (distinct or len(bases) == 1)):
                below = path.relative_to(base).as_posix()
                if path == base:
                    return own if distinct else path.as_posix()
                return below if len(bases) == 1 else f"{own}/{below}"
        return path.as_posix()

    return folder_name


def _shortened(sentence: str, folders: Sequence[str | Path]) -> str:
    return sentence.removeprefix(f"{Path(folders[0])}/") if len(folders) == 1 else sentence


def _data_uri(picture: Picture) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(picture.svg.encode()).decode()}"
