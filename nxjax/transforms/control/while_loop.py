"""`while_loop` and `fori_loop`: loops whose number of steps may depend on values.

The op holds two programs: ``cond`` maps (its consts..., carry...) to one boolean, ``body`` (its consts..., carry...) to
the next carry. Forward mode works for any loop; reverse mode needs a number of steps that is known while tracing, which
is why `fori_loop` with constant bounds is a `scan`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, final

import numpy as np

from nxjax.config import config
from nxjax.errors import CarryTypeError, DtypeError, ParameterError, ProgramError, ShapeError, TracerBoolConversionError
from nxjax.ops.base import NDArray, carried, counted, fits, move_batch
from nxjax.ops.collectives import varying
from nxjax.ops.shape import broadcast_in_dim
from nxjax.trace import dtypes, tree
from nxjax.trace.array import DeviceArray, as_value
from nxjax.trace.boundary import boundary
from nxjax.trace.core import Array
from nxjax.trace.evaluate import evaluate
from nxjax.trace.program import Program, Var, run
from nxjax.trace.stage import stage
from nxjax.trace.types import ArrayType
from nxjax.transforms.control.carry import carry_of_one_type
from nxjax.transforms.control.scan import scan
from nxjax.transforms.jvp import instantiate, jvp_flat
from nxjax.transforms.nested import (
    Groups,
    Mask,
    Nested,
    Thread,
    both,
    either,
    handed_on,
    merged,
    narrowed,
    picked,
    present,
    spread,
    to_front,
)
from nxjax.transforms.partial_eval import PartialTrace, partial_eval
from nxjax.transforms.vmap import batched

_TRUTH: Final = ArrayType((), dtypes.bool_)


@final
class While(Nested):
    """``body`` again and again, as long as ``cond`` holds; operands are cond's consts, body's consts, carry."""

    name = "while"
    aliases = {"cond_jaxpr": "cond", "body_jaxpr": "body"}

    def infer(
        self, *types: ArrayType, cond: Program, cond_nconsts: int, body: Program, body_nconsts: int
    ) -> tuple[ArrayType, ...]:
        counted(self, "cond_nconsts", cond_nconsts, len(types))
        counted(self, "body_nconsts", body_nconsts, len(types) - cond_nconsts)
        carry = types[cond_nconsts + body_nconsts :]
        fits(self, (*types[:cond_nconsts], *carry), cond, "condition")
        fits(self, types[cond_nconsts:], body, "body")
        carried(self, carry, body.out_types)
        if len(cond.outputs) != 1 or not cond.out_types[0].same(_TRUTH):
            raise ProgramError("while: the condition gives one bool", got=cond.out_types, expected=_TRUTH)
        return body.out_types

    def eval(
        self, *xs: NDArray, cond: Program, cond_nconsts: int, body: Program, body_nconsts: int
    ) -> tuple[NDArray, ...]:
        groups = Groups(xs)
        cond_consts, body_consts, carry = groups.take(cond_nconsts), groups.take(body_nconsts), groups.rest()
        while evaluate(cond, [*cond_consts, *carry])[0]:
            carry = evaluate(body, [*body_consts, *carry])
        return tuple(carry)

    def jvp(
        self,
        primals: Sequence[Array],
        tangents: Sequence[Array | None],
        *,
        cond: Program,
        cond_nconsts: int,
        body: Program,
        body_nconsts: int,
    ) -> tuple[Any, Any]:
        args, params, mask = _forward(primals, tangents, cond, cond_nconsts, body, body_nconsts)
        out = self(*args, **params)
        n = len(body.outputs)
        return out[:n], tuple(spread(out[n:], mask))

    def partial_eval(
        self,
        trace: PartialTrace,
        args: Sequence[Array],
        known: Mask,
        *,
        cond: Program,
        cond_nconsts: int,
        body: Program,
        body_nconsts: int,
    ) -> tuple[Array, ...]:
        whole = cond_nconsts + body_nconsts
        # How many values the unknown carries will need is not known, so nothing is kept: the staged loop finds the
        # known ones again beside them. It can be run forwards, and not transposed.
        consts, ready = known[cond_nconsts:whole], known[whole:]
        while (found := both(partial_eval(body, (*consts, *ready)).known_out, ready)) != ready:
            ready = found
        if not all((*known[:cond_nconsts], *partial_eval(cond, (*known[:cond_nconsts], *ready)).known_out)):
            ready = (False,) * len(ready)
        # What every step hands on as it is needs no loop.
        still = tuple(i == body_nconsts + k for k, i in enumerate(handed_on(body)))
        params = {"cond": cond, "cond_nconsts": cond_nconsts, "body": body, "body_nconsts": body_nconsts}
        late = ()
        if not all(either(ready, still)) or partial_eval(body, (*consts, *ready)).unknown.effect:
            late = trace.write(self, args, params)
        out: Sequence[Array] = ()
        if any(ready):
            cut = partial_eval(body, (*consts, *ready), unknown_out=tuple(not r for r in ready)).known
            cut = narrowed(cut, cut.inputs, [i < sum(ready) for i in range(len(cut.outputs))])
            cut, captured = cut.close_over()
            test = narrowed(cond, [*cond.inputs[:cond_nconsts], *picked(cond.inputs[cond_nconsts:], ready)], (True,))
            first = picked(args[cond_nconsts:whole], consts)
            params = {
                "cond": test,
                "cond_nconsts": cond_nconsts,
                "body": cut,
                "body_nconsts": len(captured) + len(first),
            }
            operands = [*args[:cond_nconsts], *captured, *first, *picked(args[whole:], ready)]
            out = trace.outside(self, operands, params)
        computed = spread(out, ready)
        return tuple(
            y if r else x if s else late[k]
            for k, (y, r, x, s) in enumerate(zip(computed, ready, args[whole:], still, strict=True))
        )

    def batch_axis(
        self,
        axis_name: Any,
        size: int,
        args: Sequence[Array],
        dims: Sequence[int | None],
        *,
        cond: Program,
        cond_nconsts: int,
        body: Program,
        body_nconsts: int,
    ) -> tuple[Any, Any]:
        mask = present(dims)
        cond_mask, body_mask = mask[:cond_nconsts], mask[cond_nconsts : cond_nconsts + body_nconsts]
        carry_mask = mask[cond_nconsts + body_nconsts :]
        while True:
            mapped, grown = batched(body, size, (*body_mask, *carry_mask), carry_mask, axis_name)
            test, (varies,) = batched(cond, size, (*cond_mask, *carry_mask), None, axis_name)
            grown = (True,) * len(grown) if varies else grown
            if grown == carry_mask:
                break
            carry_mask = grown
        whole = cond_nconsts + body_nconsts
        operands = [
            *to_front(args[:whole], dims[:whole], size),
            *(
                move_batch(x, d, size) if m else x
                for x, d, m in zip(args[whole:], dims[whole:], carry_mask, strict=True)
            ),
        ]
        if varies:
            test, mapped = _elementwise(test, cond_nconsts, mapped, body_nconsts)
            operands = [*operands[:cond_nconsts], *operands]
            body_nconsts += cond_nconsts
        test, test_captured = test.close_over()
        mapped, captured = mapped.close_over()
        ys = self(
            *test_captured,
            *operands[:cond_nconsts],
            *captured,
            *operands[cond_nconsts:],
            cond=test,
            cond_nconsts=len(test_captured) + cond_nconsts,
            body=mapped,
            body_nconsts=len(captured) + body_nconsts,
        )
        return ys, tuple(0 if m else None for m in carry_mask)

    def with_token(self, params: dict[str, Any], thread: Thread) -> tuple[dict[str, Any], int, int]:
        cond, at = params["cond"], params["cond_nconsts"]
        inputs = list(cond.inputs)
        inputs.insert(at, Var(ArrayType((), dtypes.bool_)))
        test = Program(inputs, cond.equations, cond.outputs, cond.constvars, cond.values, cond.name)
        body = thread(params["body"], params["body_nconsts"], 0)
        return {**params, "cond": test, "body": body}, at + params["body_nconsts"], 0

    def stablehlo(
        self,
        b: Any,
        out: tuple[ArrayType, ...],
        *xs: Any,
        cond: Program,
        cond_nconsts: int,
        body: Program,
        body_nconsts: int,
    ) -> Any:
        groups = Groups(xs)
        cond_consts, body_consts, carry = groups.take(cond_nconsts), groups.take(body_nconsts), groups.rest()
        if not carry:
            # StableHLO's loop needs something to carry.
            carry = [b.constant(False, ArrayType((), dtypes.bool_))]
        types = tuple(x.type for x in carry)

        def test(b: Any, *state: Any) -> Any:
            return b.program(cond, [*cond_consts, *state[: len(out)]])

        def turn(b: Any, *state: Any) -> Any:
            return [*b.program(body, [*body_consts, *state[: len(out)]]), *state[len(out) :]]

        return b.op("stablehlo.while", carry, types, regions=[(types, test), (types, turn)])[: len(out)]


def _forward(
    primals: Sequence[Array],
    tangents: Sequence[Array | None],
    cond: Program,
    cond_nconsts: int,
    body: Program,
    body_nconsts: int,
) -> tuple[list[Array], dict[str, Any], Mask]:
    """Operands and parameters of the loop on values and tangents, and which carries vary."""
    values, ts = Groups(primals), Groups(tangents)
    cond_consts = values.take(cond_nconsts)
    ts.take(cond_nconsts)  # the condition is boolean: it has no tangent
    consts, consts_t = values.take(body_nconsts), ts.take(body_nconsts)
    carry, carry_t = values.rest(), ts.rest()
    consts_mask, mask = present(consts_t), present(carry_t)
    while True:
        pushed, grown = _jvp_body(body, consts_mask, mask)
        if grown == mask:
            break
        mask = grown
    test = _ignoring_tangents(cond, cond_nconsts, mask)
    filled = [instantiate(t, x) for x, t, m in zip(carry, carry_t, mask, strict=True) if m]
    pushed, captured = pushed.close_over()
    operands = [*cond_consts, *captured, *consts, *picked(consts_t, consts_mask), *carry, *filled]
    params = {
        "cond": test,
        "cond_nconsts": cond_nconsts,
        "body": pushed,
        "body_nconsts": len(captured) + body_nconsts + sum(consts_mask),
    }
    return operands, params, mask


def _jvp_body(body: Program, consts_mask: Mask, mask: Mask) -> tuple[Program, Mask]:
    """(consts, their tangents, carry, its tangents) to (carry, its tangents), and ``mask`` grown by one step."""

    def make() -> tuple[Program, Mask]:
        n = len(consts_mask)
        consts, carry = body.in_types[:n], body.in_types[n:]
        types = [
            *consts,
            *(t.strong() for t in picked(consts, consts_mask)),
            *carry,
            *(t.strong() for t in picked(carry, mask)),
        ]
        store: list[Mask] = []

        def flat(*args: Array) -> Sequence[Array]:
            rest = Groups(args)
            xs, xs_t = rest.take(n), spread(rest.take(sum(consts_mask)), consts_mask)
            state, state_t = rest.take(len(mask)), spread(rest.rest(), mask)
            ys, ts = jvp_flat(body, [*xs, *state], [*xs_t, *state_t])
            store[:] = [either(mask, present(ts))]
            return [*ys, *(instantiate(t, y) for y, t, m in zip(ys, ts, mask, strict=True) if m)]

        return stage(flat, types, f"jvp({body.name})"), store[0]

    return body.derive(("while jvp", consts_mask, mask), make)


def _ignoring_tangents(cond: Program, cond_nconsts: int, mask: Mask) -> Program:
    """``cond`` with the carry's tangents as further inputs."""

    def make() -> Program:
        n = len(cond.inputs)
        t_types = [t.strong() for t in picked(cond.in_types[cond_nconsts:], mask)]
        return stage(lambda *xs: run(cond, xs[:n]), [*cond.in_types, *t_types], cond.name)

    return cond.derive(("while jvp", cond_nconsts, mask), make)


