"""`custom_linear_solve` and `custom_root`: solvers whose derivative comes from the equation, not from their steps.

With A x = b: A dx = db - dA x, solved by the same solver; transposed, by the transposed one. With f(x, p) = 0:
(df/dx) dx = -(df/dp) dp, solved by the user's ``tangent_solve`` (the implicit function theorem).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

from nxjax.errors import ParameterError, TreeError
from nxjax.ops.arithmetic import neg, sub
from nxjax.ops.base import check_carry, check_count, check_operands, move_batch, require
from nxjax.trace import tree
from nxjax.trace.annotations import PyTree
from nxjax.trace.array import as_value
from nxjax.trace.core import Array, Arrays, Dims, Tangents, current_trace, use
from nxjax.trace.program import Program, run
from nxjax.trace.stage import stage
from nxjax.trace.types import ArrayType
from nxjax.transforms.has_aux import FlatFunction
from nxjax.transforms.jvp import instantiate
from nxjax.transforms.nested import NestedCall, batch_to_front, jvp_program
from nxjax.transforms.subprograms import Groups, Mask, expand_by_mask, not_none_mask
from nxjax.transforms.transpose import transpose_program
from nxjax.transforms.vmap import BatchTrace, batch_program


class _Solver(NestedCall):
    """Operands: constants of the op's programs, in groups of ``counts``, then one per unknown."""

    def with_token(self, params: dict[str, Any], thread: Any) -> Any:
        raise ParameterError(f"{self.name}: the solver has side effects", fix="take callbacks out of it")

    def batched(self, args: Arrays, dims: Dims, counts: Sequence[int], size: int) -> list[Array]:
        """Operands with their batches in front, which every unknown has."""
        n = sum(counts)
        unknowns = (move_batch(x, d, size) for x, d in zip(args[n:], dims[n:], strict=True))
        return [*batch_to_front(args[:n], dims[:n], size), *unknowns]


@final
class LinearSolve(_Solver):
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
        consts, b = _consts(types, counts)
        for given, program in zip(consts, programs, strict=True):
            check_operands(self, [*given, *b], program)
        for program in programs:
            check_carry(self, b, program.out_types[: len(b)])
        return programs[2].out_types

    def called(self, *args: Any, programs: tuple[Program, ...], counts: tuple[int, ...], **_: Any) -> Any:
        consts, b = _consts(args, counts)
        return programs[2], [*consts[2], *b]

    def jvp(self, primals: Arrays, tangents: Tangents, **params: Any) -> tuple[Any, Any]:
        product: Program = params["programs"][0]
        out = self(*primals, **params)
        consts, b = _consts(primals, params["counts"])
        consts_t, b_t = _consts(tangents, params["counts"])
        n = len(b)
        x, aux = out[:n], out[n:]
        rhs: list[Array | None] = list(b_t)
        if any(t is not None for t in consts_t[0]):
            pushed, varies = jvp_program(product, (*not_none_mask(consts_t[0]), *(False,) * n))
            given = [t for t in consts_t[0] if t is not None]
            moved = expand_by_mask(run(pushed, [*consts[0], *x, *given])[n:], varies)
            rhs = [r if m is None else neg(m) if r is None else sub(r, m) for r, m in zip(rhs, moved, strict=True)]
        if all(r is None for r in rhs):
            return out, (None,) * len(out)
        filled = [instantiate(r, v) for r, v in zip(rhs, b, strict=True)]
        dx = self(*primals[: len(primals) - n], *filled, **params)[:n]
        return out, (*dx, *(None for _ in aux))

    def transpose(self, cts: Tangents, *args: Any, **params: Any) -> Tangents:
        if not params["transposable"]:
            raise ParameterError(
                "custom_linear_solve: reverse mode needs a solver for the transposed equation",
                got="transpose_solve=None",
                fix="pass transpose_solve, or symmetric=True",
            )
        consts, b = _consts(args, params["counts"])
        filled = [instantiate(ct, x) for ct, x in zip(cts, b, strict=False)]
        swapped: Any = lambda four: tuple(four[i] for i in (1, 0, 3, 2))
        programs, counts = swapped(params["programs"]), swapped(params["counts"])
        operands = [c for group in swapped(consts) for c in group]
        found = self(*operands, *filled, programs=programs, counts=counts, transposable=True)
        return [*(None for _ in operands), *found[: len(b)]]

    def batch_axis(self, axis_name: Any, size: int, args: Arrays, dims: Dims, **params: Any) -> tuple[Any, Any]:
        masks, _ = _consts(dims, params["counts"])
        mapped: list[Program] = []
        for program, group in zip(params["programs"], masks, strict=True):
            mask: Mask = (*not_none_mask(group), *(True,) * (len(program.inputs) - len(group)))
            mapped.append(batch_program(program, size, mask, (True,) * len(program.outputs), axis_name)[0])
        operands = self.batched(args, dims, params["counts"], size)
        ys = self(*operands, **{**params, "programs": tuple(mapped)})
        return ys, (0,) * len(ys)


def _consts(values: Sequence[Any], counts: Sequence[int]) -> tuple[list[list[Any]], list[Any]]:
    groups = Groups(values)
    return [groups.take(n) for n in counts], groups.rest()


def _staged(
    function: Callable[[Any], Any],
    unknowns: tree.TreeDef,
    types: Sequence[ArrayType],
    name: str,
    error: str,
    has_aux: bool = False,
) -> tuple[Program, tuple[Array, ...], tree.TreeDef]:
    """The program of a function that gives the structure that it takes, its constants, and the structure of ``aux``."""

    def pair(*xs: Array) -> Any:
        y = function(tree.unflatten(unknowns, xs))
        return y if has_aux else (y, None)

    flat = FlatFunction(pair, tree.structure((0,) * len(types)))
    program, consts = stage(flat, types, name).hoist_consts()
    found, aux = flat.out_def.children()
    if found != unknowns:
        raise TreeError(error, got=found, expected=unknowns)
    return program, consts, aux


