"""Intervals and verdicts on simulated runs whose truth is known."""

import numpy as np
import pytest

from lws_lightning.compare.statistics import Comparison, Sample, needed_for
from lws_lightning.compare.verdict import Facts, judge, sharing_words

TASKS = (60, 120, 240)


def simulate(rng, rates, runs, seed_deviation, hardness, times=1):
    """Returns samples: images have difficulties that all contenders share, runs have luck.

    The truth over all seeds and images is `rates` (percent), the mean over tasks.
    """
    difficulty = [rng.normal(0, hardness, times * size) for size in TASKS]
    samples = {}
    for name, rate in rates.items():
        wrong = []
        for _ in range(runs[name]):
            luck = rng.normal(0, seed_deviation / 100)
            chances = [np.clip(rate / 100 + luck + of_task, 0, 1) for of_task in difficulty]
            wrong.append([rng.random(len(chance)) < chance for chance in chances])
        samples[name] = Sample(wrong)
    return samples


@pytest.mark.parametrize(
    ("runs", "seed_deviation"),
    [
        ({"none": 3, "learned": 3, "full": 1}, 1.0),
        ({"none": 4, "learned": 2, "full": 2}, 3.0),
        ({"none": 6, "learned": 6, "full": 1}, 0.0),
    ],
)
def test_the_interval_covers_the_truth(runs, seed_deviation):
    rng = np.random.default_rng(0)
    rates = {"none": 40.0, "learned": 36.0, "full": 45.0}
    covered = {("none", "learned"): 0, ("learned", "full"): 0}
    trials = 300
    for _ in range(trials):
        comparison = Comparison(simulate(rng, rates, runs, seed_deviation, 0.15))
        for first, second in covered:
            each = comparison.difference(first, second)
            truth = rates[second] - rates[first]
            covered[first, second] += each.low <= truth <= each.high
    for pair, count in covered.items():
        # 95 % within three standard deviations of the simulation; wider is no fault, but has a bound, too
        assert 0.91 <= count / trials <= 0.995, (pair, count / trials)


def test_two_contenders_that_are_alike_are_rarely_told_apart_and_a_large_difference_nearly_always():
    rng = np.random.default_rng(1)
    runs = {"none": 3, "learned": 3}
    false = true = wrong_winner = 0
    trials = 300
    for _ in range(trials):
        alike = Comparison(simulate(rng, {"none": 30.0, "learned": 30.0}, runs, 1.0, 0.1))
        false += alike.difference("learned", "none").shown
        apart = Comparison(simulate(rng, {"none": 42.0, "learned": 30.0}, runs, 1.0, 0.1)).difference("learned", "none")
        true += apart.shown and apart.points > 0
        wrong_winner += apart.shown and apart.points < 0
    assert false / trials <= 0.09
    assert true / trials >= 0.9
    assert wrong_winner == 0


def test_the_difference_is_the_mean_over_tasks_and_antisymmetric():
    a = Sample([[np.array([True, False]), np.array([False] * 10)]] * 2)
    b = Sample([[np.array([True, True]), np.array([True] * 5 + [False] * 5)]] * 2)
    comparison = Comparison({"a": a, "b": b})
    assert a.error == 25.0
    assert b.error == 75.0
    forward, back = comparison.difference("a", "b"), comparison.difference("b", "a")
    assert forward.points == 50.0
    assert (back.points, back.low, back.high) == pytest.approx((-50.0, -forward.high, -forward.low))


def test_one_run_each_has_no_interval_and_a_probe_none_of_its_own_luck():
    rng = np.random.default_rng(2)
    one = Comparison(simulate(rng, {"none": 30.0, "full": 40.0}, {"none": 1, "full": 1}, 1.0, 0.1))
    assert one.difference("none", "full").low is None
    assert not one.difference("none", "full").shown
    samples = simulate(rng, {"none": 30.0, "probe": 30.0}, {"none": 3, "probe": 1}, 3.0, 0.1)
    with_luck = Comparison(samples).difference("none", "probe")
    fixed = Comparison({**samples, "probe": Sample(samples["probe"].wrong, seeded=False)}).difference("none", "probe")
    assert fixed.seeds < with_luck.seeds
    assert fixed.high - fixed.low < with_luck.high - with_luck.low


def test_what_is_needed_shows_the_difference_in_four_of_five_cases():
    rng = np.random.default_rng(3)
    rates, deviation = {"none": 33.0, "learned": 30.0}, 2.0
    pilot = Comparison(simulate(rng, rates, {"none": 40, "learned": 40}, deviation, 0.0))
    seeds, _ = needed_for(3.0, pilot.difference("learned", "none"), 40)
    shown = sum(
        Comparison(simulate(rng, rates, dict.fromkeys(rates, seeds), deviation, 0.0))
        .difference("learned", "none")
        .shown
        for _ in range(200)
    )
    assert 0.65 <= shown / 200 <= 0.97
    assert needed_for(0.01, pilot.difference("learned", "none"), 3) == (None, None)