def _elementwise(test: Program, cond_nconsts: int, body: Program, body_nconsts: int) -> tuple[Program, Program]:
    """A loop that goes on while the batched ``test`` holds for any element, and keeps elements that are done.

    The body takes the condition's consts before its own.
    """

    def make() -> tuple[Program, Program]:
        from nxjax.ops.reduce import reduce_or

        def any_left(*xs: Array) -> Sequence[Array]:
            return [reduce_or(run(test, xs)[0], axes=(0,))]

        def step(*xs: Array) -> Sequence[Array]:
            rest = Groups(xs)
            cond_consts, consts, carry = rest.take(cond_nconsts), rest.take(body_nconsts), rest.rest()
            (going,) = run(test, [*cond_consts, *carry])
            new = run(body, [*consts, *carry])
            return [choose(going, y, x) for x, y in zip(carry, new, strict=True)]

        types = [*test.in_types[:cond_nconsts], *body.in_types]
        return stage(any_left, test.in_types, test.name), stage(step, types, body.name)

    return body.derive(("while elementwise", test, cond_nconsts, body_nconsts), make)


def choose(which: Array, yes: Array, no: Array) -> Array:
    """``yes`` where ``which`` holds, else ``no``; ``which`` has leading axes of them."""
    from nxjax.ops.select import select_n

    if which.shape != yes.shape:
        which = broadcast_in_dim(which, shape=yes.shape, broadcast_dimensions=tuple(range(which.ndim)))
    return select_n(which, no, yes)


