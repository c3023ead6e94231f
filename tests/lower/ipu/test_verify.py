"""Each rule of the program, broken once."""

from dataclasses import replace

import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import ProgramError
from nxjax.lower.ipu.lower import lower
from nxjax.lower.ipu.mapping import single
from nxjax.lower.ipu.program import Boxes, Call, Copy, FieldConnection, IpuProgram, Switch, Variable, While
from nxjax.lower.ipu.verify import verify
from tests.lower.ipu.cases import TINY, normal

X = normal(64)


def program() -> IpuProgram:
    return lower(nx.make_jaxpr(lambda x: nx.exp(x) * x)(X), TINY)


def broken(says, change):
    p = program()
    change(p)
    with pytest.raises(ProgramError, match=says):
        verify(p)


def group(p):
    return p.steps[0].groups[0]


def set_group(p, **changes):
    step = p.steps[0]
    p.steps = (replace(step, groups=(replace(step.groups[0], **changes), *step.groups[1:])), *p.steps[1:])


def test_a_sound_program_passes():
    assert verify(program())


def test_mappings():
    def twice(p):
        p.inputs[0].pieces = p.inputs[0].pieces * 2

    def none(p):
        p.inputs[0].pieces = p.inputs[0].pieces[:0]

    def elsewhere(p):
        p.inputs[0].pieces = single((64,), 99)

    broken("exactly one place", twice)
    broken("exactly one place", none)
    broken("a tile that is not there", elsewhere)


def test_edges():
    def outside(p):
        edge = group(p).edges["x0"]
        boxes = Boxes(edge.boxes.offsets + 60, edge.boxes.sizes, edge.boxes.strides)
        set_group(p, edges={**group(p).edges, "x0": FieldConnection(edge.variable, boxes)})

    def missing(p):
        set_group(p, edges={k: e for k, e in group(p).edges.items() if k != "x0"})

    def other_dtype(p):
        v = Variable("v", (64,), np.dtype(np.int32), single((64,)))
        set_group(p, edges={**group(p).edges, "x0": FieldConnection(v, group(p).edges["x0"].boxes)})

    def other_tile(p):
        set_group(p, tiles=group(p).tiles[::-1].copy())

    def attributes(p):
        set_group(p, attributes={})

    broken("does not have", outside)
    broken("connected otherwise", missing)
    broken("is float32", other_dtype)
    broken("writes to another tile", other_tile)
    broken("other attributes", attributes)


def test_conflicts():
    def same_element(p):
        g = group(p)
        e = g.edges["y0"]
        boxes = Boxes(e.boxes.offsets * 0, e.boxes.sizes, e.boxes.strides)
        e.variable.pieces = single((64,), 0)
        set_group(p, edges={**g.edges, "y0": FieldConnection(e.variable, boxes)}, tiles=g.tiles * 0)

    def read_of_another(p):
        g = group(p)
        e = g.edges["y0"]
        boxes = Boxes(e.boxes.offsets[::-1].copy(), e.boxes.sizes, e.boxes.strides)
        set_group(p, edges={**g.edges, "x0": FieldConnection(e.variable, boxes)})

    broken("two vertices write", same_element)
    broken("what another one writes", read_of_another)


def test_copies():
    v = Variable("v", (8,), np.dtype(np.float32), single((8,)))
    w = Variable("w", (8,), np.dtype(np.float32), single((8,)))

    def add(*pairs):
        return lambda p: setattr(p, "steps", (*p.steps, Copy(pairs)))

    broken("shapes differ", add((v.view(), replace(w.view(), shape=(4,), strides=(1,)))))
    broken("two targets overlap", add((v.view(), w.view()), (v.view(), w.view())))
    broken("a target overlaps a source", add((v.view(), v.view())))


def test_control():
    v = Variable("v", (1,), np.dtype(np.float32), single((1,)))
    add = lambda step: lambda p: setattr(p, "steps", (*p.steps, step))
    broken("one bool", add(While((), v, ())))
    broken("one int32", add(Switch(v, ((), ()))))
    broken("no such function", add(Call("f")))

    def recursive(p):
        p.functions["f"] = (Call("f"),)
        p.steps = (*p.steps, Call("f"))

    broken("calls itself", recursive)


def test_roles():
    def output(p):
        p.outputs[0].role = "temporary"

    def constant(p):
        p.outputs[0].role = "constant"

    broken("an output has another role", output)
    broken("constant", constant)
