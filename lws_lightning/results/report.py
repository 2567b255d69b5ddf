"""Puts a report together and writes its files."""

import base64
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from lws_lightning.records import Run, write_atomically
from lws_lightning.results.affinity import Affinity, section_affinities
from lws_lightning.results.affinity_tables import (
    AFFINITY_EXPLAINED,
    STABILITY_EXPLAINED,
    affinity_rows,
    pair_cells,
    stability_cells,
    stability_rows,
)
from lws_lightning.results.drawing import styles
from lws_lightning.results.figures import KINDS, Picture, section_pictures
from lws_lightning.results.grouping import Section, Source, group_runs
from lws_lightning.results.inference import INFERENCE_EXPLAINED, inference_cells
from lws_lightning.results.markdown import TESTS_EXPLAINED, bullets, holm_explained, section_markdown
from lws_lightning.results.origin import Origin, machines, row_origin, when
from lws_lightning.results.significance import Comparison, compare, comparison_rows, significance_cells
from lws_lightning.results.table import (
    caption,
    csv_text,
    foot_notes,
    markdown_cell,
    markdown_table,
    run_rows,
    table_cells,
    table_rows,
)

__all__ = ["Report", "folder_names", "make_report"]

_ENDINGS = ("png", "svg")
_A_FIGURE = re.compile(rf"({'|'.join(KINDS)})_[A-Z]+_\w+\.(png|svg)")


@dataclass(frozen=True)
class Part:
    """What a report says about one data set.

    Attributes:
        section: Its rows.
        comparisons: The tests.
        pictures: The figures, none if they were not wanted.
        problems: Sentences about runs that a figure has to do without.
        origins: How the runs of each row were made.
        affinities: Which tasks share in each learned row, none if figures were not wanted.
    """

    section: Section
    comparisons: tuple[Comparison, ...]
    pictures: tuple[Picture, ...]
    problems: tuple[str, ...]
    origins: tuple[Origin, ...]
    affinities: tuple[Affinity, ...]


