"""Liveness against two slow oracles: the flow graph of a program solved node by node, and traces of random runs."""

import itertools
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from nxjax.backends.ipu.arena import allocate
from nxjax.backends.ipu.liveness import Liveness
from nxjax.lower.ipu.program import Call, Copy, Execute, IpuProgram, Repeat, Switch, While
from tests.backends.ipu.programs import SIZE, programs
from tests.backends.ipu.toys import add, toy_system, variable


def effects(step):
    """Ids of what a step reads, writes, and writes as a whole."""
    reads, writes, elements, size = set(), set(), {}, {}
    if isinstance(step, Execute):
        for g in step.groups:
            for f in g.codelet.fields:
                e = g.edges[f.name]
                if f.io != "out":
                    reads.add(id(e.variable))
                if f.io != "in":
                    writes.add(id(e.variable))
                    size[id(e.variable)] = e.variable.size
                    elements.setdefault(id(e.variable), set()).update(e.boxes.elements().ravel().tolist())
    elif isinstance(step, Copy):
        for s, t in step.pairs:
            reads.add(id(s.variable))
            writes.add(id(t.variable))
            size[id(t.variable)] = t.variable.size
            elements.setdefault(id(t.variable), set()).update(range(t.offset, t.offset + t.size))
    elif isinstance(step, While):
        reads.add(id(step.predicate))
    elif isinstance(step, Switch):
        reads.add(id(step.index))
    kills = {i for i, found in elements.items() if len(found) == size[i]} - reads
    return reads, writes, kills


class Graph:
    """Nodes in program order, calls written out."""

    def __init__(self, program: IpuProgram) -> None:
        self.functions = program.functions
        self.steps, self.edges = [], []
        self.exits = self.body(program.steps, [None])

    def node(self, step, before):
        self.steps.append(step)
        n = len(self.steps) - 1
        self.edges += [(p, n) for p in before]
        return [n]

    def body(self, steps, before):
        for step in steps:
            if isinstance(step, Repeat):
                if step.count:
                    first = len(self.steps)
                    before = self.body(step.body, before)
                    if step.count > 1:
                        self.edges += [(p, first) for p in before]
            elif isinstance(step, While):
                first = len(self.steps)
                test = self.node(step, self.body(step.condition, before))
                self.edges += [(p, first) for p in self.body(step.body, test)]
                before = test
            elif isinstance(step, Switch):
                choice = self.node(step, before)
                before = [e for b in step.branches for e in self.body(b, choice)]
            elif isinstance(step, Call):
                before = self.body(self.functions[step.function], before)
            else:
                before = self.node(step, before)
        return before


@settings(max_examples=200, deadline=None)
@given(programs())
def test_liveness_is_that_of_the_flow_graph(program):
    alive = Liveness(program)
    always = {id(v) for v in program.variables() if v.role != "temporary"}
    g = Graph(program)
    assert [id(s) for s in g.steps] == [id(v.step) for v in alive.visits]
    known = [effects(s) for s in g.steps]
    n = len(g.steps)
    start, after, written = ([set() for _ in range(n)] for _ in range(3))
    for e in g.exits:
        after[e] |= always
    changed = True
    while changed:
        changed = False
        for a, b in g.edges:
            if a is None:
                continue
            if not start[b] <= after[a]:
                after[a] |= start[b]
                changed = True
            new = written[a] | known[a][1]
            if not new <= written[b]:
                written[b] |= new
                changed = True
        for i, (reads, _, kills) in enumerate(known):
            new = reads | (after[i] - kills)
            if new != start[i]:
                start[i] = new
                changed = True
    for i, visit in enumerate(alive.visits):
        reads, writes, _ = known[i]
        wanted = (start[i] & written[i]) | (after[i] & (written[i] | writes)) | reads | writes | always
        assert {id(v) for v in alive.names(visit.live)} == wanted, i


def trace(program, rng):
    """One path through the program, as numbers of visits."""
    g = Graph(program)
    path, at = [], None
    following = {}
    for a, b in g.edges:
        following.setdefault(a, []).append(b)
    while following.get(at) and len(path) < 200:
        if at in g.exits and path and rng.random() < 0.5:
            break
        at = rng.choice(following[at])
        path.append(at)
    return g, path


@settings(max_examples=100, deadline=None)
@given(programs(), st.integers(0, 1000))
def test_what_a_run_reads_later_is_alive(program, seed):
    alive = Liveness(program)
    g, path = trace(program, random.Random(seed))
    written_at: dict[int, int] = {}
    for k, i in enumerate(path):
        reads, writes, _ = effects(g.steps[i])
        for v in reads:
            if v in written_at:
                for between in path[written_at[v] : k + 1]:
                    assert v in {id(x) for x in alive.names(alive.visits[between].live)}
        for v in writes:
            written_at[v] = k


@settings(max_examples=100, deadline=None)
@given(programs())
def test_what_lives_together_lies_apart(program):
    memory = allocate(program)
    for visit in Liveness(program).visits:
        spans = sorted(
            (x.__array_interface__["data"][0], x.nbytes)
            for x in (memory[id(v)] for v in Liveness(program).names(visit.live))
        )
        for (a, size), (b, _) in itertools.pairwise(spans):
            assert a + size <= b


def test_temporaries_share_host_memory():
    x, y = variable("x", (SIZE,), role="input"), variable("y", (SIZE,), role="output")
    a, b, c = (variable(n, (SIZE,)) for n in "abc")
    p = IpuProgram("p", toy_system(), (x,), (y,), (add(x, a), add(a, b), add(b, c), add(c, y)))
    memory = allocate(p)
    assert memory[id(a)].__array_interface__["data"] == memory[id(c)].__array_interface__["data"]
    assert [len(Liveness(p).names(v.live)) for v in Liveness(p).visits] == [3, 4, 4, 3]
