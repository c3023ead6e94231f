"""`custom_linear_solve` and `custom_root`: solvers whose derivative comes from the equation, not from their steps.

With A x = b: A dx = db - dA x, solved by the same solver; transposed, by the transposed one. With f(x, p) = 0:
(df/dx) dx = -(df/dp) dp, solved by the user's ``tangent_solve`` (the implicit function theorem).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

from nxjax.errors import ParameterError, TreeError
from nxjax.ops.arithmetic import neg, sub
from nxjax.ops.base import NDArray, check_carry, check_count, check_operands, move_batch, require
from nxjax.trace import tree
from nxjax.trace.array import as_value
from nxjax.trace.core import Array, Arrays, Dims, Tangents, current_trace, use
from nxjax.trace.evaluate import evaluate
from nxjax.trace.program import Program, run
from nxjax.trace.stage import stage
from nxjax.trace.types import ArrayType
from nxjax.transforms.jvp import instantiate
from nxjax.transforms.nested import Groups, Mask, Nested, batch_to_front, expand_by_mask, jvp_program, not_none_mask
from nxjax.transforms.transpose import transpose_program
from nxjax.transforms.vmap import BatchTrace, batch_program


@final
class LinearSolve(Nested):
    """x with matvec(x) = b. Operands: the constants of the four programs, then b.

    ``programs`` are matvec, vecmat (its transpose), solve and transpose_solve, ``counts`` the numbers of their
    constants; the last two entries of a solve that cannot be transposed repeat solve.
    """

    name = "custom_linear_solve"

    def infer(
        self, *types: ArrayType, programs: tuple[Program, ...], counts: tuple[int, ...], transposable: bool
    ) -> tuple[ArrayType, ...]:
        require(self, len(programs) == len(counts) == 4, "programs", (len(programs), len(counts)), "4, and 4 counts")
        for n in counts:
            check_count(self, "counts", n, len(types))
        require(self, sum(counts) <= len(types), "counts", counts, f"at most {len(types)} in all")
        groups = Groups(types)
        consts = [groups.take(n) for n in counts]
        b = groups.rest()
        for given, program in zip(consts, programs, strict=True):
            check_operands(self, [*given, *b], program)
        for program in programs:
            check_carry(self, b, program.out_types[: len(b)])
        return programs[2].out_types

    def eval(
        self, *xs: NDArray, programs: tuple[Program, ...], counts: tuple[int, ...], transposable: bool
    ) -> tuple[NDArray, ...]:
        consts, b = _consts(xs, counts)
        return tuple(evaluate(programs[2], [*consts[2], *b]))

    def jvp(
        self,
        primals: Arrays,
        tangents: Tangents,
        *,
        programs: tuple[Program, ...],
        counts: tuple[int, ...],
        transposable: bool,
    ) -> tuple[Any, Any]:
        params = {"programs": programs, "counts": counts, "transposable": transposable}
        out = self(*primals, **params)
        consts, b = _consts(primals, counts)
        consts_t, b_t = _consts(tangents, counts)
        n = len(b)
        x, aux = out[:n], out[n:]
        rhs: list[Array | None] = list(b_t)
        if any(t is not None for t in consts_t[0]):
            mask = (*not_none_mask(consts_t[0]), *(False,) * n)
            pushed, varies = jvp_program(programs[0], mask)
            given = [t for t in consts_t[0] if t is not None]
            moved = expand_by_mask(run(pushed, [*consts[0], *x, *given])[n:], varies)
            rhs = [r if m is None else neg(m) if r is None else sub(r, m) for r, m in zip(rhs, moved, strict=True)]
        if all(r is None for r in rhs):
            return out, (None,) * len(out)
        filled = [instantiate(r, v) for r, v in zip(rhs, b, strict=True)]
        head = primals[: len(primals) - n]
        dx = self(*head, *filled, **params)[:n]
        return out, (*dx, *(None for _ in aux))

    def transpose(
        self, cts: Tangents, *args: Any, programs: tuple[Program, ...], counts: tuple[int, ...], transposable: bool
    ) -> Tangents:
        if not transposable:
            raise ParameterError(
                "custom_linear_solve: reverse mode needs a solver for the transposed equation",
                got="transpose_solve=None",
                fix="pass transpose_solve, or symmetric=True",
            )
        consts, b = _consts(args, counts)
        filled = [instantiate(ct, x) for ct, x in zip(cts, b, strict=False)]
        swapped = [consts[1], consts[0], consts[3], consts[2]]
        found = self(
            *(c for group in swapped for c in group),
            *filled,
            programs=(programs[1], programs[0], programs[3], programs[2]),
            counts=(counts[1], counts[0], counts[3], counts[2]),
            transposable=True,
        )
        return [*(None for group in consts for _ in group), *found[: len(b)]]

    def batch_axis(
        self,
        axis_name: Any,
        size: int,
        args: Arrays,
        dims: Dims,
        *,
        programs: tuple[Program, ...],
        counts: tuple[int, ...],
        transposable: bool,
    ) -> tuple[Any, Any]:
        masks, b_dims = _consts(dims, counts)
        mapped: list[Program] = []
        for program, group in zip(programs, masks, strict=True):
            mask: Mask = (*not_none_mask(group), *(True,) * (len(program.inputs) - len(group)))
            mapped.append(batch_program(program, size, mask, (True,) * len(program.outputs), axis_name)[0])
        n = len(b_dims)
        head = batch_to_front(args[: len(args) - n], dims[: len(args) - n], size)
        b = [move_batch(x, d, size) for x, d in zip(args[len(args) - n :], b_dims, strict=True)]
        ys = self(*head, *b, programs=tuple(mapped), counts=counts, transposable=transposable)
        return ys, (0,) * len(ys)

    def with_token(self, params: dict[str, Any], thread: Any) -> Any:
        raise ParameterError("custom_linear_solve: the solver has side effects", fix="take callbacks out of it")

    def stablehlo(
        self,
        b: Any,
        out: tuple[ArrayType, ...],
        *xs: Any,
        programs: tuple[Program, ...],
        counts: tuple[int, ...],
        transposable: bool,
    ) -> Any:
        consts, rhs = _consts(xs, counts)
        return tuple(b.program(programs[2], [*consts[2], *rhs]))


def _consts(values: Sequence[Any], counts: Sequence[int]) -> tuple[list[list[Any]], list[Any]]:
    groups = Groups(values)
    return [groups.take(n) for n in counts], groups.rest()


linear_solve_op = LinearSolve()


def custom_linear_solve(
    matvec: Callable[[Any], Any],
    b: Any,
    solve: Callable[..., Any],
    transpose_solve: Callable[..., Any] | None = None,
    symmetric: bool = False,
    has_aux: bool = False,
) -> Any:
    """``solve(matvec, b)``, differentiated through the equation ``matvec(x) == b``.

    Args:
        matvec: linear function of a pytree like ``b``.
        b: right-hand side.
        solve: ``solve(matvec, b) -> x``; needs no derivative of its own.
        transpose_solve: ``transpose_solve(vecmat, ct)``, for reverse mode.
        symmetric: ``matvec`` is its own transpose, so that ``solve`` does for both.
        has_aux: the solvers give ``(x, aux)``; so does the result.

    >>> import nxjax as nx
    >>> divide = lambda mv, b: b / mv(1.0)
    >>> float(nx.grad(lambda a: custom_linear_solve(lambda x: a * x, 6.0, divide, divide))(2.0))
    -1.5
    """
    leaves, b_def = tree.flatten(b)
    values = [as_value(x, "custom_linear_solve") for x in leaves]
    types = [v.type.strong() for v in values]
    aux_defs: list[tree.TreeDef] = []

    def staged(function: Callable[[Any], Any], where: str, aux: bool) -> tuple[Program, tuple[Array, ...]]:
        def flat(*xs: Array) -> Sequence[Any]:
            result = function(tree.unflatten(b_def, xs))
            result, extra = result if aux else (result, None)
            ys = tree.flatten(result)
            if ys[1] != b_def:
                raise TreeError(f"custom_linear_solve: result of {where}", got=ys[1], expected=b_def)
            extra_leaves, extra_def = tree.flatten(extra)
            aux_defs.append(extra_def)
            return [*ys[0], *extra_leaves]

        return stage(flat, types, where).close_over()

    product, product_consts = staged(matvec, "matvec", False)
    aux_defs.clear()
    forward, forward_consts = staged(lambda x: solve(matvec, x), "solve", has_aux)
    if symmetric:
        vecmat, vecmat_consts = product, product_consts
    else:
        n = len(product_consts)
        linear = (*(False,) * n, *(True,) * len(types))
        flipped, more = transpose_program(product, linear, (True,) * len(types)).close_over()
        vecmat, vecmat_consts = flipped, (*more, *product_consts)
    other, other_consts = forward, forward_consts
    if transpose_solve is not None:

        def transposed_matvec(x: Any) -> Any:
            return tree.unflatten(b_def, run(vecmat, [*vecmat_consts, *map(as_value, tree.leaves(x))]))

        back = transpose_solve
        other, other_consts = staged(lambda x: back(transposed_matvec, x), "transpose_solve", has_aux)
    out = linear_solve_op(
        *product_consts,
        *vecmat_consts,
        *forward_consts,
        *other_consts,
        *values,
        programs=(product, vecmat, forward, other),
        counts=(len(product_consts), len(vecmat_consts), len(forward_consts), len(other_consts)),
        transposable=symmetric or transpose_solve is not None,
    )
    x = tree.unflatten(b_def, out[: len(values)])
    return (x, tree.unflatten(aux_defs[0], out[len(values) :])) if has_aux else x


@final
class Root(Nested):
    """x with function(consts, x) = 0, by ``solve``. Operands: constants of the function, of ``solve``, the guess."""

    name = "custom_root"

    def infer(
        self,
        *types: ArrayType,
        function: Program,
        solve: Program,
        counts: tuple[int, ...],
        tangent_solve: Callable[..., Any],
    ) -> tuple[ArrayType, ...]:
        require(self, len(counts) == 2, "counts", counts, "2")
        check_count(self, "counts", counts[0], len(types))
        check_count(self, "counts", counts[1], len(types) - counts[0])
        guess = types[sum(counts) :]
        check_operands(self, [*types[: counts[0]], *guess], function, "function")
        check_operands(self, types[counts[0] :], solve, "solver")
        check_carry(self, guess, function.out_types)
        check_carry(self, guess, solve.out_types[: len(guess)])
        return solve.out_types

    def eval(
        self, *xs: NDArray, function: Program, solve: Program, counts: tuple[int, ...], tangent_solve: Any
    ) -> tuple[NDArray, ...]:
        return tuple(evaluate(solve, xs[counts[0] :]))

    def jvp(
        self,
        primals: Arrays,
        tangents: Tangents,
        *,
        function: Program,
        solve: Program,
        counts: tuple[int, ...],
        tangent_solve: Any,
    ) -> tuple[Any, Any]:
        params = {"function": function, "solve": solve, "counts": counts, "tangent_solve": tangent_solve}
        out = self(*primals, **params)
        n_consts = counts[0]
        n = len(primals) - sum(counts)
        x, aux = out[:n], out[n:]
        consts, consts_t = primals[:n_consts], tangents[:n_consts]
        if all(t is None for t in consts_t):
            return out, (None,) * len(out)  # the root does not depend on the guess
        pushed, varies = jvp_program(function, (*not_none_mask(consts_t), *(False,) * n))
        moved = expand_by_mask(run(pushed, [*consts, *x, *(t for t in consts_t if t is not None)])[n:], varies)
        at_root, all_vary = jvp_program(function, (*(False,) * n_consts, *(True,) * n))

        def linear(*vs: Array) -> list[Array]:
            ts = expand_by_mask(run(at_root, [*consts, *x, *vs])[n:], all_vary)
            return [instantiate(t, v) for t, v in zip(ts, x, strict=True)]

        dx = tangent_solve(linear, [instantiate(t, v) for t, v in zip(moved, x, strict=True)])
        return out, (*(neg(d) for d in dx), *(None for _ in aux))

    def batch_axis(
        self,
        axis_name: Any,
        size: int,
        args: Arrays,
        dims: Dims,
        *,
        function: Program,
        solve: Program,
        counts: tuple[int, ...],
        tangent_solve: Any,
    ) -> tuple[Any, Any]:
        whole = sum(counts)
        mask = not_none_mask(dims)
        everything = (True,) * (len(args) - whole)
        mapped = batch_program(function, size, (*mask[: counts[0]], *everything), everything, axis_name)[0]
        solved = batch_program(
            solve, size, (*mask[counts[0] : whole], *everything), (True,) * len(solve.outputs), axis_name
        )[0]
        operands = [
            *batch_to_front(args[:whole], dims[:whole], size),
            *(move_batch(x, d, size) for x, d in zip(args[whole:], dims[whole:], strict=True)),
        ]
        lifted = _BatchedTangentSolve(tangent_solve, size, axis_name)
        ys = self(*operands, function=mapped, solve=solved, counts=counts, tangent_solve=lifted)
        return ys, (0,) * len(ys)

    def with_token(self, params: dict[str, Any], thread: Any) -> Any:
        raise ParameterError("custom_root: the solver has side effects", fix="take callbacks out of it")

    def stablehlo(
        self,
        b: Any,
        out: tuple[ArrayType, ...],
        *xs: Any,
        function: Program,
        solve: Program,
        counts: tuple[int, ...],
        tangent_solve: Any,
    ) -> Any:
        return tuple(b.program(solve, xs[counts[0] :]))


@final
class _BatchedTangentSolve:
    """The user's tangent solver on a batch, whose elements' equations are solved one by one, as one `vmap`."""

    def __init__(self, inner: Any, size: int, axis_name: Any) -> None:
        self.inner = inner
        self.size = size
        self.axis_name = axis_name

    def __call__(self, linear: Callable[..., list[Array]], rhs: Arrays) -> list[Array]:
        outer = current_trace()
        trace = BatchTrace(outer, self.size, self.axis_name)

        def one(*vs: Array) -> list[Array]:
            # The batched map of all elements is handed through to the surrounding trace.
            pairs = [trace.split(v) for v in vs]
            with use(outer):
                whole = linear(*(move_batch(v, d, self.size) for v, d in pairs))
            return [trace.join(y, 0) for y in whole]

        with use(trace):
            found = self.inner(one, [trace.join(r, 0) for r in rhs])
        with use(outer):
            return [move_batch(*trace.split(as_value(y)), self.size) for y in found]


root_op = Root()


@final
class _TangentSolve:
    """The user's ``tangent_solve`` on flat values."""

    def __init__(self, function: Callable[..., Any], treedef: tree.TreeDef) -> None:
        self.function = function
        self.treedef = treedef
        self.__qualname__ = getattr(function, "__qualname__", "tangent_solve")

    def __call__(self, linear: Callable[..., list[Array]], rhs: Arrays) -> list[Array]:
        def at_root(v: Any) -> Any:
            return tree.unflatten(self.treedef, linear(*map(as_value, tree.leaves(v))))

        found = self.function(at_root, tree.unflatten(self.treedef, rhs))
        return [as_value(x) for x in tree.flatten_up_to(self.treedef, found, "custom_root: tangent_solve")]