@dataclass(frozen=True)
class Report:
    """A comparison of runs: tables, tests, figures and where they come from.

    Attributes:
        parts: One for each data set.
        not_read: Sentences about records that could not be read.
        machines: Sentences about versions and hardware.
        summary: How many runs, and when they ran.
        name: How a folder is called.
    """

    parts: tuple[Part, ...]
    not_read: tuple[str, ...]
    machines: tuple[str, ...]
    summary: str
    name: Callable[[Path], str]

    @property
    def problems(self) -> tuple[str, ...]:
        """Sentences about runs that a figure has to do without."""
        return tuple(problem for part in self.parts for problem in part.problems)

    def markdown(self, figures: str | None = None) -> str:
        """Returns tables and tests as Markdown.

        Args:
            figures: Where the figures lie, seen from the Markdown's file; None leaves them out.
        """
        texts = [] if figures is None else [f"# Comparison of runs\n\n{self.summary}\n"]
        for part in self.parts:
            texts.append(section_markdown(part.section, part.comparisons, self.name))
            if figures is not None:
                if part.affinities:
                    header, body = stability_cells(part.affinities)
                    texts += [f"{STABILITY_EXPLAINED}\n", markdown_table(header, body, range(3))]
                    header, body = pair_cells(part.affinities)
                    texts += [f"{AFFINITY_EXPLAINED}\n", markdown_table(header, body, range(3))]
                for picture in part.pictures:
                    texts.append(f"![{markdown_cell(picture.alt)}]({figures}/{picture.name}.png)\n")
                    texts.append(f"{markdown_cell(picture.caption)}\n")
                    if picture.numbers:
                        texts.append(markdown_table(picture.numbers.header, picture.numbers.body, (0,)))
                if part.problems:
                    texts.append(bullets("Missing in the figures", part.problems))
        if self.machines:
            texts.append("".join(f"{markdown_cell(sentence)}\n" for sentence in self.machines))
        if self.not_read:
            texts.append(bullets("Not read", self.not_read))
        return "\n".join(texts)

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
        return environment.get_template("report.html.j2").render(
            summary=self.summary,
            parts=[
                {
                    "title": part.section.title,
                    "caption": caption(part.section) if part.section.rows else "",
                    "table": table_cells(part.section),
                    "costs": inference_cells(part.section),
                    "costs_explained": INFERENCE_EXPLAINED,
                    "notes": [*foot_notes(part.section), *part.section.notes],
                    "tests": significance_cells(part.comparisons),
                    "tests_explained": TESTS_EXPLAINED + holm_explained(part.comparisons),
                    "stability": stability_cells(part.affinities) if part.affinities else None,
                    "stability_explained": STABILITY_EXPLAINED,
                    "pairs": pair_cells(part.affinities),
                    "pairs_explained": AFFINITY_EXPLAINED,
                    "pictures": [(picture, _data_uri(picture)) for picture in part.pictures],
                    "problems": part.problems,
                    "origins": part.origins,
                    "left_out": [each.text(self.name) for each in part.section.left_out],
                }
                for part in self.parts
            ],
            machines=self.machines,
            not_read=self.not_read,
        )

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
        sections = [part.section for part in self.parts]
        tests = [row for part in self.parts for row in comparison_rows(part.section, part.comparisons, self.name)]
        files: dict[str, str | bytes] = {}
        for part in self.parts:
            for picture in part.pictures:
                files |= {f"figures/{picture.name}.{ending}": getattr(picture, ending) for ending in _ENDINGS}
        files["table.csv"] = csv_text(table_rows(sections, self.name))
        files["runs.csv"] = csv_text(run_rows(sections, self.name))
        files["tests.csv"] = csv_text(tests)
        pairs = [row for part in self.parts for row in affinity_rows(part.section, part.affinities)]
        files["affinity.csv"] = csv_text(pairs)
        files["stability.csv"] = csv_text(
            [row for part in self.parts for row in stability_rows(part.section, part.affinities)]
        )
        files["report.md"] = self.markdown("figures")
        files["report.html"] = self.html()
        for name, content in files.items():
            write_atomically(folder / name, content)
        for path in (folder / "figures").glob("*"):
            if _A_FIGURE.fullmatch(path.name) and f"figures/{path.name}" not in files:
                path.unlink(missing_ok=True)
        return [folder / name for name in files]


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
    name = folder_names(folders)
    sections = group_runs(runs, source)
    looks = styles(sections)
    parts = []
    for section in sections:
        affinities = section_affinities(section) if figures else []
        pictures, problems = section_pictures(section, looks, name, affinities) if figures else ([], [])
        origins = tuple(row_origin(row, name) for row in section.rows)
        comparisons = tuple(compare(section))
        parts.append(Part(section, comparisons, tuple(pictures), tuple(problems), origins, tuple(affinities)))
    averaged = sum(len(row.members) for section in sections for row in section.rows)
    rows = sum(len(section.rows) for section in sections)
    left_out = len(runs) - averaged
    days = when(run for section in sections for row in section.rows for run in row.runs)
    summary = f"{averaged} run{'s' * (averaged != 1)} in {rows} row{'s' * (rows != 1)}, {left_out or 'none'} left out."
    if days:
        summary += f" Trained {days} (UTC)."
    shortened = tuple(_shortened(sentence, folders) for sentence in not_read)
    return Report(tuple(parts), shortened, tuple(machines(sections)), summary, name)


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

    def name(path: Path) -> str:
        for base, own in zip(bases, names, strict=True):
            if path == base or (path.is_relative_to(base) and (distinct or len(bases) == 1)):
                below = path.relative_to(base).as_posix()
                if path == base:
                    return own if distinct else path.as_posix()
                return below if len(bases) == 1 else f"{own}/{below}"
        return path.as_posix()

    return name


def _shortened(sentence: str, folders: Sequence[str | Path]) -> str:
    return sentence.removeprefix(f"{Path(folders[0])}/") if len(folders) == 1 else sentence


def _data_uri(picture: Picture) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(picture.svg.encode()).decode()}"
