"""Bytes that move between tiles: by hand on tiny systems, and element by element against random mappings."""

from collections import defaultdict

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.backends.ipu.exchange import Exchange, ring_loads
from nxjax.lower.ipu.lower import lower
from nxjax.lower.ipu.mapping import grid, linear, parts, single
from nxjax.lower.ipu.program import (
    Boxes,
    Copy,
    Execute,
    FieldConnection,
    Group,
    MappedRegion,
    Variable,
    VariableView,
    row_major,
)
from tests.backends.ipu.toys import Add, Sum, add, boxes, toy_system, variable


def reading(v: Variable, tiles, b: Boxes) -> Execute:
    y = Variable("y", (len(tiles),), np.dtype("float32"), linear(len(tiles), 4, len(tiles), 0, 4))
    return Execute(
        "read",
        (
            Group(
                Sum(),
                np.asarray(tiles, np.int32),
                {"x": FieldConnection(v, b), "y": FieldConnection(y, y.pieces[0].boxes)},
            ),
        ),
    )


def test_what_lies_where_it_is_needed_does_not_move():
    e = Exchange(toy_system())
    x, y = variable("x", (16,)), variable("y", (16,))
    t = e.of_execute(add(x, y))
    assert t.total == 0 and t.copied.sum() == 0 and t.buffers.sum() == 0
    assert e.cycles(t).total == 0


def test_each_tile_reads_all():
    # 8 floats, 2 on each of 4 tiles; every tile reads all 8: it receives 6 and copies its own 2.
    e = Exchange(toy_system())
    t = e.of_execute(reading(variable("x", (8,)), range(4), boxes([0, 0, 0, 0], (8,), (1,))))
    assert t.received.tolist() == [24] * 4
    assert t.sent.tolist() == [8] * 4
    assert t.copied.tolist() == [8] * 4
    assert t.buffers.tolist() == [32] * 4
    # A pair wants all 8 elements between its two tiles.
    assert t.bus.tolist() == [32, 32]
    c = e.cycles(t)
    assert (c.copying, c.sync, c.exchange, c.links) == (1, 100, 4, 0)


def test_neighbours_that_want_the_same_data_share_the_bus():
    # 4 floats on tile 3, wanted by tiles 0 and 1: 16 bytes over a bus of 8 bytes a cycle.
    e = Exchange(toy_system())
    x = Variable("x", (4,), np.dtype("float32"), single((4,), 3))
    same = e.of_execute(reading(x, [0, 1], boxes([0, 0], (4,), (1,))))
    assert same.received.tolist() == [16, 16, 0, 0] and same.bus.tolist() == [16, 0]
    # The sender's 16 bytes at 4 bytes a cycle are the bound here.
    assert e.cycles(same).exchange == 4
    # Different data: 8 floats from two tiles.
    y = variable("y", (8,), 2, first=2, grain=16)
    other = e.of_execute(reading(y, [0, 1], boxes([0, 4], (4,), (1,))))
    assert other.received.tolist() == [16, 16, 0, 0] and other.bus.tolist() == [32, 0]
    assert e.cycles(other).exchange == 4


def test_rows_of_another_order_are_put_together_on_the_tile():
    # A 4x4 matrix in rows on one tile; a vertex there reads a column.
    e = Exchange(toy_system())
    x = Variable("x", (4, 4), np.dtype("float32"), single((4, 4), 0))
    t = e.of_execute(reading(x, [0], boxes([1], (4,), (4,))))
    assert t.total == 0 and t.copied[0] == 16 and t.buffers[0] == 16
    assert e.cycles(t).total == 2
    # A row lies as it is.
    assert e.of_execute(reading(x, [0], boxes([4], (4,), (1,)))).copied[0] == 0
    # The column of a matrix that lies in columns, too.
    columns = Variable(
        "c", (4, 4), np.dtype("float32"), (MappedRegion(boxes([0], (4, 4), (1, 4)), np.zeros(1, np.int32)),)
    )
    assert e.of_execute(reading(columns, [0], boxes([1], (4,), (4,)))).copied[0] == 0
    assert e.of_execute(reading(columns, [0], boxes([4], (4,), (1,)))).copied[0] == 16


def test_between_ipus():
    # Tile 0 of IPU 0 is read by both tiles of IPU 1: it crosses the link once.
    e = Exchange(toy_system(2, 2, link_bandwidth=2e9))
    x = Variable("x", (4,), np.dtype("float32"), single((4,), 0))
    t = e.of_execute(reading(x, [2, 3], boxes([0, 0], (4,), (1,))))
    assert t.links == {(0, 1): 16}
    assert e.cycles(t).links == 8  # 16 bytes at 2 bytes a cycle
    assert ring_loads({(0, 3): 5}, 4) == {(0, 3): 5}