def verdict_of(rates, runs=6, parameters=None, deviation=0.3, seed=0, times=1, **facts):
    rng = np.random.default_rng(seed)
    samples = simulate(rng, rates, dict.fromkeys(rates, runs), deviation, 0.0, times)
    size = {"none": 300, "full": 100, "learned": 200, "undirected": 300} | (parameters or {})
    known = {
        name: Facts(rate, size[name], "all tasks share conv1", **facts.get(name, {})) for name, rate in rates.items()
    }
    return judge(known, Comparison(samples))


def test_learned_sharing_that_wins_is_advised_with_its_interval():
    verdict = verdict_of({"none": 40.0, "full": 45.0, "learned": 25.0, "undirected": 38.0})
    assert verdict.best == verdict.recommended == "learned"
    assert verdict.sentences[0] == "Share as was learned: all tasks share conv1."
    assert "points better than separate networks (95 % interval" in verdict.sentences[1]
    assert any("one network for all is worse than it by" in sentence for sentence in verdict.sentences)
    assert not any("not the search" in sentence for sentence in verdict.sentences)


def test_sharing_that_helps_without_a_search_is_called_so():
    verdict = verdict_of({"none": 40.0, "learned": 25.0, "undirected": 25.1})
    assert verdict.recommended == "learned"
    assert any("not the search" in sentence for sentence in verdict.sentences)


def test_a_search_that_has_not_settled_is_called_so():
    verdict = verdict_of({"none": 40.0, "learned": 25.0}, learned={"unsettled": 2, "settled": 1})
    assert "The search of 2 of 3 runs has not settled" in verdict.sentences[-1]


def test_a_search_that_lost_before_it_settled_is_no_verdict_on_longer_runs():
    verdict = verdict_of({"none": 20.0, "full": 40.0, "learned": 50.0}, learned={"unsettled": 1})
    assert verdict.recommended == "none"
    assert "says little about what it reaches in longer runs" in verdict.sentences[-1]


def test_errors_that_were_still_falling_are_said():
    rates = {"none": 20.0, "full": 40.0}
    assert "still falling" in verdict_of(rates, none={"falling": 3.1}).sentences[-1]
    assert not any("still falling" in sentence for sentence in verdict_of(rates, none={"falling": 0.4}).sentences)


def test_a_smaller_network_is_advised_only_if_it_is_shown_to_be_no_worse():
    rates = {"none": 30.0, "full": 30.2, "learned": 29.9}
    noisy = verdict_of(rates, runs=3, deviation=2.0, seed=4)
    assert noisy.best == noisy.recommended == "learned"
    text = " ".join(noisy.sentences)
    assert "No difference to separate networks can be shown" in text
    assert "67 % of the parameters" in text
    assert "would show a difference of 1 point" in text or "takes both" in text
    sure = verdict_of(rates, runs=10, deviation=0.1, seed=4, times=40)
    assert sure.best == "learned"
    assert sure.recommended == "full"
    text = " ".join(sure.sentences)
    assert (
        "Learned sharing had the lowest validation error, but is better by at most 1 point on the test images" in text
    )
    assert "what is advised has 50 % of the parameters" in text


def test_separate_networks_win_where_sharing_harms():
    verdict = verdict_of({"none": 20.0, "full": 40.0, "learned": 30.0})
    assert verdict.recommended == "none"
    assert verdict.sentences[0] == "Train a separate network for each task."
    assert "Sharing does not help here: learned sharing" in verdict.sentences[1]


def test_one_run_each_recommends_the_lowest_validation_error_and_says_what_that_is_worth():
    verdict = verdict_of({"none": 30.0, "full": 31.0, "learned": 29.0}, runs=1)
    assert verdict.recommended == "learned"
    assert "in one run each, which says nothing about chance" in verdict.sentences[1]


def test_a_recommendation_with_more_test_errors_says_why_it_is_one():
    facts = {"none": Facts(6.4, 300), "full": Facts(5.1, 100), "learned": Facts(6.4, 200)}
    rates = {"none": 20.0, "full": 40.0, "learned": 10.0}
    samples = simulate(np.random.default_rng(0), rates, dict.fromkeys(rates, 1), 0.3, 0.0)
    sentences = judge(facts, Comparison(samples)).sentences
    assert sentences[0] == "Share all layers between all tasks; only the heads are separate."
    assert sentences[1].startswith("It had the lowest validation error, which alone decides. On the test images it is ")
    assert " points worse than separate networks in one run each" in sentences[1]
    assert sentences[2].startswith("Learned sharing is better than it by ")


def test_sharing_in_words():
    layers, tasks = ["conv1", "conv2", "dense"], ["a", "b", "c"]
    assert sharing_words([[0, 0, 0], [1, 1, 2], [0, 1, 2]], layers, tasks) == (
        "all tasks share conv1; a and b share conv2; nothing else is shared"
    )
    assert sharing_words([[0, 0, 0], [1, 1, 1], [2, 2, 2]], layers, tasks) == (
        "all tasks share conv1, conv2 and dense; and that is all"
    )
    assert sharing_words([[0, 1, 2]] * 3, layers, tasks) == "no layer at all"
