import sys
from itertools import product

import numpy as np
import pytest
import torch
from test_pictures import assert_nothing_cut_or_overlapping, example, names, visible_texts

from lws_lightning.drawing import affinity_figure, affinity_of_assignment, affinity_of_probabilities, picture_png


def enumerated(probs, layer, one, other):
    """The probability as a sum over all assignments of a layer."""
    _, tasks, copies = probs.shape
    total = 0.0
    for choice in product(range(copies), repeat=tasks):
        likely = 1.0
        for task in range(tasks):
            likely *= float(probs[layer, task, choice[task]])
        total += likely * (choice[one] == choice[other])
    return total


def test_affinity_of_probabilities_against_enumeration():
    probs, _ = example(3, 4, [3, 1, 2])
    probs = probs.double()
    probs /= probs.sum(-1, keepdim=True)
    affinity = affinity_of_probabilities(probs)
    assert affinity.shape == (3, 4, 4)
    assert affinity.dtype == np.float64
    for layer, one, other in product(range(3), range(4), range(4)):
        assert affinity[layer, one, other].item() == pytest.approx(enumerated(probs, layer, one, other), abs=1e-12)


def test_the_distribution_is_left_as_it_is():
    probs, _ = example(2, 3, 3)
    before = probs.clone()
    affinity_of_probabilities(probs)
    assert torch.equal(probs, before)


def test_affinity_of_an_assignment():
    affinity = affinity_of_assignment(torch.tensor([[0, 1, 0], [2, 2, 2]]))
    assert affinity.tolist() == [[[1, 0, 1], [0, 1, 0], [1, 0, 1]], [[1.0] * 3] * 3]
    assert affinity.dtype == np.float64


def test_a_sure_distribution_has_the_affinity_of_its_assignment():
    assignment = torch.randint(4, (5, 6), generator=torch.Generator().manual_seed(1))
    probs = torch.nn.functional.one_hot(assignment, 4).float()
    assert np.array_equal(affinity_of_probabilities(probs), affinity_of_assignment(assignment))


SIZES = [(1, 2), (4, 3), (20, 3), (9, 8), (3, 20), (5, 24), (4, 50), (2, 120)]


@pytest.mark.parametrize(("layers", "tasks"), SIZES)
def test_affinity_is_legible(layers, tasks):
    probs, _ = example(layers, tasks, 5)
    affinity = affinity_of_probabilities(probs)
    figure = affinity_figure(affinity, names(layers, "layer"), names(tasks, "task"), subtitle="What it is.")
    assert_nothing_cut_or_overlapping(figure)
    panels = 1 if layers == 1 or tasks > 24 else layers + 1
    assert len(figure.axes) == panels + 1  # the bar
    shown = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert len(shown) == tasks or (tasks > 70 and len(shown) >= tasks / 2)
    assert max(figure.get_size_inches()) < 25


def test_numbers_and_panels():
    affinity = torch.tensor([[[1, 0.25, 1], [0.25, 1, 0], [1, 0, 1]], [[1, 0.75, 0], [0.75, 1, 0], [0, 0, 1]]])
    figure = affinity_figure(affinity, ["one", "two"], ["x", "y", "z"])
    mean, first, second = figure.axes[:3]
    assert [axes.get_title(loc="left") for axes in figure.axes[:3]] == ["mean over layers", "one", "two"]
    assert [text.get_text() for text in mean.texts] == ["50", "50", "50", "0", "50", "0"]
    assert [text.get_text() for text in first.texts] == ["25", "100", "25", "0", "100", "0"]
    assert [text.get_text() for text in second.texts] == ["75", "0", "75", "0", "0", "0"]
    (mesh,) = mean.collections
    assert mesh.get_array().mask.diagonal().all()
    assert mesh.get_array().compressed().tolist() == pytest.approx([0.5, 0.5, 0.5, 0, 0.5, 0])
    assert (mesh.norm.vmin, mesh.norm.vmax) == (0, 1)
    assert [label.get_text() for label in mean.get_xticklabels()] == ["x", "y", "z"]


def test_it_says_what_the_mean_is_and_what_is_left_out():
    def texts(layers, tasks):
        figure = affinity_figure(torch.ones(layers, tasks, tasks), ["l"] * layers, ["t"] * tasks)
        return " ".join(text.get_text() for text in visible_texts(figure))

    assert "Every layer counts alike in the mean" in texts(2, 3)
    assert "With so many tasks only the mean" in texts(2, 30)
    assert "percent" not in texts(2, 9)
    assert "mean" not in texts(1, 3)


def test_names_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="2 layer names and 2 task names do not fit"):
        affinity_figure(torch.ones(2, 3, 3), ["a", "b"], ["x", "y"])
    with pytest.raises(ValueError, match="at least two tasks"):
        affinity_figure(torch.ones(1, 1, 1), ["a"], ["x"])


def test_pyplot_is_not_used():
    before = "matplotlib.pyplot" in sys.modules
    picture_png(affinity_figure(torch.ones(2, 3, 3), ["a", "b"], ["x", "y", "z"]))
    assert ("matplotlib.pyplot" in sys.modules) == before
