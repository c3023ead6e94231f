"""A program cut into regions is the program, bit for bit, however it is cut."""

import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import ParameterError, ProgramError
from nxjax.lower.partition.grouping import grouped
from nxjax.lower.partition.regions import cut, dependencies
from nxjax.testing import random_program
from nxjax.trace.array import wrap
from nxjax.transforms.inline import inlined

CPU, BOTH = frozenset({"cpu"}), frozenset({"cpu", "npu"})


def random_cut(program, rng):
    """Groups without a cycle: runs of a random order in which the equations can run."""
    needs = dependencies(program)
    done, order = set(), []
    while len(order) < len(needs):
        ready = [i for i, row in enumerate(needs) if i not in done and row <= done]
        order.append(ready[rng.integers(len(ready))])
        done.add(order[-1])
    groups, number = [0] * len(order), 0
    for i in order:
        number += int(rng.random() < 0.4)
        groups[i] = number
    return groups


def same(a, b):
    return all(
        x.numpy().tobytes() == y.numpy().tobytes() and x.type.typematch(y.type) for x, y in zip(a, b, strict=True)
    )


@pytest.mark.parametrize("seed", range(4))
def test_random_programs_cut_at_random_keep_their_bits(seed):
    rng = np.random.default_rng(seed)
    regions = 0
    for _ in range(60):
        made = random_program(rng, 4 + int(rng.integers(10)))
        program = inlined(nx.make_jaxpr(lambda *xs, made=made: (made(*xs), xs[0], 3.0))(*made.args))
        parts = cut(program, random_cut(program, rng))
        regions += len(parts.regions)
        for region in parts.regions:
            region.program.check()
            assert all(r < region.number for r in region.after)
        args = [wrap(a) for a in made.args]
        assert same(parts.run(args), program(*args))
        assert sorted(i for r in parts.regions for i in r.equations) == list(range(len(program.equations)))
    assert regions > 200


def test_regions_of_compiled_code_keep_the_bits_of_the_reference_on_integers():
    rng = np.random.default_rng(5)
    weights = nx.asarray(rng.integers(-9, 9, (4, 4)).astype(np.int32))  # a const, that two regions read

    def f(x):
        y = x @ weights
        return (y * 3 - (x ^ 5)) @ weights, y.sum()

    x = nx.asarray(rng.integers(-9, 9, (3, 4)).astype(np.int32))
    program = inlined(nx.make_jaxpr(f)(x))
    parts = cut(program, random_cut(program, rng))
    compiled = parts.run([x], lambda p, xs: nx.jit(lambda *a: p(*a))(*xs))
    assert same(compiled, program(x))
    assert sum(len(r.program.constvars) for r in parts.regions) > 1


def test_effects_keep_their_order_across_regions():
    seen = []

    def f(x):
        nx.debug.callback(lambda v: seen.append(("first", float(v))), x)
        y = nx.sin(x)
        nx.debug.callback(lambda v: seen.append(("second", float(v))), y * 0 + 2.0)
        return y

    program = inlined(nx.make_jaxpr(f)(1.0))
    effects = [i for i, e in enumerate(program.equations) if e.effect]
    # The second effect stands in a region that nothing but the order keeps behind the first one's.
    parts = cut(program, [i if i in effects else 100 for i in range(len(program.equations))])
    first, second = (parts.owner[i] for i in effects)
    assert first in parts.regions[second].after
    parts.run([nx.asarray(1.0)])
    assert seen == [("first", 1.0), ("second", 2.0)]


def test_a_cycle_between_groups_is_refused():
    program = nx.make_jaxpr(lambda x: nx.cos(nx.sin(nx.tanh(x))))(1.0)
    with pytest.raises(ProgramError, match="each other"):
        cut(program, [0, 1, 0])
    with pytest.raises(ParameterError, match="groups"):
        cut(program, [0])


def test_groups_keep_their_units_and_heavy_branches_apart():
    def f(x):
        z = x * 2.0
        a, b = nx.sin(nx.cos(z)), nx.tanh(nx.exp(z))
        return a + b

    program = inlined(nx.make_jaxpr(f)(np.ones(4, np.float32)))
    names = [e.op.name for e in program.equations]
    weight = {"cos": 1.0, "sin": 1.0, "exp": 1.0, "tanh": 1.0}
    seconds = [weight.get(n, 1e-9) for n in names]
    at = dict(zip(names, grouped(program, [BOTH] * len(names), seconds), strict=True))
    assert at["sin"] == at["cos"] and at["tanh"] == at["exp"] and at["sin"] != at["tanh"]
    # The light fork went into neither branch: the other would wait for it.
    assert at["mul"] not in (at["sin"], at["tanh"])
    # What only the host runs takes no unit from what both do; nothing is left of the branches where all is light.
    units = [CPU if n == "tanh" else BOTH for n in names]
    at = dict(zip(names, grouped(program, units, seconds), strict=True))
    assert at["tanh"] != at["exp"]
    assert len(set(grouped(program, [BOTH] * len(names), [1e-9] * len(names)))) == 1
    assert len(set(grouped(program, [BOTH] * len(names), seconds, most=1))) == 1


@pytest.mark.parametrize("seed", range(3))
def test_groups_of_random_programs_can_be_cut(seed):
    rng = np.random.default_rng(seed)
    for _ in range(25):
        made = random_program(rng, 16)
        program = inlined(nx.make_jaxpr(made)(*made.args))
        n = len(program.equations)
        units = [(BOTH, CPU, frozenset({"npu"}))[rng.integers(3)] for _ in range(n)]
        seconds = (10.0 ** rng.uniform(-7, -3, n)).tolist()
        groups = grouped(program, units, seconds, most=4)
        parts = cut(program, groups)
        for r in parts.regions:
            assert frozenset.intersection(*(units[i] for i in r.equations))
        args = [wrap(a) for a in made.args]
        assert same(parts.run(args), program(*args))
    with pytest.raises(ParameterError, match="no unit runs"):
        grouped(program, [frozenset()] * n, seconds)
