import json
from itertools import combinations

import matplotlib.text
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb

from lws_lightning.drawing import picture_svg
from lws_lightning.results import load_runs
from lws_lightning.results.affinity import section_affinities
from lws_lightning.results.curves import band
from lws_lightning.results.drawing import Line, entropy_figure, error_figure, group_sizes_figure, row_styles
from lws_lightning.results.figures import section_pictures
from lws_lightning.results.group_sizes import group_shares
from lws_lightning.results.grouping import group_runs


def assert_legible(figure):
    """No text is cut, and no two overlap."""
    FigureCanvasAgg(figure).draw()
    beyond = set()  # labels of ticks beyond the axes, which are not drawn
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            beyond |= {id(tick.label1) for tick in axis.get_major_ticks() if not low <= tick.get_loc() <= high}
    found = figure.findobj(matplotlib.text.Text)
    shown = [t for t in found if t.get_visible() and t.get_text().strip() and id(t) not in beyond]
    boxes = [(text.get_text(), text.get_window_extent()) for text in shown]
    for text, box in boxes:
        inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1
        assert inside, f"{text!r} is cut"
    for (one, a), (other, b) in combinations(boxes, 2):
        overlap = min(a.x1, b.x1) - max(a.x0, b.x0) > 1 and min(a.y1, b.y1) - max(a.y0, b.y0) > 1
        assert not overlap, f"{one!r} and {other!r} overlap"


def lines(write_run, tmp_path, options=1):
    for method in ("full", "none", "prior", "learned", "cross_stitch"):
        for number in range(options):
            hparams = {"an_option_with_a_rather_long_name": f"and_a_long_value_{number}", "nes_lr": number}
            write_run(f"{method}{number}", method=method, hparams=hparams if options > 1 else {})
    sections = group_runs(load_runs([tmp_path])[0])
    looks = row_styles(sections)
    steps = range(200, 20_001, 200)
    found = []
    for i, row in enumerate(sections[0].rows):
        runs = [{step: 20 + i + 60 * 2 ** (-step / 800) + seed for step in steps} for seed in range(3)]
        found.append(Line(f"{row.letter} {row.label}, n = 3", looks[row.letter], band(runs), runs))
    return found


@pytest.mark.parametrize("options", [1, 3])
def test_error_figure_is_legible(write_run, tmp_path, options):
    figure, cut = error_figure(lines(write_run, tmp_path, options), "Test error", "Omniglot, 50 tasks, a_network")
    assert_legible(figure)
    assert cut
    axes = figure.axes[0]
    assert axes.get_ylabel() == "error over all images (%)"
    assert axes.get_xlabel() == "training step"
    assert len(axes.lines) == 5 * options
    assert axes.get_ylim()[1] < 60


@pytest.mark.parametrize("options", [1, 3])
def test_entropy_figure_is_legible(write_run, tmp_path, options):
    drawn = lines(write_run, tmp_path, options)[:2]
    figure = entropy_figure(drawn, {"uniform, K = 3": 80.0, "uniform, K = 2": 79.0}, "Entropy", "Digits, 3 tasks")
    assert_legible(figure)
    assert figure.axes[0].get_ylabel() == "mean entropy (nats)"
    assert len(figure.axes[0].lines) == 2 * (3 + 1) + 2


@pytest.mark.parametrize("name", ["conv{}", "stage{}_block1", "a very long name of a layer, number {}"])
@pytest.mark.parametrize(("layers", "tasks", "copies"), [(3, 3, 3), (8, 50, 20), (1, 1, 1), (5, 8, 8)])
def test_group_sizes_figure_is_legible(layers, tasks, copies, name):
    assignment = [[(task * (layer + 1)) % copies for task in range(tasks)] for layer in range(layers)]
    names = [name.format(layer) for layer in range(layers)]
    title = f"Data, {tasks} tasks, network: C learned, n = 1"
    figure = group_sizes_figure(group_shares([assignment]), names, "How many tasks share a layer", title)
    assert_legible(figure)
    bars = figure.axes[0].containers
    for layer in range(layers):
        assert sum(container[layer].get_height() for container in bars) == pytest.approx(100)


def test_one_look_for_each_row(write_run, tmp_path):
    for method in ("full", "none", "prior", "learned", "sluice", "cross_stitch"):
        for lr in (1, 2):
            for data in ("Digits", "Letters"):
                write_run(f"{method}{lr}{data}", method=method, data=data, hparams={"lr": lr})
    sections = group_runs(load_runs([tmp_path])[0])
    looks = row_styles(sections)
    first, second = ([looks[row.letter] for row in section.rows] for section in sections)
    assert first == second
    assert len(set(first)) == len(first) == 12
    assert len({look.colour for look in first}) == 6


