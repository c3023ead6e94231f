"""`while_loop` and `fori_loop`: loops whose number of steps may depend on values.

The op holds two programs: ``cond`` maps (its consts..., carry...) to one boolean, ``body`` (its consts..., carry...) to
the next carry. Forward mode works for any loop; reverse mode needs a number of steps that is known while tracing, which
is why `fori_loop` with constant bounds is a `scan`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, final

import numpy as np

from nxjax.config import config
from nxjax.errors import CarryTypeError, DtypeError, ParameterError, ProgramError, ShapeError, TracerBoolConversionError
from nxjax.ops import vocabulary as ops
from nxjax.ops.base import NDArray, check_carry, check_operands, require
from nxjax.ops.collectives import as_varying
from nxjax.trace import dtypes, tree
from nxjax.trace.annotations import ArrayLike, PyTree
from nxjax.trace.array import DeviceArray, as_value, wrap
from nxjax.trace.boundary import api_boundary
from nxjax.trace.core import Array, Arrays
from nxjax.trace.evaluate import evaluate
from nxjax.trace.stage import stage
from nxjax.trace.types import ArrayType
from nxjax.trace.wrapping import name_of
from nxjax.transforms.control.carry import stage_loop_body
from nxjax.transforms.control.loop import LoopOp
from nxjax.transforms.control.loop_params import LoopParams
from nxjax.transforms.control.scan import scan
from nxjax.transforms.partial_eval import PartialTrace, partial_eval
from nxjax.transforms.subprograms import (
    Mask,
    expand_by_mask,
    mask_and,
    mask_or,
    merge_by_mask,
    select_by_mask,
    select_inputs_and_results,
)

_TRUTH: Final = ArrayType((), dtypes.bool_)


@final
class While(LoopOp):
    """``body`` again and again, as long as ``cond`` holds; operands are cond's consts, body's consts, carry."""

    name = "while"
    aliases = {"cond_jaxpr": "cond", "body_jaxpr": "body"}
    fields = {"cond": "cond", "num_cond_consts": "cond_nconsts", "body": "body", "num_consts": "body_nconsts"}
    instead_of_transpose = (
        "use nx.scan, or nx.fori_loop with bounds that are Python ints, so that the number of steps is known"
    )

    def pack_params(self, params: Mapping[str, Any]) -> dict[str, Any]:
        fields = self.loop_fields(params)
        return {"loop": LoopParams(**fields, num_carry=len(fields["body"].outputs))}

    def infer(self, *types: ArrayType, loop: LoopParams) -> tuple[ArrayType, ...]:
        x, cond, out = self.operands(types, loop), loop.condition, loop.body.out_types
        require(self, not x.xs, "num_carry", loop.num_carry, loop.num_carry + len(x.xs))
        check_operands(self, x.cond_inputs, cond, "condition")
        check_operands(self, x.body_inputs, loop.body, "body")
        check_carry(self, x.carry, out)
        if len(cond.outputs) != 1 or not cond.out_types[0].typematch(_TRUTH):
            raise ProgramError("while: the condition gives one bool", got=cond.out_types, expected=_TRUTH)
        return out

    def eval(self, *xs: NDArray, loop: LoopParams) -> tuple[NDArray, ...]:
        x = loop.split(xs)
        while evaluate(loop.condition, x.cond_inputs)[0]:
            x = x._replace(carry=evaluate(loop.body, x.body_inputs))
        return tuple(x.carry)

    def partial_eval(self, trace: PartialTrace, args: Arrays, known: Mask, *, loop: LoopParams) -> tuple[Array, ...]:
        body, cond = loop.body, loop.condition
        # How many values the unknown carries will need is not known, so nothing is kept: the staged loop finds the
        # known ones again beside them. It can be run forwards, and not transposed.
        _, mask = loop.fixed_point(
            known, lambda m: (None, mask_and(m.carry, partial_eval(body, m.body_inputs).known_out))
        )
        if not all((*mask.cond_consts, *partial_eval(cond, mask.cond_inputs).known_out)):
            mask = mask._replace(carry=(False,) * loop.num_carry)
        ready, x = mask.carry, loop.split(args)
        # A carry that no step changes needs no loop.
        still = loop.loop_invariant()
        late = ()
        if not all(mask_or(ready, still)) or partial_eval(body, mask.body_inputs).unknown.effect:
            late = trace.process_unknown(self, args, {"loop": loop})
        out: Arrays = ()
        if any(ready):
            cut = partial_eval(body, mask.body_inputs, unknown_out=tuple(not r for r in ready)).known
            cut = select_inputs_and_results(cut, cut.inputs, [i < sum(ready) for i in range(len(cut.outputs))])
            cond = select_inputs_and_results(cond, select_by_mask(cond.inputs, mask.cond_inputs), (True,))
            inputs, first = loop.bound(x.masked(mask), body=cut, cond=cond)
            out = trace.process_known(self, inputs, {"loop": first})
        computed = expand_by_mask(out, ready)
        return tuple(
            y if r else x if s else late[k]
            for k, (y, r, x, s) in enumerate(zip(computed, ready, x.carry, still, strict=True))
        )

    def stablehlo(self, b: Any, out: tuple[ArrayType, ...], *xs: Any, loop: LoopParams) -> Any:
        x = loop.split(xs)
        # StableHLO's loop needs something to carry.
        carry = x.carry or [b.constant(False, ArrayType((), dtypes.bool_))]
        types = tuple(y.type for y in carry)

        def test(b: Any, *state: Any) -> Any:
            return b.program(loop.condition, x._replace(carry=state[: len(out)]).cond_inputs)

        def step(b: Any, *state: Any) -> Any:
            return [*b.program(loop.body, x._replace(carry=state[: len(out)]).body_inputs), *state[len(out) :]]

        return b.op("stablehlo.while", carry, types, regions=[(types, test), (types, step)])[: len(out)]


while_op = While()


@api_boundary
def while_loop(cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init_val: PyTree) -> PyTree:
    """Apply ``body_fun`` to the carry while ``cond_fun`` of it is true.

    Args:
        cond_fun: maps the carry to a boolean scalar.
        body_fun: maps the carry to a carry of the same structure and type.
        init_val: the first carry, a pytree.

    Raises:
        CarryTypeError: ``body_fun`` changes the carry's structure or type.
        GradientError: in reverse mode (`grad`, `vjp`); `jvp` works. Use `scan`, or `fori_loop` with constant bounds.
        ParameterError: not two functions.
        ShapeError, DtypeError: ``cond_fun`` does not return one boolean.

    >>> int(while_loop(lambda x: x < 100, lambda x: x * 2, 3))
    192
    """
    if not (callable(cond_fun) and callable(body_fun)):
        raise ParameterError("while_loop: needs two functions", got=f"{cond_fun!r}, {body_fun!r}")

    if config.disable_jit:
        known, init_val = _step_by_step(cond_fun, body_fun, init_val)
        if known:
            return init_val

    def step(carry: Any, _: Arrays) -> tuple[Any, list[Any]]:
        return body_fun(carry), []

    name = name_of(body_fun, "body")
    carry, carry_def, body = stage_loop_body("while_loop", CarryTypeError, init_val, (), step, name)
    names = tree.path_names(init_val, "carry")

    def test(*xs: Array) -> Sequence[Any]:
        result = cond_fun(tree.unflatten(carry_def, xs))
        leaves = tree.leaves(result)
        if len(leaves) != 1:
            raise ParameterError("while_loop: cond_fun must give one boolean", got=tree.structure(result))
        return leaves

    cond = stage(test, [x.type for x in carry], name_of(cond_fun, "cond"), names)
    (type,) = cond.out_types
    if type.shape:
        raise ShapeError(
            "while_loop: cond_fun must give a scalar", got=type, expected="bool[]", fix="use .all() or .any()"
        )
    if type.dtype != dtypes.bool_:
        raise DtypeError("while_loop: cond_fun must give a boolean", got=type, expected="bool[]", fix="compare with 0")
    if not all(type.vma <= x.type.vma for x in carry):
        # Devices that go on for different numbers of steps end with different values.
        return while_loop(cond_fun, body_fun, tree.unflatten(carry_def, [as_varying(x, type.vma) for x in carry]))
    cond, cond_consts = cond.hoist_consts()
    body, body_consts = body.hoist_consts()
    # A carry that no step changes becomes a const, so it has the gradient of a value outside of the loop.
    loop = LoopParams(cond, len(cond_consts), body, len(body_consts), len(carry))
    same = loop.loop_invariant()
    loop, operands = loop.hoist_invariants(same, [*cond_consts, *body_consts, *carry])
    args, loop = loop.bound(operands)
    return tree.unflatten(carry_def, merge_by_mask(select_by_mask(carry, same), while_op(*args, loop=loop), same))


def _step_by_step(cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], carry: Any) -> tuple[bool, Any]:
    """A Python loop, so that every step can be looked at: whether it came to its end, and the carry it came to.

    It stops before the end where the condition has no truth value: under `vmap` it may be another for each element.
    """
    while True:
        try:
            more = bool(cond_fun(carry))
        except TracerBoolConversionError:
            return False, carry
        if not more:
            return True, carry
        carry = body_fun(carry)


@api_boundary
def fori_loop(
    lower: ArrayLike,
    upper: ArrayLike,
    body_fun: Callable[[Any, Any], Any],
    init_val: PyTree,
    *,
    unroll: int | bool | None = None,
) -> PyTree:
    """``for i in range(lower, upper): val = body_fun(i, val)``.

    If the bounds are known during tracing, it is a `scan` and has a gradient. Otherwise it is a `while_loop`.

    Args:
        lower, upper: integer scalars.
        body_fun: maps ``(i, val)`` to ``val``, of one structure and type.
        unroll: as in `scan`; needs constant bounds.

    Raises:
        CarryTypeError: ``body_fun`` changes the structure or type of ``val``.
        DtypeError: a bound is not an integer scalar.
        ParameterError: not a function, or ``unroll`` with traced bounds.

    >>> lax.fori_loop(0, 5, lambda i, x: x + i, jnp.array([0, 10]))
    Array([10, 20], dtype=int32)
    """
    if not callable(body_fun):
        raise ParameterError("fori_loop: needs a function", got=type(body_fun).__name__)
    bounds = [as_value(x, "fori_loop") for x in (lower, upper)]
    for x in bounds:
        if x.shape or x.dtype not in dtypes.INTEGER:
            raise DtypeError("fori_loop: bounds are integer scalars", got=x.type)
    if bounds[0].dtype != bounds[1].dtype:
        bounds = _one_dtype(bounds)
    first, last = bounds
    if isinstance(first, DeviceArray) and isinstance(last, DeviceArray):
        steps = max(int(last.numpy()) - int(first.numpy()), 0)

        def scanned(carry: Any, _: None) -> tuple[Any, None]:
            i, value = carry
            return (_next(i), _same_shapes(value, body_fun(i, value))), None

        (_, result), _ = scan(scanned, (first, init_val), None, length=steps, unroll=1 if unroll is None else unroll)
        return result
    if unroll is not None and unroll is not False and unroll != 1:
        raise ParameterError("fori_loop: unroll needs bounds that are known while tracing", got=unroll)

    def test(carry: Any) -> Any:
        return ops.lt(carry[0], carry[1])

    def step(carry: Any) -> Any:
        i, end, value = carry
        return _next(i), end, _same_shapes(value, body_fun(i, value))

    return while_loop(test, step, (first, last, init_val))[2]


def _same_shapes(value: Any, after: Any) -> Any:
    """``after``, if it is built like ``value``; else the error that says so of `fori_loop`, and not of its loop."""
    if tree.structure(after) != tree.structure(value):
        raise CarryTypeError(
            "fori_loop: body_fun changes the structure of its value",
            got=tree.structure(after),
            expected=tree.structure(value),
        )
    names = tree.path_names(value, "value")
    for name, old, new in zip(names, tree.leaves(value), tree.leaves(after), strict=True):
        if np.shape(old) != np.shape(new):
            raise CarryTypeError(
                "fori_loop: body_fun changes the shape of its value",
                got=f"{name} is {as_value(new).type} after a step",
                expected=f"{name}: {as_value(old).type}",
                fix=f"start {name} with shape {np.shape(new)}, or give back shape {np.shape(old)}",
            )
    return after


def _next(i: Array) -> Array:
    return ops.add(i, wrap(np.ones((), i.dtype), weak=i.type.weak))


def _one_dtype(bounds: Arrays) -> list[Array]:
    weak = [x.type.weak for x in bounds]
    if weak[0] == weak[1]:
        raise DtypeError(
            "fori_loop: bounds differ in dtype", got=f"{bounds[0].type} and {bounds[1].type}", expected="one dtype"
        )
    dtype = bounds[weak.index(False)].dtype
    return [ops.convert_element_type(x, dtype=dtype) for x in bounds]