while_op = While()


@boundary
def while_loop(cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init_val: Any) -> Any:
    """``body_fun`` applied to the carry again and again, while ``cond_fun`` of it holds.

    Args:
        cond_fun: carry to a boolean scalar.
        body_fun: carry to carry, of one structure and type.
        init_val: the first carry, a pytree.

    Raises:
        CarryTypeError: ``body_fun`` changes the carry's structure or type.
        GradientError: in reverse mode (`grad`, `vjp`); `jvp` works. Use `scan`, or `fori_loop` with constant bounds.
        ParameterError: not two functions.
        ShapeError, DtypeError: ``cond_fun`` gives something else than one boolean.

    >>> import nxjax as nx
    >>> int(while_loop(lambda x: x < 100, lambda x: x * 2, 3))
    192
    """
    if not (callable(cond_fun) and callable(body_fun)):
        raise ParameterError("while_loop: needs two functions", got=f"{cond_fun!r}, {body_fun!r}")

    if config.disable_jit:
        known, init_val = _step_by_step(cond_fun, body_fun, init_val)
        if known:
            return init_val

    def step(carry: Any, _: Sequence[Array]) -> tuple[Any, list[Any]]:
        return body_fun(carry), []

    name = getattr(body_fun, "__name__", "body")
    carry, carry_def, body = carry_of_one_type("while_loop", CarryTypeError, init_val, (), step, name)
    names = tree.path_names(init_val, "carry")

    def test(*xs: Array) -> Sequence[Any]:
        result = cond_fun(tree.unflatten(carry_def, xs))
        leaves = tree.leaves(result)
        if len(leaves) != 1:
            raise ParameterError("while_loop: cond_fun must give one boolean", got=tree.structure(result))
        return leaves

    cond = stage(test, [x.type for x in carry], getattr(cond_fun, "__name__", "cond"), names)
    (type,) = cond.out_types
    if type.shape:
        raise ShapeError(
            "while_loop: cond_fun must give a scalar", got=type, expected="bool[]", fix="use .all() or .any()"
        )
    if type.dtype != dtypes.bool_:
        raise DtypeError("while_loop: cond_fun must give a boolean", got=type, expected="bool[]", fix="compare with 0")
    if not all(type.vma <= x.type.vma for x in carry):
        # Devices that go on for different numbers of steps end with different values.
        return while_loop(cond_fun, body_fun, tree.unflatten(carry_def, [varying(x, type.vma) for x in carry]))
    cond, cond_consts = cond.close_over()
    body, body_consts = body.close_over()
    # What every step hands on as it is, the loop need not carry: it has the gradient of a value that no loop touched.
    first = len(body_consts)
    same = [i == first + k for k, i in enumerate(handed_on(body))]
    moves = [not s for s in same]
    (cond_given, cond_carry), (given, inner) = (_cut(cond, len(cond_consts)), _cut(body, first))
    cond = narrowed(cond, (*picked(cond_carry, same), *cond_given, *picked(cond_carry, moves)), (True,))
    body = narrowed(body, (*picked(inner, same), *given, *picked(inner, moves)), moves)
    kept = picked(carry, same)
    out = while_op(
        *kept,
        *cond_consts,
        *kept,
        *body_consts,
        *picked(carry, moves),
        cond=cond,
        cond_nconsts=len(kept) + len(cond_consts),
        body=body,
        body_nconsts=len(kept) + first,
    )
    return tree.unflatten(carry_def, merged(kept, out, same))


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


