"""Rules of graphs that call one another: branches, loops, calls. Variables that they set are carried along."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from nxjax import lax
from nxjax.errors import InvalidFileError, NxError
from nxjax.interop.graphs.values import NeedsValue, as_numpy, concrete
from nxjax.interop.tflite.graph import TFLiteNode, invalid
from nxjax.interop.tflite.held import GridValue
from nxjax.interop.tflite.walk import TFLiteScope, on_grid_of, rule
from nxjax.trace.core import Array

# Turns of loops that run one by one while the graph is walked.
_TURNS: Final = 1 << 14


def kept(x: Any) -> Any:
    """A value as control flow carries it: an array."""
    return x.stored if isinstance(x, GridValue) else x


def _known(x: Any) -> bool:
    return x.known if isinstance(x, GridValue) else concrete(x)


def _truth(x: Any) -> bool:
    return bool(np.asarray(as_numpy(x)).reshape(-1)[0])


def _with_state(scope: TFLiteScope, index: int, xs: Sequence[Any], state: Any) -> tuple[tuple[Any, ...], Any]:
    """A call of a graph with the variables as an operand and a result."""
    walker, held = scope.walker, scope.walker.state
    walker.state = dict(state)
    try:
        ys = walker.call(index, xs)
        return tuple(map(kept, ys)), {k: kept(v) for k, v in walker.state.items()}
    finally:
        walker.state = held


def _arrays(scope: TFLiteScope) -> dict[str, Any]:
    return {k: kept(v) for k, v in scope.walker.state.items()}


@rule("CALL", on_grids="held")
def _call(*xs: Any, subgraph: int, scope: TFLiteScope) -> Any:
    return tuple(scope.walker.call(int(subgraph), xs))


@rule("IF", on_grids="held")
def _if(
    condition: Any, *xs: Any, then_subgraph_index: int, else_subgraph_index: int, scope: TFLiteScope, node: TFLiteNode
) -> Any:
    if concrete(condition):
        taken = then_subgraph_index if _truth(condition) else else_subgraph_index
        return tuple(scope.walker.call(taken, xs))
    state = _arrays(scope)
    try:
        ys, after = lax.cond(
            condition.reshape(()),
            lambda: _with_state(scope, then_subgraph_index, xs, state),
            lambda: _with_state(scope, else_subgraph_index, xs, state),
        )
    except NxError as error:
        raise NeedsValue(
            "from_tflite: an IF on a traced condition, whose branches do not both fit these shapes",
            got=f"{node}: {error.what}", fix="call the function outside jit",
        ) from error  # fmt: skip
    scope.walker.state = dict(after)
    return tuple(ys)


@rule("WHILE", "STABLEHLO_WHILE", on_grids="held")
def _while(*xs: Any, cond_subgraph_index: int, body_subgraph_index: int, scope: TFLiteScope, node: TFLiteNode) -> Any:
    walker = scope.walker
    first = walker.graph(body_subgraph_index).inputs
    tensors = [walker.graph(body_subgraph_index).tensors[i] for i in first]
    if all(map(_known, xs)) and all(map(_known, walker.state.values())):
        return _in_python(xs, cond_subgraph_index, body_subgraph_index, scope)
    # Handles are no arrays: they go around the loop.
    carried = [i for i, x in enumerate(xs) if isinstance(x, (Array, GridValue))]

    def whole(state: Any) -> list[Any]:
        every = list(xs)
        for i, x in zip(carried, state[0], strict=True):
            every[i] = on_grid_of(tensors[i], x)
        return every

    def go(state: Any) -> Any:
        (y, *_), _ = _with_state(scope, cond_subgraph_index, whole(state), state[1])
        return _going(y).reshape(())

    def step(state: Any) -> Any:
        ys, after = _with_state(scope, body_subgraph_index, whole(state), state[1])
        return tuple(ys[i] for i in carried), after

    try:
        last, after = lax.while_loop(go, step, (tuple(kept(xs[i]) for i in carried), _arrays(scope)))
    except InvalidFileError:
        raise
    except NxError as error:
        raise NeedsValue(
            "from_tflite: a WHILE on a traced condition, whose values change their shapes",
            got=f"{node}: {error.what}", fix="call the function outside jit",
        ) from error  # fmt: skip
    walker.state = dict(after)
    return tuple(whole((last, None)))


def _going(y: Any) -> Any:
    """The result of a loop's condition.

    Raises:
        InvalidFileError: no truth value, or true whatever the loop has computed.
    """
    if isinstance(y, GridValue) or y.dtype != np.bool_ or y.size != 1:
        raise invalid("a loop whose condition is no truth value", y)
    if concrete(y) and _truth(y):
        raise invalid("a loop that never ends", "a condition that is true")
    return y


def _in_python(xs: Sequence[Any], condition: int, body: int, scope: TFLiteScope) -> Any:
    walker, values, written = scope.walker, tuple(xs), scope.walker.written
    for _ in range(_TURNS):
        if not _truth(walker.call(condition, values)[0]):
            return values
        values = tuple(walker.call(body, values))
        # Turns are counted here.
        walker.written = written
    raise invalid(f"a loop of more than {_TURNS} turns", scope.graph.name)
