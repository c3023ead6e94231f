"""Steps of a state on integer grids: ``state, *results = step(state, *args)``, where what comes out goes in next.

The state has one grid at both ends, so that a step passes its integers on. Calibration carries the state from batch to
batch, and the grid has room for twice what it reached. Sums are products with ones: each is rounded once and alike by
all of LiteRT's kernels, which sums of integers are not.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, SupportsIndex, final

import numpy as np

from nxjax.errors import ParameterError
from nxjax.ops.dot import dot_general
from nxjax.ops.reduce import reduce_sum
from nxjax.ops.shape import reshape, transpose
from nxjax.quant.calibration import arguments
from nxjax.quant.observers import Range
from nxjax.quant.planned import PlannedCall
from nxjax.quant.scheme import Policy, preset
from nxjax.trace import dtypes, tree
from nxjax.trace.array import as_value, wrap
from nxjax.trace.core import Array, Op
from nxjax.trace.program import Program, Var
from nxjax.trace.scope import replaying
from nxjax.trace.stage import stage
from nxjax.trace.wrapping import wraps
from nxjax.transforms.inline import inlined
from nxjax.transforms.jit import jit

# How much further than in calibration a state may go.
ROOM: Final = 2.0


@final
class Carried:
    """Batches of calibration whose state is what the step before gave; the first one brings its own.

    Attributes:
        first: the first batch, as arguments.
        reach: the greatest magnitude of each leaf of the state so far.
    """

    def __init__(self, fun: Callable[..., Any], batches: Iterable[Any], place: int) -> None:
        self._step, self._batches, self._place = jit(fun), iter(batches), place
        self._name = getattr(fun, "__name__", "the function")
        head = next(self._batches, None)
        if head is None:
            raise ParameterError("quantize: calibrate gave no batches", expected="at least one")
        self.first = arguments(head)
        if not -len(self.first) <= place < len(self.first):
            raise ParameterError("quantize: state names no argument", got=place, expected=f"below {len(self.first)}")
        self.reach = [0.0] * len(tree.leaves(self.first[place]))

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        state = self.first[self._place]
        args = self.first
        while True:
            self._reached(state)
            given = list(args)
            given[self._place] = state
            yield tuple(given)
            state = self._next(given, state)
            batch = next(self._batches, None)
            if batch is None:
                self._reached(state)
                return
            args = arguments(batch)

    def _next(self, given: Sequence[Any], state: Any) -> Any:
        result = self._step(*given)
        wanted = tree.structure(state)
        new = result
        if tree.structure(result) != wanted:
            new = result[0] if isinstance(result, tuple) and result else None
        got, expected = tree.structure(result), wanted
        if tree.structure(new) == wanted:
            got, expected = _types(new), _types(state)
        if got != expected:
            raise ParameterError(
                f"quantize: {self._name} does not return the state that it takes",
                got=got,
                expected=f"{expected}, alone or first in a tuple",
                fix="return the new state first: def step(state, *args): ...; return state, loss",
            )
        return new

    def _reached(self, state: Any) -> None:
        for i, x in enumerate(tree.leaves(state)):
            a = np.asarray(x)
            if a.size and a.dtype.kind == "f":
                self.reach[i] = max(self.reach[i], float(np.abs(a).max()))


def _types(state: Any) -> str:
    types = [as_value(x, "quantize").type for x in tree.leaves(state)]
    return ", ".join(f"{dtypes.short_name(t.dtype)}{list(t.shape)}" for t in types)


def place_of(state: Any) -> int:
    """The position that a user gave; refused if it is none."""
    if isinstance(state, bool) or not isinstance(state, SupportsIndex):
        raise ParameterError("quantize: state is the position of an argument", got=state, expected="0")
    return operator.index(state)


def tied(call: PlannedCall, policy: Policy, ranges: dict[str, Range], carried: Carried, place: int) -> dict[str, Range]:
    """The ranges, with one for both ends of each leaf of the state: twice as far from zero as it went."""
    plan = call.plan(policy, "quantize")
    args, _ = tree.unflatten(call.in_tree, range(len(call.leaves)))
    numbers = tree.leaves(args[place])
    found = dict(ranges)
    for i, o, reach in zip(numbers, range(len(numbers)), carried.reach, strict=True):
        ends = [plan.sites[v] for v in (plan.program.inputs[i], plan.program.outputs[o]) if v in plan.sites]
        far = ROOM * max([reach, *(abs(bound) for site in ends for bound in ranges[site])])
        if far > 0 and math.isfinite(far):
            found.update(dict.fromkeys(ends, (-far, far)))
    return found


def summed_by_products(fun: Callable[..., Any], policy: Policy) -> Callable[..., Any]:
    """``fun`` with the sums that ``policy`` puts on integer grids as products with ones."""

    @wraps(fun)
    def changed(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = tree.flatten((args, kwargs))
        store: list[tree.TreeDef] = []

        def flat(*xs: Array) -> Sequence[Any]:
            given, named = tree.unflatten(structure, xs)
            results, out_tree = tree.flatten(fun(*given, **named))
            store[:] = [out_tree]
            return results

        values = [as_value(x, "quantize") for x in leaves]
        program = inlined(stage(flat, [v.type for v in values], getattr(fun, "__name__", "step")), 0)
        return tree.unflatten(store[0], _replayed(program, values, policy))

    return changed


def _replayed(program: Program, values: Sequence[Array], policy: Policy) -> list[Any]:
    env: dict[Var, Any] = dict(zip(program.inputs, values, strict=True))
    env.update(zip(program.constvars, program.values, strict=True))
    read = lambda a: env[a] if isinstance(a, Var) else a.value
    for e in program.equations:
        xs = [read(a) for a in e.inputs]
        with replaying(e.scope, e.source):
            types = tuple(a.type for a in e.inputs)
            instead = PRODUCTS.get(e.op)
            if instead is not None and not _on_integers(policy(e.op.name, e.scope, types)):
                instead = None
            y = (instead or e.op)(*xs, **e.params)
            ys = y if e.op.multi else [y]
        env.update(zip(e.outputs, ys, strict=True))
    return [read(a) for a in program.outputs]


def _on_integers(answer: Any) -> bool:
    scheme = preset(answer) if isinstance(answer, str) else answer
    return scheme is not None and scheme.integer


def _by_product(x: Array, *, axes: Sequence[int]) -> Array:
    rest = tuple(i for i in range(x.ndim) if i not in axes)
    shape = tuple(x.shape[i] for i in rest)
    rows, n = math.prod(shape), math.prod(x.shape[i] for i in axes)
    matrix = reshape(transpose(x, permutation=(*rest, *axes)), shape=(rows, n))
    ones = wrap(np.ones((n, 1), x.dtype))
    return reshape(dot_general(matrix, ones, dimension_numbers=(((1,), (0,)), ((), ()))), shape=shape)


# What is another op on integers.
PRODUCTS: Final[dict[Op, Callable[..., Array]]] = {reduce_sum: _by_product}