linear_solve_op = LinearSolve()


def custom_linear_solve(
    matvec: Callable[[Any], Any],
    b: PyTree,
    solve: Callable[..., Any],
    transpose_solve: Callable[..., Any] | None = None,
    symmetric: bool = False,
    has_aux: bool = False,
) -> PyTree:
    """``solve(matvec, b)``, differentiated through the equation ``matvec(x) == b``.

    Args:
        matvec: linear function of a pytree like ``b``.
        b: right-hand side.
        solve: ``solve(matvec, b) -> x``; needs no derivative.
        transpose_solve: ``transpose_solve(vecmat, ct)``, for reverse mode.
        symmetric: ``matvec`` is its own transpose, so ``solve`` serves both.
        has_aux: the solvers return ``(x, aux)``, and so does this function.

    >>> divide = lambda mv, b: b / mv(1.0)
    >>> float(nx.grad(lambda a: custom_linear_solve(lambda x: a * x, 6.0, divide, divide))(2.0))
    -1.5
    """
    leaves, b_def = tree.flatten(b)
    values = [as_value(x, "custom_linear_solve") for x in leaves]
    types = [v.type.strong() for v in values]

    def staged(function: Callable[[Any], Any], where: str, aux: bool) -> tuple[Program, tuple[Array, ...], Any]:
        return _staged(function, b_def, types, where, f"custom_linear_solve: result of {where}", aux)

    product, product_consts, _ = staged(matvec, "matvec", False)
    forward, forward_consts, aux_def = staged(lambda x: solve(matvec, x), "solve", has_aux)
    if symmetric:
        vecmat, vecmat_consts = product, product_consts
    else:
        n = len(product_consts)
        linear = (*(False,) * n, *(True,) * len(types))
        flipped, more = transpose_program(product, linear, (True,) * len(types)).hoist_consts()
        vecmat, vecmat_consts = flipped, (*more, *product_consts)
    other, other_consts = forward, forward_consts
    if transpose_solve is not None:

        def transposed_matvec(x: Any) -> Any:
            return tree.unflatten(b_def, run(vecmat, [*vecmat_consts, *map(as_value, tree.leaves(x))]))

        back = transpose_solve
        other, other_consts, _ = staged(lambda x: back(transposed_matvec, x), "transpose_solve", has_aux)
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
    return (x, tree.unflatten(aux_def, out[len(values) :])) if has_aux else x


@final
class Root(_Solver):
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

    def called(self, *args: Any, solve: Program, counts: tuple[int, ...], **_: Any) -> Any:
        return solve, args[counts[0] :]

    def jvp(
        self, primals: Arrays, tangents: Tangents, *, function: Program, counts: tuple[int, ...], **params: Any
    ) -> tuple[Any, Any]:
        out = self(*primals, function=function, counts=counts, **params)
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

        dx = params["tangent_solve"](linear, [instantiate(t, v) for t, v in zip(moved, x, strict=True)])
        return out, (*(neg(d) for d in dx), *(None for _ in aux))

    def batch_axis(self, axis_name: Any, size: int, args: Arrays, dims: Dims, **params: Any) -> tuple[Any, Any]:
        (of_function, of_solve), guess = _consts(not_none_mask(dims), params["counts"])
        every: Mask = (True,) * len(guess)
        function, solve = params["function"], params["solve"]
        outputs = (True,) * len(solve.outputs)
        mapped = batch_program(function, size, (*of_function, *every), every, axis_name)[0]
        solved = batch_program(solve, size, (*of_solve, *every), outputs, axis_name)[0]
        lifted = _BatchedTangentSolve(params["tangent_solve"], size, axis_name)
        operands = self.batched(args, dims, params["counts"], size)
        ys = self(*operands, function=mapped, solve=solved, counts=params["counts"], tangent_solve=lifted)
        return ys, (0,) * len(ys)


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
    initial_guess: PyTree,
    solve: Callable[..., Any],
    tangent_solve: Callable[..., Any],
    has_aux: bool = False,
) -> PyTree:
    """A root of ``f``. Its derivatives with respect to closed-over values come from ``f(root) == 0``.

    Args:
        f: function of a pytree, of the same structure.
        initial_guess: where ``solve`` starts.
        solve: ``solve(f, initial_guess) -> root``; needs no derivative.
        tangent_solve: ``tangent_solve(g, y) -> x`` with ``g(x) == y`` for the linear ``g``.
        has_aux: ``solve`` returns ``(root, aux)``, and so does this function.

    >>> newton = lambda f, x: nx.fori_loop(0, 20, lambda i, x: x - f(x) / (2.0 * x), x)
    >>> square_root = lambda a: custom_root(lambda x: x * x - a, 1.0, newton, lambda g, y: y / g(1.0))
    >>> round(float(nx.grad(square_root)(4.0)), 6)
    0.25
    """
    leaves, treedef = tree.flatten(initial_guess)
    values = [as_value(x, "custom_root") for x in leaves]
    types = [v.type.strong() for v in values]
    differs = "custom_root: f must give the structure it takes"
    function, f_consts, _ = _staged(f, treedef, types, "f", differs)
    differs = "custom_root: solve must give a root like the guess"
    program, solve_consts, aux_def = _staged(lambda x: solve(f, x), treedef, types, "solve", differs, has_aux)
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
    return (x, tree.unflatten(aux_def, out[len(values) :])) if has_aux else x
