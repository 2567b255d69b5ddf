"""Steps and rounds as pure functions: the budget holds, the leaders get most."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lws_lightning.compare.plan import EVALUATIONS, LIMITS, Limits, Plan, Timing, choose_steps, makespan, run_seconds
from lws_lightning.compare.rounds import MOST_SEEDS, REFERENCE, Standing, next_round, ranked

NAMES = ["none", "full", "learned", "undirected", "adapters", "probe"]
seconds = st.floats(0.001, 5, allow_nan=False)
timings = st.lists(st.tuples(seconds, seconds, seconds), min_size=2, max_size=6).map(
    lambda values: {name: Timing(*value) for name, value in zip(NAMES, values, strict=False)}
)


def test_makespan_is_that_of_starting_each_run_when_there_is_room():
    assert makespan([3, 1, 1, 1], 2) == 3
    assert makespan([1, 1, 1, 3], 2) == 4
    assert makespan([2, 2], 1) == 4
    assert makespan([], 3) == 0


@given(timings, st.floats(1, 60), st.integers(1, 4), st.floats(1, 1e5), st.integers(1, 500))
def test_the_first_round_keeps_to_its_half_and_the_steps_to_their_bounds(of, overhead, jobs, budget, steps_per_pass):
    limits = Limits()
    try:
        steps, seeds = choose_steps(of, overhead, jobs, budget, steps_per_pass)
    except ValueError as error:
        needed = error.args[0]
        assert needed > budget
        assert choose_steps(of, overhead, jobs, needed, steps_per_pass)  # what is asked for suffices
        return

    def round_one(steps, seeds):
        return makespan([run_seconds(timing, steps, overhead) for timing in of.values()] * seeds, jobs)

    upper = max(limits.fewest, min(limits.most, limits.passes * steps_per_pass))
    assert limits.fewest <= steps <= upper
    assert steps % EVALUATIONS == 0
    assert round_one(steps, seeds) <= budget / 2 or (steps == limits.fewest and seeds == 1)
    assert round_one(steps, 1) <= budget
    if steps + EVALUATIONS <= upper:  # no more would have fitted
        assert round_one(steps + EVALUATIONS, 1) > budget / 2


def test_a_budget_that_is_too_small_says_what_is_needed():
    of = {"none": Timing(0.1, 1.0, 0.0), "full": Timing(0.1, 1.0, 0.0), "learned": Timing(0.2, 1.0, 0.0)}
    steps = LIMITS.fewest
    one, learned = 10 + steps * 0.1 + EVALUATIONS, 10 + steps * 0.2 + EVALUATIONS
    with pytest.raises(ValueError, match=r"\d") as refused:
        choose_steps(of, 10.0, 1, 200.0, 100)
    assert refused.value.args[0] == pytest.approx(2 * one + learned + (one + learned))


def test_few_images_bound_the_steps_and_leave_time_for_two_seeds():
    of = {"none": Timing(0.01, 0.1, 0.0), "full": Timing(0.01, 0.1, 0.0)}
    assert choose_steps(of, 5.0, 1, 1e5, steps_per_pass=20) == (1200, 2)
    assert choose_steps(of, 5.0, 1, 1e5, steps_per_pass=1) == (LIMITS.fewest, 2)
    assert choose_steps(of, 5.0, 1, 1e5, steps_per_pass=1000) == (5000, 2)


def test_a_plan_is_read_as_it_was_written(tmp_path):
    assert Plan.read(tmp_path) is None
    plan = Plan(
        1, {"ROOT": "a"}, "d", {"t": [3, 1]}, ["none"], 300, 1, {"none": Timing(0.1, 1.0, 0.0)}, 9.0, 30.0, ["Found"]
    )
    plan.write(tmp_path)
    assert Plan.read(tmp_path) == plan
    (tmp_path / "plan.json").write_text("{}")
    with pytest.raises(ValueError, match=r"plan\.json cannot be read .* give another --out"):
        Plan.read(tmp_path)


def compared(truth, costs, budget, jobs):
    """Plays a comparison whose runs have known errors and durations. Returns scores and seconds by contender."""
    scores = {name: [truth[name](0)] for name in truth}
    spent = makespan([costs[name] for name in truth], jobs)
    rounds = 0
    while True:
        standings = [Standing(n, tuple(scores[n]), costs[n], seeded=n != "probe") for n in truth]
        chosen = next_round(standings, budget - spent, jobs)
        assert chosen == next_round(standings, budget - spent, jobs)
        if not chosen:
            return scores, spent, rounds
        rounds += 1
        assert len(set(chosen)) == len(chosen)
        took = makespan([costs[name] for name in chosen], jobs)
        assert spent + took <= budget + 1e-6
        spent += took
        for name in chosen:
            scores[name].append(truth[name](len(scores[name])))


@settings(deadline=None)
@given(st.data(), st.integers(2, 6), st.integers(1, 3), st.floats(50, 5000))
def test_rounds_never_exceed_the_budget_and_the_leaders_get_most(data, number, jobs, budget):
    names = NAMES[:number]
    costs = {name: data.draw(st.floats(5, 100)) for name in names}
    errors = {name: data.draw(st.integers(0, 100)) for name in names}
    truth = {name: lambda seed, name=name: errors[name] + (seed * 7 % 3) / 100 for name in names}
    scores, spent, _ = compared(truth, costs, budget, jobs)
    first = makespan([costs[name] for name in names], jobs)
    assert spent <= max(budget, first) + 1e-6
    counts = {name: len(of) for name, of in scores.items()}
    assert max(counts.values()) <= MOST_SEEDS
    assert counts.get("probe", 1) == 1
    others = [name for name in names if name not in (REFERENCE, "probe")]
    best = min(others, key=lambda name: (errors[name], name), default=None)
    if (
        best
        and len({round(errors[name]) for name in others}) == len(others)
        and jobs == 1
        and len(set(costs.values())) == 1
    ):
        assert counts[best] == max(counts[name] for name in others)


def test_half_of_the_contenders_are_left_out_after_every_round():
    truth = {"none": lambda s: 30, "full": lambda s: 40, "learned": lambda s: 28, "undirected": lambda s: 29}
    scores, _, _ = compared(truth, dict.fromkeys(truth, 10.0), 130.0, 1)
    # 4 runs; none, learned, undirected; then none and learned as long as it lasts
    assert {name: len(of) for name, of in scores.items()} == {"none": 5, "full": 1, "learned": 5, "undirected": 2}


def test_a_contender_without_a_result_is_not_run_again():
    standings = [Standing("none", (30.0,), 10), Standing("full", (), 10), Standing("learned", (20.0,), 10)]
    assert next_round(standings, 100, 1) == ["learned", "none"]
    assert [each.contender for each in ranked(standings)] == ["learned", "none"]
