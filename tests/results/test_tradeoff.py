"""The figure of error against parameters."""

import pytest
from test_figures import assert_legible

from lws_lightning.results import load_runs
from lws_lightning.results.drawing import row_styles
from lws_lightning.results.figures import section_pictures
from lws_lightning.results.grouping import group_runs
from lws_lightning.results.tradeoff import price_curves, tradeoff_figure, tradeoff_points


def rows_of(tmp_path):
    (section,) = group_runs(load_runs([tmp_path])[0])
    return section, row_styles([section])


@pytest.fixture
def prices(write_run, measured, tmp_path):
    for method, parameters, low in (("full", 1000, 20.0), ("none", 3000, 12.0)):
        for seed in range(2):
            found = measured(low=low + seed)
            write_run(
                f"{method}{seed}", method=method, seed=seed, parameters_in_use=parameters, evaluation=found, hparams={}
            )
    for price, parameters in ((0.5, 1200), (0.0, 2600), (0.1, 1900)):
        for seed in range(2):
            hparams, found = {"weight_price": price, "nes_lr": 0.1}, measured(low=10 + 8 * price)
            count = parameters + 100 * seed
            write_run(f"learned{price}{seed}", seed=seed, parameters_in_use=count, evaluation=found, hparams=hparams)
    write_run("other", seed=0, parameters_in_use=2000, hparams={"weight_price": 0.1, "nes_lr": 0.2})
    return rows_of(tmp_path)


def test_points_are_means_with_deviations(prices):
    section, _ = prices
    points = {point.row.label: point for point in tradeoff_points(section.rows)}
    full = points["full"]
    assert full.parameters == 1000
    assert full.error == pytest.approx((20 * 100 + 20 * 300) / 400 + 0.125)  # low is a quarter of the images
    assert full.deviations[0] == 0
    assert full.deviations[1] == pytest.approx(0.25 / 2**0.5)
    assert len(points) == 6


def test_prices_are_joined_by_rising_price_and_other_options_are_not(prices):
    section, _ = prices
    (curve,) = price_curves(tradeoff_points(section.rows))
    assert [point.row.options["weight_price"] for point in curve] == [0.0, 0.1, 0.5]
    assert [point.parameters for point in curve] == [2650, 1950, 1250]
    assert all(point.row.options["nes_lr"] == 0.1 for point in curve)


def test_the_figure_is_legible(prices):
    section, looks = prices
    figure = tradeoff_figure(tradeoff_points(section.rows), looks, "Error against parameters", section.title)
    assert_legible(figure)
    axes = figure.axes[0]
    assert axes.get_xlabel() == "parameters in use, all tasks"
    assert axes.get_xlim()[0] == 0


def test_the_report_has_it_with_its_numbers_in_words(prices):
    section, looks = prices
    pictures, _ = section_pictures(section, looks)
    (picture,) = [picture for picture in pictures if picture.name.startswith("parameters_")]
    assert "weight_price alone" in picture.caption
    assert "full 1,000, 20.12 %" in picture.alt


def test_rows_with_equal_parameters_make_no_figure(write_run, tmp_path):
    for method in ("full", "learned"):
        write_run(method, method=method)
    section, looks = rows_of(tmp_path)
    assert tradeoff_points(section.rows) == []
    assert not [p for p in section_pictures(section, looks)[0] if p.name.startswith("parameters_")]