def custom_root(
    f: Callable[[Any], Any],
    initial_guess: Any,
    solve: Callable[..., Any],
    tangent_solve: Callable[..., Any],
    has_aux: bool = False,
) -> Any:
    """A root of ``f``, differentiated with respect to what ``f`` closes over through ``f(root) == 0``.

    Args:
        f: function of a pytree, of the same structure.
        initial_guess: where ``solve`` starts.
        solve: ``solve(f, initial_guess) -> root``; needs no derivative of its own.
        tangent_solve: ``tangent_solve(g, y) -> x`` with ``g(x) == y`` for the linear ``g``.
        has_aux: ``solve`` gives ``(root, aux)``; so does the result.

    >>> import nxjax as nx
    >>> newton = lambda f, x: nx.fori_loop(0, 20, lambda i, x: x - f(x) / (2.0 * x), x)
    >>> square_root = lambda a: custom_root(lambda x: x * x - a, 1.0, newton, lambda g, y: y / g(1.0))
    >>> round(float(nx.grad(square_root)(4.0)), 6)
    0.25
    """
    leaves, treedef = tree.flatten(initial_guess)
    values = [as_value(x, "custom_root") for x in leaves]
    types = [v.type.strong() for v in values]
    aux_defs: list[tree.TreeDef] = []

    def residual(*xs: Array) -> Sequence[Any]:
        ys, y_def = tree.flatten(f(tree.unflatten(treedef, xs)))
        if y_def != treedef:
            raise TreeError("custom_root: f must give the structure it takes", got=y_def, expected=treedef)
        return ys

    def solved(*xs: Array) -> Sequence[Any]:
        result = solve(f, tree.unflatten(treedef, xs))
        root, aux = result if has_aux else (result, None)
        ys, y_def = tree.flatten(root)
        if y_def != treedef:
            raise TreeError("custom_root: solve must give a root like the guess", got=y_def, expected=treedef)
        aux_leaves, aux_def = tree.flatten(aux)
        aux_defs.append(aux_def)
        return [*ys, *aux_leaves]

    function, f_consts = stage(residual, types, "f").close_over()
    program, solve_consts = stage(solved, types, "solve").close_over()
    out = root_op(
        *f_consts,
        *solve_consts,
        *values,
        function=function,
        solve=program,
        counts=(len(f_consts), len(solve_consts)),
        tangent_solve=_TangentSolve(tangent_solve, treedef),
    )
    x = tree.unflatten(treedef, out[: len(values)])
    return (x, tree.unflatten(aux_defs[0], out[len(values) :])) if has_aux else x