def test_copies():
    e = Exchange(toy_system())
    x, y = variable("x", (4, 4)), variable("y", (4, 4))
    t = e.of_copy(Copy(((VariableView(x, 0, (4, 4), (1, 4)), y.view()),)))
    # Every tile holds a row, and takes three elements of its column from others.
    assert t.received.tolist() == [12] * 4 and t.copied.tolist() == [4] * 4 and t.sent.tolist() == [12] * 4
    # A scalar to all: sent once.
    s = Variable("s", (), np.dtype("float32"), single((), 0))
    t = e.of_copy(Copy(((VariableView(s, 0, (4, 4), (0, 0)), y.view()),)))
    assert t.received.tolist() == [0, 16, 16, 16] and t.sent.tolist() == [4, 0, 0, 0]


mappings = st.sampled_from(["linear", "grid", "columns", "scattered"])


def mapped(draw, shape, tiles):
    kind = draw(mappings)
    size = int(np.prod(shape))
    if kind == "linear":
        pieces = linear(size, 4, tiles, 0, draw(st.sampled_from([4, 8, 16])))
    elif kind == "scattered":
        where = np.asarray(draw(st.lists(st.integers(0, tiles - 1), min_size=size, max_size=size)), np.int32)
        order = np.asarray(draw(st.permutations(range(size))), np.int64)
        pieces = (MappedRegion(Boxes(order, (), ()), where),)
    else:
        splits = [parts(n, draw(st.integers(1, 3))) for n in shape]
        strides = row_major(shape)
        pieces = []
        for starts, sizes, at in grid(shape, splits):
            if kind == "columns":
                sizes, steps = sizes[::-1], strides[::-1]
            else:
                steps = strides
            pieces.append(
                MappedRegion(Boxes(starts @ np.asarray(strides), sizes, steps), (at % tiles).astype(np.int32))
            )
        pieces = tuple(pieces)
    return Variable("v", shape, np.dtype("float32"), pieces)


def layout(v):
    """Tile and place on it of each element, one by one."""
    fill, found = defaultdict(int), {}
    for p in v.pieces:
        for row, tile in zip(p.boxes.elements().reshape(len(p.tiles), -1), p.tiles, strict=True):
            for element in row:
                found[int(element)] = int(tile), fill[int(tile)]
                fill[int(tile)] += 1
    return found


