import sys
from itertools import combinations

import matplotlib.text
import pytest
import torch
from matplotlib import rcParams
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb

from lws_lightning.drawing import (
    affinity_figure,
    assignment_figure,
    copy_letter,
    groups_text,
    ink_on,
    picture_array,
    picture_png,
    probabilities_figure,
    shorten,
)
from lws_lightning.drawing.style import copy_colour, tint

ODD_NAMES = ["Japanese_(katakana)", "a.b", "été/2", "$x_1$", "a very long name that says much more than needed"]


def names(count, kind):
    return [f"{kind}_{i}" if i >= len(ODD_NAMES) else ODD_NAMES[i] for i in range(count)]


def example(layers, tasks, copies, sharpness=0.3):
    sizes = copies if isinstance(copies, list) else [copies] * layers
    generator = torch.Generator().manual_seed(0)
    probs = torch.zeros(layers, tasks, max(sizes))
    for layer, size in enumerate(sizes):
        raw = torch.rand(tasks, size, generator=generator) ** (1 / sharpness)
        probs[layer, :, :size] = raw / raw.sum(-1, keepdim=True)
    return probs, sizes


def visible_texts(figure):
    FigureCanvasAgg(figure).draw()
    return [text for text in figure.findobj(matplotlib.text.Text) if text.get_visible() and text.get_text().strip()]


def assert_nothing_cut_or_overlapping(figure):
    texts = visible_texts(figure)
    boxes = [text.get_window_extent() for text in texts]
    for text, box in zip(texts, boxes, strict=True):
        inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1
        assert inside, f"{text.get_text()!r} is cut"
    for (one, a), (other, b) in combinations(zip(texts, boxes, strict=True), 2):
        overlap = min(a.x1, b.x1) - max(a.x0, b.x0) > 1 and min(a.y1, b.y1) - max(a.y0, b.y0) > 1
        assert not overlap, f"{one.get_text()!r} and {other.get_text()!r} overlap"


SIZES = [(1, 1, 1), (4, 3, 3), (3, 20, 20), (4, 50, 20), (12, 7, [1, 2, 5, 20, 1, 3, 3, 3, 7, 9, 2, 1]), (2, 2, 30)]


@pytest.mark.parametrize(("layers", "tasks", "copies"), SIZES)
def test_assignment_is_legible(layers, tasks, copies):
    probs, sizes = example(layers, tasks, copies)
    figure = assignment_figure(probs.argmax(-1), names(layers, "layer"), names(tasks, "task"), sizes)
    assert_nothing_cut_or_overlapping(figure)


@pytest.mark.parametrize(("layers", "tasks", "copies"), SIZES)
def test_probabilities_are_legible(layers, tasks, copies):
    probs, sizes = example(layers, tasks, copies)
    figure = probabilities_figure(probs, names(layers, "layer"), names(tasks, "task"), sizes)
    assert_nothing_cut_or_overlapping(figure)


def test_assignment_letters_and_colours():
    assignment = torch.tensor([[0, 0, 2], [1, 0, 1]])
    figure = assignment_figure(assignment, ["conv1", "conv2"], ["x", "y", "z"], [3, 2])
    letters = {}
    for text in visible_texts(figure):
        if text.get_text() in "ABC":
            letters[round(text.get_position()[1], 3), text.get_position()[0]] = text.get_text()
    rows = sorted({y for y, _ in letters})
    read = [[letters[y, x] for y2, x in sorted(letters) if y2 == y] for y in rows]
    assert read == [["A", "A", "C"], ["B", "A", "B"]]  # the input at the bottom
    bottom, top = (collection.get_facecolor()[:, :3] for collection in figure.axes[0].collections)
    assert bottom[0] == pytest.approx(copy_colour(0))
    assert (bottom[0] == bottom[1]).all()
    assert bottom[2].sum() > sum(copy_colour(2))  # pale, because no other task has it
    assert top[0] == pytest.approx(copy_colour(1))
    texts = [text.get_text() for text in visible_texts(figure)]
    assert "2 of 3 copies used" in texts
    assert "2 of 2 copies used" in texts


def test_probabilities_numbers_and_outlines():
    probs = torch.tensor([[[0.7, 0.3, 0.0], [0.004, 0.996, 0.0]], [[0.2, 0.2, 0.6], [1.0, 0.0, 0.0]]])
    figure = probabilities_figure(probs, ["one", "two"], ["x", "y"], [2, 3])
    first, second = figure.axes[:2]
    assert [text.get_text() for text in first.texts] == ["70", "30", "100"]
    assert [text.get_text() for text in second.texts] == ["20", "20", "60", "100"]
    assert [label.get_text() for label in first.get_xticklabels()] == ["A", "B"]
    assert [label.get_text() for label in first.get_yticklabels()] == ["x", "y"]
    mesh, outlines = second.collections
    assert mesh.get_array().flatten().tolist() == pytest.approx(probs[1].flatten().tolist())
    assert (mesh.norm.vmin, mesh.norm.vmax) == (0, 1)
    assert [path.vertices.min(0).tolist() for path in outlines.get_paths()] == [[2, 0], [0, 1]]


def test_large_panels_have_no_numbers():
    probs, sizes = example(1, 50, 20)
    figure = probabilities_figure(probs, ["one"], names(50, "task"), sizes)
    assert len(figure.axes[0].texts) == 0
    assert not any("percent" in text.get_text() for text in visible_texts(figure))


