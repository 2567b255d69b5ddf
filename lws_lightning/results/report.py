"""Creates a report and writes its files."""

import base64
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from lws_lightning.records import Run, write_atomically
from lws_lightning.results.affinity import section_affinities
from lws_lightning.results.affinity_tables import MAX_LAYERS, affinity_table, pair_table, stability_table
from lws_lightning.results.classes import Confusions, class_table, section_confusions
from lws_lightning.results.document import Block, Bullets, Heading, as_markdown
from lws_lightning.results.drawing import Style, row_styles
from lws_lightning.results.figures import FIGURE_KINDS, Picture, section_pictures
from lws_lightning.results.gain import gain_sentences
from lws_lightning.results.grouping import Source, group_runs
from lws_lightning.results.improvement import improvement_table, improvements
from lws_lightning.results.origin import Origin, environments, row_origin, training_dates
from lws_lightning.results.row_tables import cost_table, error_table, foot_notes, row_table, run_table
from lws_lightning.results.rows import Section
from lws_lightning.results.significance import compare, significance_table
from lws_lightning.results.table import Table, csv_text

__all__ = ["Report", "comparison_table", "folder_names", "make_report", "page_environment"]

_FIGURE_FORMATS = ("png", "svg")
_TABLES = ("table", "runs", "improvement", "classes", "tests", "affinity", "stability")
_FIGURE_FILE = re.compile(rf"({'|'.join(FIGURE_KINDS)})_[A-Z]+_\w+\.(png|svg)")


@dataclass(frozen=True)
class Part:
    """The part of a report about one data set.

    Attributes:
        section: Its rows.
        errors: The table of the rows, None without a finished run.
        notes: Sentences below that table.
        improvement: By how much rows are better than no sharing, None without such a row.
        folders: The run folders of each row, as sentences.
        costs: The cost of a prediction, None if no run has measured it.
        tests: The significance tests, None if there is nothing to compare.
        gains: What of learned sharing's gain is the search's, as sentences.
        left_out: Sentences about the runs in no row.
        confusions: The classes of each row and task, for the page; empty without figures.
        sharing: How far the seeds agree, and the pairs of tasks that share most; empty without figures.
        pictures: The figures, may be empty.
        problems: Sentences about runs that are missing in a figure.
        origins: How the runs of each row were made.
        files: The tables of the CSV files, by file name without extension.
    """

    section: Section
    errors: Table[Any] | None
    notes: list[str]
    improvement: Table[Any] | None
    folders: list[str]
    costs: Table[Any] | None
    tests: Table[Any] | None
    gains: list[str]
    left_out: list[str]
    confusions: list[Confusions]
    sharing: list[Table[Any]]
    pictures: list[Picture]
    problems: list[str]
    origins: list[Origin]
    files: dict[str, Table[Any]]

    def blocks(self, figures: str | None = None) -> Iterator[Block]:
        """Yields the part as text and tables; see `Report.blocks`."""
        yield Heading(self.section.title)
        if self.errors is None:
            yield "No finished runs."
        else:
            yield self.errors
            if self.notes:
                yield "\n".join(self.notes)
            if self.improvement:
                yield self.improvement
            yield Bullets("Runs in each row", self.folders)
            if self.costs:
                yield self.costs
            if self.tests:
                yield self.tests
            if self.gains:
                yield Bullets("What of the gain is the search's", self.gains)
        if self.left_out:
            yield Bullets("Left out", self.left_out)
        if figures is not None:
            yield from self.sharing
            for picture in self.pictures:
                yield f"![{picture.alt}]({figures}/{picture.name}.png)"
                yield picture.caption
                if picture.numbers:
                    yield picture.numbers
            if self.problems:
                yield Bullets("Missing in the figures", self.problems)


@dataclass(frozen=True)
class Report:
    """A comparison of runs: tables, tests, figures and how the runs were made.

    Attributes:
        parts: One for each data set.
        not_read: Sentences about records that could not be read.
        environments: Sentences about versions and hardware.
        summary: The number of runs and the time of their training.
    """

    parts: tuple[Part, ...]
    not_read: tuple[str, ...]
    environments: tuple[str, ...]
    summary: str

    @property
    def problems(self) -> tuple[str, ...]:
        """Sentences about runs that are missing in a figure."""
        return tuple(problem for part in self.parts for problem in part.problems)

    def blocks(self, figures: str | None = None) -> Iterator[Block]:
        """Yields tables and tests as a document.

        Args:
            figures: Folder of the figures, relative to the document; None omits them.
        """
        if figures is not None:
            yield "# Comparison of runs"
            yield self.summary
        for part in self.parts:
            yield from part.blocks(figures)
        if not self.parts:
            yield "No runs."
        if self.environments:
            yield "\n".join(self.environments)
        if self.not_read:
            yield Bullets("Not read", self.not_read)

    def markdown(self, figures: str | None = None) -> str:
        """Returns tables and tests as Markdown; see `blocks`."""
        return as_markdown(self.blocks(figures))

    def html(self) -> str:
        """Returns the report as a self-contained HTML document without scripts."""
        return page_environment().get_template("report.html.j2").render(report=self)

    def write(self, folder: Path) -> list[Path]:
        """Writes `report.md`, `report.html`, the CSV files and `figures/`, each file atomically.

        Figures of an earlier report that are not in this one are removed.

        Args:
            folder: Created if it does not exist.

        Returns:
            The files, the HTML document last.

        Raises:
            OSError: If a file cannot be written.
        """
        files: dict[str, str | bytes] = {}
        for part in self.parts:
            for picture in part.pictures:
                files |= {f"figures/{picture.name}.{suffix}": getattr(picture, suffix) for suffix in _FIGURE_FORMATS}
        for name in _TABLES:
            files[f"{name}.csv"] = csv_text(part.files[name] for part in self.parts)
        files["report.md"] = self.markdown("figures")
        files["report.html"] = self.html()
        for name, content in files.items():
            write_atomically(folder / name, content)
        for path in (folder / "figures").glob("*"):
            if _FIGURE_FILE.fullmatch(path.name) and f"figures/{path.name}" not in files:
                path.unlink(missing_ok=True)
        return [folder / name for name in files]


