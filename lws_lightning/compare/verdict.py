"""What the tasks should share, in words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lws_lightning.compare.rounds import REFERENCE
from lws_lightning.compare.statistics import Comparison, Difference, needed_for

__all__ = ["Facts", "Verdict", "judge", "sharing_words"]

_MATTERS = 1.0  # points: a smaller network may cost at most this much, and this is what a test should show
_SEVERAL = 2
_NAMES = {
    "none": "separate networks",
    "full": "one network for all",
    "learned": "learned sharing",
    "undirected": "undirected sharing (separate networks after a shared beginning)",
    "probe": "a frozen pretrained network with linear heads",
    "adapters": "a frozen pretrained network with learned adapters",
}


@dataclass(frozen=True)
class Facts:
    """What is known of a contender besides its test outcomes.

    Attributes:
        validation: Its validation error in percent, the mean over its runs.
        parameters: Those that all networks together use, of its best run.
        sharing: What its best run shares, in words (see `sharing_words`); empty if that says nothing.
        unsettled: Of how many of its runs the search has not settled.
        settled: Of how many it has.
        falling: By how many points the validation error fell in the last fifth of the steps, the mean over its runs.
    """

    validation: float
    parameters: int
    sharing: str = ""
    unsettled: int = 0
    settled: int = 0
    falling: float = 0.0


@dataclass(frozen=True)
class Verdict:
    """The verdict.

    Attributes:
        best: The contender with the lowest validation error.
        recommended: The contender to use, whose networks are written.
        sentences: The verdict in words, the advice first.
        differences: Of the recommended one to each other contender, as points in its favour.
    """

    best: str
    recommended: str
    sentences: list[str]
    differences: dict[str, Difference]


def judge(facts: Mapping[str, Facts], comparison: Comparison) -> Verdict:
    """Recommends a contender.

    The best one is that with the lowest validation error. Of it and of those that the test images show to be at most
    one point worse (by the whole 95 % interval), the one with the fewest parameters is recommended.

    Args:
        facts: By contender; `none` is one of them.
        comparison: The test outcomes of the same contenders.
    """
    best = min(facts, key=lambda name: (facts[name].validation, facts[name].parameters))
    to_best = {name: comparison.difference(best, name) for name in facts if name != best}
    no_worse = [name for name, each in to_best.items() if each.high is not None and each.high <= _MATTERS]
    recommended = min([best, *no_worse], key=lambda name: (facts[name].parameters, name != best))
    differences = {name: comparison.difference(recommended, name) for name in facts if name != recommended}
    sentences = [_advice(recommended, facts[recommended])]
    if recommended != REFERENCE:
        reason = "It had the lowest validation error, which alone decides. "
        surprising = recommended == best and differences[REFERENCE].points < 0
        against = _against_none(recommended, differences[REFERENCE], facts, comparison)
        sentences.append(f"{reason if surprising else ''}{against}")
        said = {REFERENCE, best}
    else:
        rival = min((name for name in facts if name != REFERENCE), key=lambda name: facts[name].validation)
        sentences.append(_no_sharing(rival, differences[rival], comparison))
        said = {rival, best}
    if best not in (recommended, REFERENCE):
        sentences.append(
            f"{_capital(_NAMES.get(best, best))} had the lowest validation error, but is better by at most "
            f"{_MATTERS:g} point on the test images ({_interval(to_best[recommended])}); what is advised has "
            f"{_fewer(facts, recommended, best)}."
        )
    sentences += _others(differences, said)
    sentences += _search(recommended, facts, differences)
    if facts[recommended].falling > _MATTERS:
        sentences.append(
            f"The validation error was still falling at the end (by {facts[recommended].falling:.1f} points in the "
            "last fifth of the steps), so all of this holds for short runs: a new comparison with more minutes has "
            "more steps, lower errors, and perhaps another verdict."
        )
    return Verdict(best, recommended, sentences, differences)


def _advice(name: str, facts: Facts) -> str:
    match name:
        case "none":
            return "Train a separate network for each task."
        case "full":
            return "Share all layers between all tasks; only the heads are separate."
        case "learned":
            return f"Share as was learned: {facts.sharing}."
        case "undirected":
            return (
                "Give each task a network of its own, but let them share weights at random in the first two thirds "
                "of the training."
            )
        case "probe":
            return "Take the frozen pretrained network, with a linear head for each task."
        case "adapters":
            return f"Take the frozen pretrained network with small trained parts beside it: {facts.sharing}."
    return f"Use {name}."


def _against_none(name: str, difference: Difference, facts: Mapping[str, Facts], comparison: Comparison) -> str:
    if difference.low is None:
        return _one_run(REFERENCE, difference)
    if difference.shown:
        word = "better" if difference.points > 0 else "worse"
        return f"About {abs(difference.points):.1f} points {word} than separate networks ({_interval(difference)})."
    return (
        f"No difference to separate networks can be shown ({_interval(difference)} points in its favour); it has "
        f"{_fewer(facts, name, REFERENCE)}. {_needed(name, REFERENCE, difference, comparison)}"
    )


def _no_sharing(rival: str, difference: Difference, comparison: Comparison) -> str:
    if difference.low is None:
        return _one_run(rival, difference)
    words = _NAMES.get(rival, rival)
    if difference.shown and difference.points > 0:
        return (
            f"Sharing does not help here: {words}, the best of the others, is worse by {difference.points:.1f} points "
            f"({_interval(difference)})."
        )
    return (
        f"No difference can be shown between them and {words}, the best of the others ({_interval(difference)} points "
        f"in their favour). {_needed(REFERENCE, rival, difference, comparison)}"
    )


def _one_run(second: str, difference: Difference) -> str:
    word = "better" if difference.points >= 0 else "worse"
    return (
        f"On the test images it is {abs(difference.points):.1f} points {word} than {_NAMES.get(second, second)} in one "
        "run each, which says nothing about chance: give the command again with more minutes, for more seeds."
    )


def _needed(first: str, second: str, difference: Difference, comparison: Comparison) -> str:
    runs = min(comparison.samples[first].runs, comparison.samples[second].runs)
    seeds, times = needed_for(_MATTERS, difference, runs)
    if seeds is not None and seeds <= runs:
        return f"A difference of {_MATTERS:g} point would most likely have been seen."
    ways = [f"about {seeds} seeds of each (there are {runs})"] if seeds is not None and seeds < 100 else []
    ways += [f"about {times:.1f} times the test images"] if times is not None and times < 100 else []
    if not ways:
        return f"To show one of {_MATTERS:g} point takes both more seeds and more test images."
    return f"{' or '.join(ways).capitalize()} would show a difference of {_MATTERS:g} point."


def _others(differences: Mapping[str, Difference], said: set[str]) -> list[str]:
    parts = []
    for name, each in sorted(differences.items(), key=lambda item: item[1].points):
        if name in said:
            continue
        words = _NAMES.get(name, name)
        if each.low is None:
            word = "worse" if each.points >= 0 else "better"
            parts.append(f"{words} is {word} than it by {abs(each.points):.1f} in one run")
        elif each.shown:
            word = "worse" if each.points > 0 else "better"
            parts.append(f"{words} is {word} than it by {abs(each.points):.1f} ({_interval(each)})")
        else:
            parts.append(f"{words} cannot be told from it ({_interval(each)} worse)")
    return [f"{_capital('; '.join(parts))}."] if parts else []


def _search(recommended: str, facts: Mapping[str, Facts], differences: Mapping[str, Difference]) -> list[str]:
    sentences = []
    if recommended == "learned" and "undirected" in differences:
        helps, search = differences[REFERENCE], differences["undirected"]
        if helps.shown and helps.points > 0 and not search.shown:
            sentences.append(
                "It is the sharing during training that helps, not the search for what to share: undirected sharing, "
                "which does not search, cannot be told from it."
            )
    tried = [name for name in ("learned", "adapters") if name in facts and name != recommended]
    if unsettled := [name for name in tried if facts[name].unsettled]:
        sentences.append(
            f"The search of {' and '.join(unsettled)} had not settled in this number of steps, so this says little "
            "about what it reaches in longer runs."
        )
    mine = facts[recommended]
    if mine.unsettled:
        number = f"{mine.unsettled} of {mine.unsettled + mine.settled} runs"
        sentences.append(
            f"The search of {number} has not settled, so which layers are shared is partly chance; more steps, that is "
            "more minutes for a new comparison, would settle more."
        )
    return sentences


def _fewer(facts: Mapping[str, Facts], smaller: str, larger: str) -> str:
    few, many = facts[smaller].parameters, facts[larger].parameters
    if few == many:
        return "as many parameters"
    if few > many:
        return f"{few / many:.1f} times the parameters"
    return f"{100 * few / many:.0f} % of the parameters"


def _interval(difference: Difference) -> str:
    return f"95 % interval {difference.low:.1f} to {difference.high:.1f}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def sharing_words(assignment: Sequence[Sequence[int]], layers: Sequence[str], tasks: Sequence[str]) -> str:
    """Says which tasks share which layers.

    Args:
        assignment: `(L, T)`, the copy that each task uses at each layer.
        layers: Names of the L layers, input first.
        tasks: Names of the T tasks.

    Returns:
        Such as "all tasks share conv1; a and b share conv2; nothing else is shared".
    """
    by_groups: dict[tuple[tuple[int, ...], ...], list[str]] = {}
    for name, row in zip(layers, assignment, strict=True):
        members: dict[int, list[int]] = {}
        for task, copy in enumerate(row):
            members.setdefault(copy, []).append(task)
        groups = tuple(sorted(tuple(group) for group in members.values() if len(group) >= _SEVERAL))
        by_groups.setdefault(groups, []).append(name)
    parts = []
    for groups, names in by_groups.items():
        for group in groups:
            who = "all tasks" if len(group) == len(tasks) else _and([tasks[task] for task in group])
            parts.append(f"{who} share {_and(names)}")
    if not parts:
        return "no layer at all"
    return "; ".join([*parts, "nothing else is shared" if len(by_groups) > 1 or len(parts) > 1 else "and that is all"])


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
