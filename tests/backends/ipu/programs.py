"""Random programs of tiles, with loops, branches and calls, for tests against slow oracles."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from nxjax.lower.ipu.mapping import single
from nxjax.lower.ipu.program import (
    Call,
    Copy,
    Execute,
    FieldConnection,
    Group,
    IpuProgram,
    Repeat,
    Switch,
    Variable,
    VariableView,
    While,
)
from tests.backends.ipu.toys import Less, add, boxes, toy_system, variable

SIZE = 12


@st.composite
def programs(draw, tiles: int = 4) -> IpuProgram:
    """Programs whose every read follows a write, or is of something alive throughout."""
    count = 0

    def new(role="temporary", **more) -> Variable:
        nonlocal count
        count += 1
        grain = draw(st.sampled_from([4, 8, 24]))
        return variable(f"v{count}", (SIZE,), draw(st.integers(1, tiles)), role, grain=grain, **more)

    inputs = [new("input") for _ in range(2)]
    state = new("state", value=np.arange(SIZE, dtype=np.float32))
    constant = new("constant", value=np.full(SIZE, 0.5, np.float32))
    output = new("output")
    pool = [new() for _ in range(4)]
    functions: dict[str, tuple] = {}

    def readable(written):
        return [*inputs, state, constant, *written]

    def pick(written):
        return draw(st.sampled_from(readable(written)))

    def straight(written: set) -> list:
        """One step; notes what it writes."""
        targets = [*pool, state, output]
        y = draw(st.sampled_from(targets))
        x = pick([v for v in pool if v in written])
        kind = draw(st.sampled_from(["add", "reverse", "part", "copy"]))
        if x is y:
            x = constant
        if kind == "add":
            step = add(x, y, draw(st.integers(0, 3)) / 2)
        elif kind == "reverse":
            step = Copy(((VariableView(x, SIZE - 1, (SIZE,), (-1,)), y.view()),))
        elif kind == "part" and (y in written or y in (state,)):
            n = draw(st.integers(1, SIZE - 1))
            step = Copy(((VariableView(x, 0, (n,), (1,)), VariableView(y, SIZE - n, (n,), (1,))),))
            return [step]
        else:
            step = Copy(((VariableView(x, 3, (SIZE,), (0,)), y.view()),))
        written.add(y)
        return [step]

    def counter(limit: int) -> tuple[list, tuple, Variable]:
        nonlocal count
        count += 1
        zero = Variable(f"zero{count}", (), np.dtype("int32"), single(()), "constant", np.zeros((), np.int32))
        i = Variable(f"i{count}", (), np.dtype("int32"), single(()))
        p = Variable(f"p{count}", (), np.dtype("bool"), single(()))
        one = boxes([0], (), ())
        g = Group(Less(limit), np.zeros(1, np.int32), {"x": FieldConnection(i, one), "y": FieldConnection(p, one)})
        return [Copy(((zero.view(), i.view()),))], (Execute("less", (g,)),), p

    def block(written: set, depth: int) -> tuple:
        steps: list = []
        for _ in range(draw(st.integers(1, 4))):
            kind = draw(st.sampled_from(["straight"] * 4 + (["repeat", "while", "switch", "call"] if depth else [])))
            if kind == "straight":
                steps += straight(written)
            elif kind == "repeat":
                steps.append(Repeat(draw(st.integers(1, 3)), block(written, depth - 1)))
            elif kind == "while":
                start, condition, p = counter(draw(st.integers(0, 2)))
                steps += start
                # What the body writes may not have been written.
                steps.append(While(condition, p, block(set(written), depth - 1)))
            elif kind == "switch":
                nonlocal count
                count += 1
                value = np.asarray(draw(st.integers(0, 1)), np.int32)
                index = Variable(f"k{count}", (), np.dtype("int32"), single(()), "constant", value)
                a, b = set(written), set(written)
                steps.append(Switch(index, (block(a, depth - 1), block(b, depth - 1))))
                written |= a & b
            else:
                name = f"f{len(functions)}"
                functions[name] = ()
                inner = set(written)
                functions[name] = block(inner, depth - 1)
                written |= inner
                steps += [Call(name)] * draw(st.integers(1, 2))
        return tuple(steps)

    written: set = set()
    steps = block(written, 2)
    last = [v for v in pool if v in written]
    steps = (*steps, add(pick(last), output, 1.0))
    return IpuProgram("random", toy_system(tiles), tuple(inputs), (output, state), steps, functions)