def page_environment(package: str | None = None) -> Environment:
    """Returns the environment of the report's template, and of those in `templates/` of a package that extend it."""
    packages = ["lws_lightning.results", *([package] if package else [])]
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(name) for name in packages]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["data_uri"] = _data_uri
    return environment


def comparison_table(runs: Sequence[Run], problems: Sequence[str] = (), source: Source = "auto") -> str:
    """Returns a table for each data set, with a row for each network and method over its seeds, and tests.

    `group_runs` describes which runs a row averages; every other run is listed below the table, with the reason.

    Args:
        runs: The result of `load_runs`.
        problems: Sentences of `load_runs`, repeated at the end.
        source: As in `group_runs`.

    Returns:
        Markdown. Errors in percent, mean ± standard deviation (n - 1) over runs; the value of a single run.
    """
    return replace(make_report(runs, problems, source=source, figures=False), environments=()).markdown()


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
        runs: The runs from `load_runs`.
        not_read: The sentences from `load_runs`.
        folders: Its argument; run folders are displayed relative to them.
        source: As in `group_runs`.
        figures: Whether to draw figures.
    """
    folder_name = folder_names(folders)
    sections = group_runs(runs, source)
    styles = row_styles(sections)
    parts = [_part(section, styles, folder_name, figures) for section in sections]
    averaged = sum(len(row.members) for section in sections for row in section.rows)
    rows = sum(len(section.rows) for section in sections)
    left_out = len(runs) - averaged
    days = training_dates(run for section in sections for row in section.rows for run in row.runs)
    summary = f"{averaged} run{'s' * (averaged != 1)} in {rows} row{'s' * (rows != 1)}, {left_out or 'none'} left out."
    if days:
        summary += f" Trained {days} (UTC)."
    shortened = tuple(_shortened(sentence, folders) for sentence in not_read)
    return Report(tuple(parts), shortened, tuple(environments(sections)), summary)


def _part(section: Section, styles: Mapping[str, Style], folder_name: Callable[[Path], str], figures: bool) -> Part:
    comparisons, improved = compare(section), improvements(section)
    improvement = improvement_table(section, improved)
    tests = significance_table(section, comparisons, folder_name)
    affinities = section_affinities(section) if figures else []
    pictures, problems = section_pictures(section, styles, folder_name, affinities) if figures else ([], [])
    confusions = section_confusions(section) if figures else []
    sharing: list[Table[Any]] = [stability_table(section, affinities, MAX_LAYERS), pair_table(section, affinities)]
    return Part(
        section=section,
        errors=error_table(section) if section.rows else None,
        notes=[*foot_notes(section), *section.notes],
        improvement=improvement if improved else None,
        folders=[f"{row.letter}: {', '.join(folder_name(run.folder) for run in row.runs)}" for row in section.rows],
        costs=cost_table(section),
        tests=tests if comparisons else None,
        gains=gain_sentences(section, comparisons),
        left_out=[run.text(folder_name) for run in section.left_out],
        confusions=confusions,
        sharing=sharing if affinities else [],
        pictures=pictures,
        problems=problems,
        origins=[row_origin(row, folder_name) for row in section.rows],
        files={
            "table": row_table(section, folder_name),
            "runs": run_table(section, folder_name),
            "improvement": improvement,
            "classes": class_table(section, confusions),
            "tests": tests,
            "affinity": affinity_table(section, affinities),
            "stability": stability_table(section, affinities),
        },
    )


def folder_names(folders: Sequence[str | Path]) -> Callable[[Path], str]:
    """Returns a function from run folders to displayed names, given the folders that were searched.

    The name is the path relative to a single folder; with more than one, prefixed by that folder's name if these names
    differ; otherwise the full path.
    """
    bases = [Path(folder).parent if Path(folder).is_file() else Path(folder) for folder in folders]
    names = [base.resolve().name for base in bases]
    distinct = len(set(names)) == len(names)

    def folder_name(path: Path) -> str:
        for base, name in zip(bases, names, strict=True):
            if path == base or (path.is_relative_to(base) and (distinct or len(bases) == 1)):
                below = path.relative_to(base).as_posix()
                if path == base:
                    return name if distinct else path.as_posix()
                return below if len(bases) == 1 else f"{name}/{below}"
        return path.as_posix()

    return folder_name


def _shortened(sentence: str, folders: Sequence[str | Path]) -> str:
    return sentence.removeprefix(f"{Path(folders[0])}/") if len(folders) == 1 else sentence


def _data_uri(picture: Picture) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(picture.svg.encode()).decode()}"
