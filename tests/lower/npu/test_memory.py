"""The arena planner: nothing overlaps, nothing is below the bound, tiny graphs are optimal, orders keep the meaning."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nxjax.errors import ParameterError, user_source
from nxjax.lower.npu import memory
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.lower.npu.memory import MemoryLimitError, check_limit, plan, reorder


def t(name, *shape, dtype="int8"):
    return Tensor(name, shape, np.dtype(dtype))


def graph(inputs, outputs, nodes):
    return NpuGraph("g", inputs, outputs, nodes).check()


@st.composite
def graphs(draw, most=12):
    """Random graphs: element by element ops, views, and ops that read whole operands."""
    made = [t(f"in{i}", draw(st.integers(1, 9)), 4) for i in range(draw(st.integers(1, 2)))]
    inputs, nodes = list(made), []
    for i in range(draw(st.integers(1, most))):
        x = draw(st.sampled_from(made))
        op = draw(st.sampled_from(["relu", "add", "reshape", "conv", "split"]))
        if op == "relu":
            nodes.append(Node("relu", (x,), (t(f"t{i}", *x.shape),)))
        elif op == "add":
            y = draw(st.sampled_from([y for y in made if y.shape == x.shape]))
            nodes.append(Node("add", (x, y), (t(f"t{i}", *x.shape),)))
        elif op == "reshape":
            shape = x.shape[::-1]
            nodes.append(Node("reshape", (x,), (t(f"t{i}", *shape),), {"shape": shape}))
        elif op == "split":
            outs = tuple(t(f"t{i}_{j}", draw(st.integers(1, 9)), 4) for j in range(2))
            nodes.append(Node("split", (x,), outs, {"axis": 0, "sizes": tuple(y.shape[0] for y in outs)}))
        else:
            nodes.append(Node("conv_2d", (x,), (t(f"t{i}", draw(st.integers(1, 60)), 4),)))
        made.extend(nodes[-1].outputs)
    results = [r for r in made if r not in inputs]
    outputs = draw(st.lists(st.sampled_from(results), min_size=1, max_size=3, unique=True))
    return graph(inputs, outputs, nodes)


def simulate(g, p):
    """Run the graph in a byte arena laid out by the plan, each op on ids: reads must find what was written."""
    arena = np.zeros(p.peak, object)
    offsets = p.offsets
    content = {}

    def write(x, value):
        content[x] = value
        arena[offsets[x] : offsets[x] + x.nbytes] = value

    def read(x):
        assert (arena[offsets[x] : offsets[x] + x.nbytes] == content[x]).all(), f"{x.name} was overwritten"

    for i, x in enumerate(g.inputs):
        write(x, i + 1)
    for i, n in enumerate(g.nodes):
        for x in n.operands:
            read(x)
        for j, x in enumerate(n.outputs):
            write(x, content[n.inputs[0]] if n.op == "reshape" else 100 + 10 * i + j)
        for x in n.outputs:
            read(x)
    for x in g.outputs:
        read(x)


@settings(max_examples=150, deadline=None)
@given(graphs(), st.sampled_from([1, 16, 64]), st.booleans())
def test_no_tensor_is_overwritten_before_its_last_use(g, align, in_place):
    p = plan(g, align, in_place)
    simulate(g, p)
    for a, b in itertools.combinations(p.blocks, 2):
        assert not a.meets(b) or a.end <= b.offset or b.end <= a.offset
    assert all(b.offset % align == 0 for b in p.blocks)
    assert {x for b in p.blocks for x in b.tensors} == {x for x in g.tensors() if not x.constant}


@settings(max_examples=150, deadline=None)
@given(graphs(), st.booleans())
def test_peak_is_between_the_bound_and_the_sum(g, in_place):
    p = plan(g, 16, in_place)
    assert p.bound <= p.peak <= sum(b.size for b in p.blocks)
    assert p.bound == max(sum(b.size for b in p.live(i)) for i in range(len(g.nodes) + 1))
    assert p.bound == sum(b.size for b in p.live(p.peak_step))
    if not in_place:
        # Said again without blocks: bytes of every tensor between its making and its last use.
        alive = [0] * (len(g.nodes) + 1)
        for x in (x for x in g.tensors() if not x.constant):
            first = next((i for i, n in enumerate(g.nodes) if x in n.outputs), 0)
            last = max([i for i, n in enumerate(g.nodes) if x in n.operands] + [first])
            last = len(g.nodes) if x in g.outputs else last
            for i in range(first, last + 1):
                alive[i] += -(-x.nbytes // 16) * 16
        assert p.bound == max(alive)


def brute_force(blocks, align):
    """The least arena over all orders, each block in the lowest place that is free, tried byte by byte."""
    best = sum(b.size for b in blocks)
    for order in itertools.permutations(blocks):
        placed = []
        for b in order:
            offset = 0
            while any(b.meets(o) and offset < at + o.size and at < offset + b.size for o, at in placed):
                offset += align
            placed.append((b, offset))
        best = min(best, max(at + b.size for b, at in placed))
    return best


@settings(max_examples=60, deadline=None)
@given(graphs(most=5), st.booleans())
def test_tiny_graphs_are_optimal(g, in_place):
    p = plan(g, 16, in_place)
    if len(p.blocks) <= 6:
        assert p.peak == brute_force(p.blocks, 16)


def test_greedy_orders_alone_would_not_be_optimal():
    """A packing that no greedy order finds: the search over orders must."""
    found = False
    rng = np.random.default_rng(0)
    for _ in range(3000):
        blocks = []
        for _ in range(6):
            first = int(rng.integers(0, 5))
            blocks.append(memory.ArenaBlock((), int(rng.integers(1, 7)) * 16, first, first + int(rng.integers(0, 4))))
        greedy = memory._place(sorted(blocks, key=lambda b: (-b.size, b.first)))
        bound = max(sum(b.size for b in blocks if b.first <= i <= b.last) for i in range(10))
        exact = memory._every_order(blocks, greedy, bound)
        if memory._top(exact) < memory._top(greedy):
            assert memory._top(exact) == brute_force(blocks, 16)
            found = True
            break
    assert found


def test_trying_other_orders_makes_plans_tighter():
    """Random intervals: the arena is never larger than greedily, often smaller, and the same every time."""
    rng = np.random.default_rng(1)
    better = 0
    for _ in range(20):
        blocks = []
        for _ in range(25):
            first = int(rng.integers(0, 20))
            blocks.append(memory.ArenaBlock((), int(rng.integers(1, 40)) * 16, first, first + int(rng.integers(0, 8))))
        greedy = memory._place(sorted(blocks, key=lambda b: (-b.size, b.first)))
        bound = max(memory._alive(blocks, 30))
        climbed = memory._climbed(greedy, bound)
        assert bound <= memory._top(climbed) <= memory._top(greedy)
        assert [b.offset for b in climbed] == [b.offset for b in memory._climbed(greedy, bound)]
        for a, b in itertools.combinations(climbed, 2):
            assert not a.meets(b) or a.end <= b.offset or b.end <= a.offset
        better += memory._top(climbed) < memory._top(greedy)
    assert better >= 5


def test_in_place_needs_a_dead_operand():
    x, y, z = t("x", 64), t("y", 64), t("z", 64)
    dies = graph([x], [z], [Node("relu", (x,), (y,)), Node("relu", (y,), (z,))])
    assert plan(dies).peak == 64
    x, y, z = t("x", 64), t("y", 64), t("z", 64)
    stays = graph([x], [z], [Node("relu", (x,), (y,)), Node("add", (x, y), (z,))])
    assert plan(stays).peak == 128
    x, y = t("x", 64), t("y", 64, dtype="int32")
    wider = graph([x], [y], [Node("cast", (x,), (y,))])
    assert plan(wider).peak == 64 + 256


def test_a_result_is_kept_to_the_end():
    x, y, z = t("x", 64), t("y", 64), t("z", 64)
    g = graph([x], [y, z], [Node("relu", (x,), (y,)), Node("relu", (y,), (z,))])
    assert plan(g).peak == 128
    assert plan(g).lifetimes[y] == (0, 2)


def test_views_share_bytes_even_when_the_operand_lives_on():
    x, v, y, z = t("x", 8, 8), t("v", 64), t("y", 8, 8), t("z", 8, 8)
    nodes = [Node("reshape", (x,), (v,), {"shape": (64,)}), Node("relu", (x,), (y,)), Node("prelu", (y, v), (z,))]
    g = graph([x], [z], nodes)
    p = plan(g)
    assert p.offsets[v] == p.offsets[x] and p.offsets[y] != p.offsets[x]
    simulate(g, p)


def test_an_operand_that_is_read_crosswise_is_not_overwritten():
    """x + reshape(x) reads the same bytes at two positions: the sum must not go where x is."""
    x, v, y = t("x", 8, 1), t("v", 1, 8), t("y", 8, 8)
    w = t("w", 1, 8, 8)
    g = graph([x], [y], [Node("reshape", (x,), (v,), {"shape": v.shape}), Node("add", (x, v), (y,))])
    assert plan(g).offsets[y] != plan(g).offsets[x]
    a, b, c = t("a", 1, 8, 8), t("b", 8, 8, 1), t("c", 1, 8, 8)
    g = graph([a], [c], [Node("reshape", (a,), (b,), {"shape": b.shape}), Node("add", (a, b), (c,))])
    assert plan(g).offsets[c] != plan(g).offsets[a]
    same = t("same", 1, 8, 8)
    g = graph([w], [c], [Node("reshape", (w,), (same,), {"shape": same.shape}), Node("add", (w, same), (c,))])
    assert plan(g).peak == 64


def test_int4_is_counted_in_halves():
    import ml_dtypes

    x, y = Tensor("x", (3, 5), np.dtype(ml_dtypes.int4)), t("y", 3, 5)
    assert plan(graph([x], [y], [Node("cast", (x,), (y,))]), align=1).peak == 8 + 15


def test_limit_names_the_largest_tensors_and_the_line():
    source = user_source()
    x, y, z = t("image", 1, 32, 32, 3), t("wide", 1, 32, 32, 64), t("small", 1, 10)
    g = graph([x], [z], [Node("conv_2d", (x,), (y,), source=source), Node("fully_connected", (y,), (z,))])
    p = plan(g)
    assert check_limit(p, p.peak) is p
    with pytest.raises(MemoryLimitError) as e:
        check_limit(p, p.peak - 1)
    message = str(e.value)
    assert "wide: 65536 bytes, int8[1, 32, 32, 64] of conv_2d at test_memory.py" in message
    assert "image: 3072 bytes" in message and "an input" in message
    assert str(p.peak - 1) in message and isinstance(e.value, MemoryError)


def test_alignment_must_be_a_power_of_two():
    x, y = t("x", 4), t("y", 4)
    with pytest.raises(ParameterError):
        plan(graph([x], [y], [Node("relu", (x,), (y,))]), align=24)


def wide():
    """Branches that each widen and narrow again; made breadth first, so that all wide tensors live together."""
    x, out = t("x", 1, 4), t("out", 1, 4)
    big = [t(f"big{i}", 100, 4) for i in range(5)]
    small = [t(f"small{i}", 1, 4) for i in range(5)]
    nodes = [Node("conv_2d", (x,), (b,)) for b in big]
    nodes += [Node("conv_2d", (b,), (s,)) for b, s in zip(big, small)]
    nodes.append(Node("concatenation", tuple(small), (out,), {"axis": 0}))
    return graph([x], [out], nodes)


def check_same(g, h):
    h.check()
    assert sorted(map(id, g.nodes)) == sorted(map(id, h.nodes))
    assert (g.inputs, g.outputs) == (h.inputs, h.outputs)


def test_reorder_runs_wide_branches_one_at_a_time():
    g = wide()
    h = reorder(g)
    check_same(g, h)
    assert plan(g).peak >= 5 * 400
    assert plan(h).peak <= 400 + 7 * 16


def test_greedy_order_serves_where_sets_are_too_many(monkeypatch):
    monkeypatch.setattr(memory, "_STATES", 3)
    g = wide()
    h = reorder(g)
    check_same(g, h)
    assert plan(h).peak < plan(g).peak / 3


@settings(max_examples=60, deadline=None)
@given(graphs(most=6))
def test_reorder_finds_the_best_order_of_small_graphs(g):
    """Against every topological order; without views, whose sharing the search counts only when an operand dies."""
    h = reorder(g)
    check_same(g, h)
    simulate(h, plan(h))
    assert plan(h).peak <= plan(g).peak
    unread = [x for x in g.inputs if not any(x in n.operands for n in g.nodes)]
    if unread or any(n.op == "reshape" for n in g.nodes):
        return
    order = memory._Search(g, 16).best()
    found = NpuGraph(g.name, g.inputs, g.outputs, [g.nodes[i] for i in order])
    assert plan(found).bound == min(plan(o).bound for o in orders(g))


def orders(g):
    def extend(done, known):
        if len(done) == len(g.nodes):
            yield NpuGraph(g.name, g.inputs, g.outputs, list(done))
        for n in g.nodes:
            if n not in done and all(x.constant or x in known for x in n.operands):
                yield from extend([*done, n], known | set(n.outputs))

    yield from extend([], set(g.inputs))


def test_pictures():
    g = wide()
    p = plan(g)
    text = p.picture(width=11, height=8)
    assert f"arena of {p.peak} bytes" in text and "big0" in text
    body = [line for line in text.splitlines() if "|" in line]
    assert len(body) == 8 and all(len(line.split("|")[1]) == 11 for line in body)
    from xml.etree import ElementTree

    root = ElementTree.fromstring(p.svg())
    assert sum(e.tag.endswith("rect") for e in root.iter()) == len(p.blocks)
    assert str(p) == p.picture() and p._repr_html_() == p.svg()
    empty = NpuGraph("empty", [], [], [])
    assert plan(empty).peak == 0 and "0 bytes" in plan(empty).picture()
    assert ElementTree.fromstring(plan(empty).svg()) is not None