def test_names_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="1 layer names, 2 task names and 1 weights_per_layer"):
        assignment_figure(torch.zeros(1, 3, dtype=torch.int64), ["a"], ["x", "y"], [1])
    with pytest.raises(ValueError, match="do not fit the shape"):
        probabilities_figure(torch.ones(2, 1, 1), ["a", "b"], ["x"], [1])


def test_pyplot_is_not_used():
    probs, sizes = example(2, 3, 3)
    before = "matplotlib.pyplot" in sys.modules
    picture_png(probabilities_figure(probs, ["a", "b"], ["x", "y", "z"], sizes))
    assert ("matplotlib.pyplot" in sys.modules) == before


def test_array_is_the_png():
    figure = assignment_figure(torch.zeros(1, 2, dtype=torch.int64), ["a"], ["x", "y"], [1])
    array = picture_array(figure)
    assert array.shape[2] == 3
    assert array.dtype == "uint8"
    assert array[0, 0].tolist() == [255, 255, 255]
    png = picture_png(figure)
    assert png.startswith(b"\x89PNG")
    width, height = (int.from_bytes(png[i : i + 4]) for i in (16, 20))
    assert abs(height - array.shape[0]) <= 1
    assert abs(width - array.shape[1]) <= 1


def test_letters():
    assert [copy_letter(i) for i in (0, 25, 26, 51, 52, 701, 702)] == ["A", "Z", "AA", "AZ", "BA", "ZZ", "AAA"]


def test_colours_differ_even_without_red_and_green():
    """Viénot's projection for deuteranopes; the first three copies have to be far apart, all twenty different."""
    seen = []
    for index in range(20):
        red, green, blue = copy_colour(index)
        mixed = 0.29275 * red + 0.70725 * green
        seen.append((mixed, mixed, -0.02234 * red + 0.02234 * green + blue))
    distances = {
        (a, b): sum((x - y) ** 2 for x, y in zip(seen[a], seen[b], strict=True)) ** 0.5
        for a, b in combinations(range(20), 2)
    }
    assert min(value for (_, b), value in distances.items() if b < 3) > 0.25
    assert min(distances.values()) > 0.02
    assert len({copy_colour(index) for index in range(20)}) == 20
    assert copy_colour(20) == copy_colour(0)


def test_ink_and_tint():
    assert ink_on(to_rgb("white")) == "black"
    assert ink_on(to_rgb("#332288")) == "white"
    assert tint((0.0, 0.5, 1.0), 0.5) == (0.5, 0.75, 1.0)


def test_shorten():
    assert shorten("short") == "short"
    long = shorten("large_omnivores_and_herbivores", 20)
    assert len(long) == 20
    assert long.startswith("large_omniv")
    assert long.endswith("…ivores")
    assert shorten("two\nlines") == "two lines"


def test_groups_text():
    assignment = torch.tensor([[1, 0, 1, 2], [0, 0, 0, 0], [3, 2, 1, 0]])
    text = groups_text(assignment, ["conv", "mid|dle", "top"], ["a.b", "été/2", "c`d", "_e_"])
    assert text.splitlines() == [
        *("### `conv`", "", "- **B**, 2 tasks: `a.b`, `c'd`", "- not shared: `été/2` (A), `_e_` (C)", ""),
        *("### `mid|dle`", "", "- **A**, 4 tasks: `a.b`, `été/2`, `c'd`, `_e_`", ""),
        *("### `top`", "", "- not shared: `a.b` (D), `été/2` (C), `c'd` (B), `_e_` (A)"),
    ] + ([""] if text.endswith("\n\n") else [])


MATH = ["price_$10_to_$20", r"\$a\frac{$", "$x_1$", "50% {a} ^_#&~"]


@pytest.mark.parametrize("layers", [1, 4])
def test_names_that_look_like_formulas_are_drawn_as_they_are(layers):
    probs, sizes = example(layers, 4, 2)
    figures = [
        assignment_figure(probs.argmax(-1), MATH[:layers], MATH, sizes, "$_$ of $_$"),
        probabilities_figure(probs, MATH[:layers], MATH, sizes),
        affinity_figure(torch.rand(layers, 4, 4), MATH[:layers], MATH, "$_$ of $_$", r"$\x$"),
    ]
    for figure in figures:
        assert_nothing_cut_or_overlapping(figure)
        assert not any(text.get_parse_math() for text in visible_texts(figure) if "$" in text.get_text())
        assert picture_png(figure)
    assert rcParams["text.parse_math"]  # of others' pictures nothing changes


def test_open_choices_fade_and_have_a_question_mark():
    assignment, sure = torch.tensor([[0, 0, 0]]), torch.tensor([[0.95, 0.5, 0.34]])
    figure = assignment_figure(assignment, ["conv"], ["x", "y", "z"], [3], probabilities=sure)
    assert [text.get_text() for text in figure.axes[0].texts if text.get_text()[0] == "A"] == ["A", "A?", "A?"]
    (cells,) = figure.axes[0].collections
    assert cells.get_facecolor()[0, :3] == pytest.approx(copy_colour(0))
    assert (cells.get_facecolor()[:, :3].sum(1)[:-1] < cells.get_facecolor()[:, :3].sum(1)[1:]).all()
    assert any("not decided" in text.get_text() for text in figure.texts)
    assert_nothing_cut_or_overlapping(figure)
    decided = assignment_figure(assignment, ["conv"], ["x", "y", "z"], [3], probabilities=sure.clamp(min=0.91))
    assert not any("not decided" in text.get_text() for text in decided.texts)