def _cut(program: Program, n: int) -> tuple[Sequence[Var], Sequence[Var]]:
    return program.inputs[:n], program.inputs[n:]


@boundary
def fori_loop(
    lower: Any, upper: Any, body_fun: Callable[[Any, Any], Any], init_val: Any, *, unroll: int | bool | None = None
) -> Any:
    """``for i in range(lower, upper): val = body_fun(i, val)``.

    With bounds that are known while tracing it is a `scan` and has a gradient; else it is a `while_loop`.

    Args:
        lower, upper: integer scalars.
        body_fun: maps ``(i, val)`` to ``val``, of one structure and type.
        unroll: as in `scan`; needs constant bounds.

    Raises:
        CarryTypeError: ``body_fun`` changes the structure or type of ``val``.
        DtypeError: a bound is no integer scalar.
        ParameterError: not a function, or ``unroll`` with traced bounds.

    >>> import nxjax.numpy as jnp
    >>> from nxjax import lax
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

        def turn(carry: Any, _: None) -> tuple[Any, None]:
            i, value = carry
            return (_next(i), _same_shapes(value, body_fun(i, value))), None

        (_, result), _ = scan(turn, (first, init_val), None, length=steps, unroll=1 if unroll is None else unroll)
        return result
    if unroll is not None and unroll is not False and unroll != 1:
        raise ParameterError("fori_loop: unroll needs bounds that are known while tracing", got=unroll)

    def test(carry: Any) -> Any:
        from nxjax.ops.compare import lt

        return lt(carry[0], carry[1])

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
    from nxjax.ops.arithmetic import add
    from nxjax.trace.array import wrap

    return add(i, wrap(np.ones((), i.dtype), weak=i.type.weak))


def _one_dtype(bounds: Sequence[Array]) -> list[Array]:
    from nxjax.ops.convert import convert_element_type

    weak = [x.type.weak for x in bounds]
    if weak[0] == weak[1]:
        raise DtypeError(
            "fori_loop: bounds differ in dtype", got=f"{bounds[0].type} and {bounds[1].type}", expected="one dtype"
        )
    dtype = bounds[weak.index(False)].dtype
    return [convert_element_type(x, dtype=dtype) for x in bounds]