def any_boxes(draw, v, n):
    """Boxes of a view of v with any strides."""
    kind = draw(st.sampled_from(["slice", "transpose", "windows", "reverse", "repeat"]))
    rows, cols = v.shape
    if kind == "windows":
        k = draw(st.integers(1, cols))
        sizes, strides, last = (cols - k + 1, k), (1, 1), rows - 1
        offsets = [cols * draw(st.integers(0, last)) for _ in range(n)]
    elif kind == "repeat":
        sizes, strides = (3, cols), (0, 1)
        offsets = [cols * draw(st.integers(0, rows - 1)) for _ in range(n)]
    elif kind == "reverse":
        sizes, strides = (cols,), (-1,)
        offsets = [cols * draw(st.integers(0, rows - 1)) + cols - 1 for _ in range(n)]
    else:
        h, w = draw(st.integers(1, rows)), draw(st.integers(1, cols))
        sizes, strides = ((h, w), (cols, 1)) if kind == "slice" else ((w, h), (1, cols))
        offsets = [cols * draw(st.integers(0, rows - h)) + draw(st.integers(0, cols - w)) for _ in range(n)]
    return boxes(offsets, sizes, strides)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_compute_sets_element_by_element(data):
    draw = data.draw
    tiles, ipus = draw(st.sampled_from([(4, 1), (3, 2), (1, 3)]))
    n = tiles * ipus
    e = Exchange(toy_system(tiles, ipus))
    v = mapped(draw, draw(st.tuples(st.integers(1, 5), st.integers(1, 5))), n)
    where = layout(v)
    groups = []
    received, sent, bus, links = (defaultdict(set) for _ in range(4))
    buffers, seen = defaultdict(int), set()
    wanted = defaultdict(int)
    for _ in range(draw(st.integers(1, 3))):
        many = draw(st.integers(1, 4))
        at = np.asarray([draw(st.integers(0, n - 1)) for _ in range(many)], np.int32)
        b = any_boxes(draw, v, many)
        groups += reading(v, at, b).groups
        for tile, row in zip(at.tolist(), b.elements().reshape(many, -1).tolist(), strict=True):
            for element in row:
                owner = where[element][0]
                if owner != tile:
                    received[tile].add(element)
                    sent[owner].add(element)
                    bus[tile // tiles * -(-tiles // 2) + tile % tiles // 2].add(element)
                    if owner // tiles != tile // tiles:
                        links[owner // tiles, tile // tiles].add(element)
            places = [where[element] for element in row]
            whole = all(p == (tile, places[0][1] + i) for i, p in enumerate(places))
            # The same box for two vertices of a tile is one buffer.
            key = (tile, b.sizes, b.strides, row[0])
            if not whole and key not in seen:
                seen.add(key)
                buffers[tile] += -(-len(row) * 4 // 8) * 8
                wanted[tile] += 4 * len(row)
    t = e.of_execute(Execute("read", tuple(groups)))
    assert t.received.tolist() == [4 * len(received[i]) for i in range(n)]
    assert t.sent.tolist() == [4 * len(sent[i]) for i in range(n)]
    assert t.bus.tolist() == [4 * len(bus[i]) for i in range(len(t.bus))]
    assert t.links == {k: 4 * len(x) for k, x in links.items()}
    assert t.buffers.tolist() == [buffers[i] for i in range(n)]
    assert t.copied.tolist() == [max(wanted[i] - 4 * len(received[i]), 0) for i in range(n)]


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_copies_element_by_element(data):
    draw = data.draw
    e = Exchange(toy_system(4, 2))
    shape = draw(st.tuples(st.integers(1, 5), st.integers(1, 5)))
    x, y = mapped(draw, shape, 8), mapped(draw, shape[::-1], 8)
    source = VariableView(x, 0, shape[::-1], row_major(shape)[::-1])
    if draw(st.booleans()):
        source = VariableView(x, draw(st.integers(0, x.size - 1)), shape[::-1], (0, 0))
    t = e.of_copy(Copy(((source, y.view()),)))
    start = np.zeros(1, np.int64) + source.offset
    at = Boxes(start, source.shape, source.strides).elements().ravel()
    here, there = x.tiles()[at], y.tiles()
    for tile in range(8):
        assert t.received[tile] == 4 * np.count_nonzero((there == tile) & (here != tile))
        assert t.copied[tile] == 4 * np.count_nonzero((there == tile) & (here == tile))
        assert t.sent[tile] == 4 * len(set(at[(here == tile) & (there != tile)].tolist()))


def test_messages_are_of_a_box_and_an_owner():
    # Tiles 0 and 1 read all of x, which lies on tiles 2 and 3: two messages come to each, each owner sends one.
    e = Exchange(toy_system())
    x = variable("x", (8,), 2, first=2, grain=16)
    t = e.of_execute(reading(x, [0, 1], boxes([0, 0], (8,), (1,))))
    assert t.messages.tolist() == [2, 2, 1, 1]
    # Every second element of the other tile's: still one message.
    t = e.of_execute(reading(x, [0], boxes([0], (2,), (2,))))
    assert t.messages.tolist() == [1, 0, 1, 0]
    f = t.footprint()
    assert f.tiles.tolist() == [0, 2] and f.buffers.tolist() == [8, 0] and f.messages.tolist() == [1, 1]


def test_results_in_pieces_are_put_in_their_places():
    x = Variable("x", (4, 4), np.dtype("float32"), single((4, 4), 1))
    y = Variable("y", (4, 4), np.dtype("float32"), single((4, 4), 1))
    tile, column, row = np.asarray([1], np.int32), boxes([1], (4,), (4,)), boxes([4], (4,), (1,))
    e = Exchange(toy_system())
    whole = e.of_execute(
        Execute("a", (Group(Add(), tile, {"x": FieldConnection(x, row), "y": FieldConnection(y, row)}),))
    )
    assert whole.copied.sum() == whole.buffers.sum() == 0
    apart = e.of_execute(
        Execute("a", (Group(Add(), tile, {"x": FieldConnection(x, row), "y": FieldConnection(y, column)}),))
    )
    assert apart.copied.tolist() == [0, 16, 0, 0] and apart.buffers.tolist() == [0, 16, 0, 0] and apart.total == 0


def test_a_lowered_network_element_by_element():
    """Every step of a training step on a small chip of two IPUs against a count of single elements."""

    def loss(w, x):
        return jnp.mean(nx.nn.softmax(jnp.tanh(x @ w["a"]) @ w["b"]) ** 2)

    w = {"a": np.ones((20, 12), np.float32), "b": np.ones((12, 6), np.float32)}
    program = nx.make_jaxpr(nx.grad(loss))(w, np.ones((10, 20), np.float32))
    one = toy_system(24, memory=100_000)
    lowered = lower(program, one)
    e = Exchange(toy_system(12, 2))
    seen = 0
    for step in lowered.walk():
        received, sent, links = (defaultdict(set) for _ in range(3))
        if not isinstance(step, Execute):
            continue
        for g in step.groups:
            for f in g.codelet.fields:
                edge = g.edges[f.name]
                if f.io != "in":
                    continue
                owners = edge.variable.tiles()
                rows = edge.boxes.elements().reshape(len(g.tiles), -1)
                for tile, row in zip(g.tiles.tolist(), rows, strict=True):
                    for element in set(row[owners[row] != tile].tolist()):
                        key = (id(edge.variable), element)
                        received[tile].add((edge.variable.dtype.itemsize, key))
                        owner = int(owners[element])
                        sent[owner].add((edge.variable.dtype.itemsize, key))
                        if owner // 12 != tile // 12:
                            links[owner // 12, tile // 12].add((edge.variable.dtype.itemsize, key))
        t = e.of_execute(step)
        count = lambda found: sum(size for size, _ in found)
        assert t.received.tolist() == [count(received[i]) for i in range(24)]
        assert t.sent.tolist() == [count(sent[i]) for i in range(24)]
        assert t.bus.tolist() == [count(received[2 * i] | received[2 * i + 1]) for i in range(12)]
        assert t.links == {k: count(v) for k, v in links.items()}
        seen += t.total
    assert seen > 1000