def test_known_methods_differ_in_grey_or_dashes(write_run, tmp_path):
    for method in ("full", "none", "prior", "learned"):
        write_run(method, method=method)
    looks = list(row_styles(group_runs(load_runs([tmp_path])[0])).values())
    assert len({look.dashes for look in looks}) == 4
    assert all(0.2126 * r + 0.7152 * g + 0.0722 * b < 0.7 for r, g, b in (to_rgb(look.colour) for look in looks))


def test_pictures_of_a_section(write_study, tmp_path):
    write_study(full=[20, 21], none=[15, 16, 17], learned=[10, 11, 12])
    (tmp_path / "learned/seed1/curve.csv").unlink()
    sections = group_runs(load_runs([tmp_path])[0])
    affinities = section_affinities(sections[0])
    pictures, problems = section_pictures(sections[0], row_styles(sections), lambda path: path.name, affinities)
    kinds = [picture.name.split("_")[0] for picture in pictures]
    assert kinds == ["error", "entropy", "groups", "affinity", "assignment"]
    assert problems == ["seed1: has no curve.csv. The curves go on without it."]
    error, entropy, groups, affinity, assignment = pictures
    assert "rows A, B, C" in error.caption
    assert "full 20.50 %; none 16.00 %; learned 11.00 %" in error.alt
    assert "0.600 to 0.110 nats" in entropy.alt
    assert groups.numbers.cells == [["conv", "66.7 %", "33.3 %"]]
    assert "Share of 3 seeds" in affinity.caption
    assert "low and high 33 %" in affinity.alt
    assert "seed 0 of row C (seed0)" in assignment.caption
    for picture in pictures:
        assert picture.png.startswith(b"\x89PNG")
        assert "<dc:date>" not in picture.svg


def test_svg_is_the_same_each_time():
    def draw():
        return picture_svg(group_sizes_figure([[100.0, 0.0]], ["conv"], "title", "subtitle"))

    assert draw() == draw()


def test_curves_that_diverged_leave_a_gap(write_run, tmp_path):
    (full, *_) = lines(write_run, tmp_path)
    runs = [{100: 5.0, 200: float("nan"), 300: 4.0}] * 3
    figure, cut = error_figure([Line("A", full.style, band(runs), runs)], "title", "subtitle")
    assert_legible(figure)
    assert not cut
    runs = [{100: float("nan")}]
    figure, cut = error_figure([Line("A", full.style, band(runs), runs)], "title", "subtitle")
    assert_legible(figure)
    assert_legible(entropy_figure([Line("A", full.style, band(runs), runs)], {}, "title", "subtitle"))


def test_one_task_has_no_affinity(write_run, tmp_path):
    write_run("a", task_names=["low"], assignment=[[0]])
    sections = group_runs(load_runs([tmp_path])[0])
    pictures, problems = section_pictures(sections[0], row_styles(sections), affinities=section_affinities(sections[0]))
    assert [picture.name.split("_")[0] for picture in pictures] == ["groups", "assignment"]
    assert problems == [f"{tmp_path / 'a'}: has no curve.csv. The curves go on without it."]


def test_runs_without_an_assignment_have_no_figures_of_the_sharing(write_run, tmp_path):
    write_run("a", assignment=[])
    sections = group_runs(load_runs([tmp_path])[0])
    pictures, problems = section_pictures(sections[0], row_styles(sections))
    assert pictures == []
    assert problems[-1].endswith("its record has no assignment. The figures of the sharing go on without it.")


def test_names_that_look_like_formulas_are_drawn_as_they_are(write_study, tmp_path):
    write_study(full=[20, 21], learned=[10, 11, 12])
    for number, path in enumerate(sorted(tmp_path.rglob("result.json"))):
        record = json.loads(path.read_text())
        record |= {"layer_names": ["$_$ a"], "data": "$_$ b", "network": r"$\x$ c", "parameters_in_use": 100 + number}
        record["identity"]["method"]["option"] = f"$_$ {record['method']}"
        text = json.dumps(record).replace('"low"', '"price_$10_to_$20"')
        path.write_text(text)
    sections = group_runs(load_runs([tmp_path])[0])
    affinities = section_affinities(sections[0])
    pictures, _ = section_pictures(sections[0], row_styles(sections), lambda path: path.name, affinities)
    kinds = [picture.name.split("_")[0] for picture in pictures]
    assert kinds == ["error", "entropy", "parameters", "groups", "affinity", "assignment"]
