"""Rules of calls, branches and loops. Loops of a known number of steps become `scan`, which has a gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nxjax.ops.base import constant
from nxjax.ops.convert import convert_element_type
from nxjax.ops.select import select_n
from nxjax.stablehlo.composites import recognized
from nxjax.stablehlo.loops import counted
from nxjax.stablehlo.walk import TOKEN, Operation, Scope, refused, rule
from nxjax.trace import dtypes
from nxjax.trace.core import Array
from nxjax.trace.program import Program, run
from nxjax.trace.stage import stage
from nxjax.transforms.control.cond_op import cond_op
from nxjax.transforms.control.loop_params import LoopParams, Operands
from nxjax.transforms.control.while_loop import while_op


@rule("func.call")
def _call(scope: Scope, op: Operation, *xs: Any) -> Any:
    return tuple(scope.importer.call(op.attributes["callee"], xs))


@rule("stablehlo.composite")
def _composite(scope: Scope, op: Operation, *xs: Any) -> Any:
    found = recognized(op, *xs)
    return found if found is not None else tuple(scope.importer.call(op.attributes["decomposition"], xs))


def _arrays(op: Operation, xs: Sequence[Any]) -> None:
    if any(not isinstance(x, Array) for x in xs):
        raise refused(op, "tuples and tokens do not go through loops and branches here")


def branched(scope: Scope, op: Operation, index: Array) -> Any:
    """The region that ``index`` (in range) names."""
    hoisted = [scope.staged(block, f"branch {i}").hoist_consts() for i, block in enumerate(op.regions)]
    captured = [x for _, consts in hoisted for x in consts]
    types = [x.type for x in captured]
    programs: list[Program] = []
    first = 0
    for program, consts in hoisted:
        mine = slice(first, first + len(consts))
        flat: Any = lambda *xs, program=program, mine=mine: run(program, xs[mine])
        programs.append(stage(flat, types, program.name))
        first = mine.stop
    return cond_op(index, *captured, branches=tuple(programs))


@rule("stablehlo.if")
def _if(scope: Scope, op: Operation, which: Array) -> Any:
    # The first region is taken where the predicate holds.
    index = select_n(which, constant(1, dtypes.int32), constant(0, dtypes.int32))
    return branched(scope, op, index)


@rule("stablehlo.case")
def _case(scope: Scope, op: Operation, index: Array) -> Any:
    last = len(op.regions) - 1
    if not last:
        return tuple(scope.function(op.regions[0])())
    if index.dtype != dtypes.int32:
        index = convert_element_type(index, dtype=dtypes.int32)
    return branched(scope, op, index)


@rule("stablehlo.while")
def _while(scope: Scope, op: Operation, *xs: Any) -> Any:
    _arrays(op, xs)
    found = counted(scope, op, xs)
    if found is not None:
        return found
    test, turn = op.regions
    loop = LoopParams(scope.staged(test, "cond"), 0, scope.staged(turn, "body"), 0, len(xs))
    args, loop = loop.bound(Operands((), (), xs, ()))
    return while_op(*args, loop=loop)


@rule("stablehlo.after_all", "stablehlo.create_token")
def _token(_: Scope, op: Operation, *xs: Any) -> Any:
    return TOKEN
