"""A plan against prefixes collected one by one."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lws_lightning.sharing import plan_population


@st.composite
def populations(draw):
    size, tasks = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    chain = draw(st.lists(st.booleans(), min_size=1, max_size=5))  # whether a layer is learned
    copies = [draw(st.integers(1, 4)) for learned in chain if learned]
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    rows = [torch.randint(count, (size, tasks), generator=generator) for count in copies]
    population = torch.stack(rows, dim=1) if rows else torch.zeros(size, 0, tasks, dtype=torch.int64)
    numbers = iter(range(len(copies)))
    return population, [next(numbers) if learned else None for learned in chain]


@settings(deadline=None, max_examples=150)
@given(populations())
def test_nodes_are_the_distinct_prefixes(case):
    population, chain = case
    size, _, tasks = population.shape
    plan = plan_population(population, chain)
    prefixes_below = [(task,) for task in range(tasks)]
    for depth, layer in enumerate(plan.layers):
        copies = [copy for copy, own in zip(layer.copies, layer.nodes, strict=True) for _ in range(own.size)]
        prefixes = [
            (*prefixes_below[parent], copy) for parent, copy in zip(layer.parents.tolist(), copies, strict=True)
        ]

        def path(s, t, depth=depth):
            return (t, *(0 if i is None else int(population[s, i, t]) for i in chain[: depth + 1]))

        assert len(set(prefixes)) == len(prefixes)
        assert set(prefixes) == {path(s, t) for s in range(size) for t in range(tasks)}
        first = 0
        for copy, own in zip(layer.copies, layer.nodes, strict=True):
            loop = [path(s, t) for s in range(size) for t in range(tasks) if path(s, t)[-1] == copy]
            assert [prefixes[first + node] for node in own.visits.tolist()] == loop
            first += own.size
        assert [tuple(prefix) for prefix in layer.prefixes.tolist()] == prefixes
        prefixes_below = prefixes
    first = 0
    for task, own in enumerate(plan.heads):
        leaves = plan.leaves[first : first + own.size].tolist()
        assert own.tasks.tolist() == [task] * own.size
        assert [tuple(prefix) for prefix in own.prefixes.tolist()] == [prefixes_below[leaf] for leaf in leaves]
        for s in range(size):
            expected = (task, *(0 if i is None else int(population[s, i, task]) for i in chain))
            assert prefixes_below[leaves[int(own.visits[s])]] == expected
        first += own.size
    assert first == len(plan.leaves)


def test_a_converged_population_costs_one_pass_a_task():
    plan = plan_population(torch.tensor([[[0, 1, 1], [2, 2, 0]]]).expand(8, 2, 3), [0, 1])
    assert [len(layer.parents) for layer in plan.layers] == [3, 3]
    assert [own.size for own in plan.heads] == [1, 1, 1]
