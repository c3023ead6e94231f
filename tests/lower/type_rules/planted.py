"""Faults planted in equations, and what becomes of them: refused, without effect on types, missed, or a false alarm.

What an op infers is the other opinion: it shares no code with the rules.
"""

import contextlib
import dataclasses

import numpy as np

from nxjax.errors import NxError
from nxjax.lower.type_rules.table import flaw
from nxjax.trace import dtypes
from nxjax.trace.kinds import check_params
from nxjax.trace.program import Equation, Program, Var
from nxjax.trace.types import ArrayType

_OTHER = {dtypes.float32: dtypes.int32, dtypes.int32: dtypes.float16, dtypes.bool_: dtypes.uint8}


def _other_dtypes(dtype):
    return [d for d in (_OTHER.get(dtype, dtypes.float32), dtypes.complex64, dtypes.key) if d != dtype]


def other_types(t):
    """Types that are almost ``t``."""
    for dtype in _other_dtypes(t.dtype):
        yield ArrayType(t.shape, dtype)
    yield t.with_shape((*t.shape, 2))
    for d, n in enumerate(t.shape):
        yield t.with_shape((*t.shape[:d], n + 1, *t.shape[d + 1 :]))
        yield t.with_shape((*t.shape[:d], *t.shape[d + 1 :]))
    if t.shape[::-1] != t.shape:
        yield t.with_shape(t.shape[::-1])


def other_rows(row):
    """A row shorter, longer, doubled, or with two neighbours exchanged."""
    if row:
        yield row[:-1]
        yield (*row, row[0])
        yield row[:1] * len(row)
    for i in range(len(row) - 1):
        yield (*row[:i], row[i + 1], row[i], *row[i + 2 :])


def other_values(value):
    """Parameters that are almost ``value``, of its kind."""
    if isinstance(value, bool) or value is None or isinstance(value, (str, float)):
        return
    if isinstance(value, int):
        yield from (-1, value - 1, value + 1, 7, 1 << 40)
    elif isinstance(value, ArrayType):
        yield from other_types(value)
    elif isinstance(value, Program):
        yield from other_programs(value)
    elif hasattr(value, "_replace"):
        for field in value._fields:
            for other in other_values(getattr(value, field)):
                yield value._replace(**{field: other})
    elif isinstance(value, tuple):
        for i, one in enumerate(value):
            for other in other_values(one):
                yield (*value[:i], other, *value[i + 1 :])
        yield from other_rows(value)
    elif isinstance(value, np.dtype):
        yield from _other_dtypes(value)
    elif dataclasses.is_dataclass(value):
        for f in dataclasses.fields(value):
            for other in other_values(getattr(value, f.name)):
                with contextlib.suppress(NxError, ValueError, TypeError):  # no such value
                    yield dataclasses.replace(value, **{f.name: other})


def other_programs(p):
    """Programs that take or give other types; they stay well formed."""

    def made(inputs, outputs):
        return Program(inputs, p.equations, outputs, p.constvars, p.values, p.name)

    spare = Var(ArrayType((2,), dtypes.float32))
    yield made((*p.inputs, spare), p.outputs)
    if p.outputs:
        yield made(p.inputs, p.outputs[:-1])
        yield made((*p.inputs[:-1], spare) if p.inputs else (), (*p.outputs[:-1], spare))
    if len(p.outputs) > 1:
        yield made(p.inputs, p.outputs[::-1])


def mutants(e):
    """``e`` with one thing changed, and what was changed."""
    types, outs = tuple(a.type for a in e.inputs), tuple(v.type for v in e.outputs)

    def made(types=types, params=e.params, outs=outs):
        return Equation(e.op, tuple(map(Var, types)), tuple(map(Var, outs)), dict(params))

    for i, t in enumerate(outs):
        for other in other_types(t):
            yield "result", made(outs=(*outs[:i], other, *outs[i + 1 :]))
    if outs:
        yield "result", made(outs=outs[:-1])
    yield "result", made(outs=(*outs, ArrayType((), dtypes.float32)))
    for i, t in enumerate(types):
        for other in other_types(t):
            yield "operand", made((*types[:i], other, *types[i + 1 :]))
    for row in other_rows(types):
        yield "operand", made(row)
    for name, value in e.params.items():
        for other in other_values(value):
            yield "parameter", made(params={**e.params, name: other})


def inferred(e):
    """Whether the op itself takes an equation, with the results that it has."""
    try:
        found = e.op.infer(*(a.type for a in e.inputs), **e.params)
    except Exception:
        return False
    found = found if e.op.multi else (found,)
    return [(t.shape, t.dtype) for t in found] == [(v.type.shape, v.type.dtype) for v in e.outputs]


def of_its_kind(e):
    """Whether parameters are of the kinds that the op says; others are the business of `check_params`."""
    try:
        check_params(e.op, e.params)
    except NxError:
        return False
    return True


def judged(e, tally, wrong):
    """Plant every fault in ``e``."""
    for what, other in mutants(e):
        if what == "parameter" and not of_its_kind(other):
            continue
        refused, fits = flaw(other) is not None, inferred(other)
        verdict = ("false alarm" if fits else "refused") if refused else ("harmless" if fits else "missed")
        tally[what, verdict] += 1
        if verdict in ("missed", "false alarm"):
            wrong.append(f"{verdict}: {what}: {other!r}: {flaw(other)}")


def equations(program):
    """All equations, at any depth."""
    for e in program.equations:
        yield e
        for inner in e.programs():
            yield from equations(inner)
