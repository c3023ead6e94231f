"""Vectorize: interpret every op on values that carry one more dimension.

`BatchTrace` hands each op to its `batch` rule with the surrounding trace current. A value without a batch dimension is
shared by all elements. A named axis makes the trace answer collectives (`psum`, `all_gather`, ...) of that name.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import nullcontext
from typing import Any, ParamSpec, TypeVar, final
from weakref import WeakKeyDictionary

from nxjax.config import config, current_settings
from nxjax.errors import AxisSpecError, DtypeError, NonFiniteError, ParameterError, ShapeError, described
from nxjax.ops.base import move_batch
from nxjax.ops.reduce import reduce_sum
from nxjax.trace import leaks, tree
from nxjax.trace.annotations import PyTree
from nxjax.trace.array import as_value
from nxjax.trace.axes import batching_along, binding_axis, spmd_axis
from nxjax.trace.boundary import api_boundary, entry
from nxjax.trace.core import Array, Arrays, Dims, Op, Trace, Tracer, current_trace, run_in_trace, use
from nxjax.trace.program import Program, Var, axis_names
from nxjax.trace.stage import StageTracer, stage
from nxjax.trace.wrapping import wraps

P = ParamSpec("P")
R = TypeVar("R")

_NUMBERS = (bool, int, float, complex)


@final
class BatchTracer(Tracer):
    """A value that differs along dimension ``dim`` of ``value``."""

    __slots__ = ("dim", "value")

    def __init__(self, trace: BatchTrace, value: Array, dim: int) -> None:
        self.owner = trace
        self.value = value
        self.dim = dim
        full = value.type
        self.type = full.without_dim(dim)

    def origin(self) -> str:
        return "batched by nx.vmap"


class BatchTrace(Trace):
    """Interprets ops on ``size`` elements; the axis may have a ``name``, and be cut along mesh axis ``spmd``."""

    __slots__ = ("name", "outer", "size", "spmd")
    outer: Trace

    def __init__(self, parent: Trace, size: int, name: Any = None, spmd: Any = None) -> None:
        self.parent = self.outer = parent
        self.size = size
        self.name = name
        self.spmd = spmd

    def process(self, op: Op, args: Arrays, params: dict[str, Any]) -> Any:
        dims = [x.dim if isinstance(x, BatchTracer) and x.owner is self else None for x in args]
        named = self.name is not None and self.name in axis_names(params)
        if not named and all(d is None for d in dims):
            return self.outer.process(op, args, params)
        xs = [x.value if d is not None else x for x, d in zip(args, dims, strict=True)]  # pyright: ignore[reportAttributeAccessIssue]
        if self.spmd is not None:
            with batching_along(self.spmd):
                y, out = self._batched(op, xs, dims, params, named)
        else:
            y, out = self._batched(op, xs, dims, params, named)
        if op.multi:
            return tuple(self.join(a, d) for a, d in zip(y, out, strict=True))
        return self.join(y, out)

    def _batched(self, op: Op, xs: Arrays, dims: Dims, params: dict[str, Any], named: bool) -> tuple[Any, Any]:
        with use(self.outer):
            if named:
                if op.has("batch_axis"):
                    return op.batch_axis(self.name, self.size, xs, dims, **params)
                return self._expanded(op, xs, dims, params, self.name)
            if op.has("batch"):
                return op.batch(self.size, xs, dims, **params)
            return self._expanded(op, xs, dims, params)

    def _expanded(self, op: Op, xs: Arrays, dims: Dims, params: dict[str, Any], name: Any = None) -> tuple[Any, Any]:
        def flat(*args: Array) -> Arrays:
            y = op.expand(*args, **params)
            return y if op.multi else [y]

        y, out = vmap_flat(flat, self.size, xs, dims, name, self.spmd)
        return (tuple(y), tuple(out)) if op.multi else (y[0], out[0])

    def join(self, value: Array, dim: int | None) -> Array:
        return value if dim is None else BatchTracer(self, value, dim)

    def split(self, y: Array) -> tuple[Array, int | None]:
        if isinstance(y, BatchTracer) and y.owner is self:
            return y.value, y.dim
        return y, None


# Variables with dimensions that `vmap` has added, outermost first: (dimension, name of the axis). Kept while somebody
# debugs, to say which element of a batch is meant.
added_dims: WeakKeyDictionary[Var, tuple[tuple[int, Any], ...]] = WeakKeyDictionary()


@final
class RecordingTrace(BatchTrace):
    """Writes `added_dims`, and says in an error of a value which element of the batch has it."""

    __slots__ = ()

    def join(self, value: Array, dim: int | None) -> Array:
        if dim is not None:
            found, inner = [(dim, self.name)], value
            while isinstance(inner, BatchTracer):
                owner = inner.owner
                found = [(d + (d >= inner.dim), name) for d, name in found]
                found.insert(0, (inner.dim, owner.name if isinstance(owner, BatchTrace) else None))
                inner = inner.value
            if isinstance(inner, StageTracer):
                added_dims[inner.variable] = tuple(found)
        return super().join(value, dim)

    def process(self, op: Op, args: Arrays, params: dict[str, Any]) -> Any:
        try:
            return super().process(op, args, params)
        except NonFiniteError as error:
            found = self._dim(op, args, params) if error.op == op.name else None
            if found is None or found >= len(error.index):
                raise
            where = "vmap" if self.name is None else f"vmap {self.name!r}"
            error.say(where, f"element {error.index[found]} of axis {found}")
            raise

    def _dim(self, op: Op, args: Arrays, params: dict[str, Any]) -> int | None:
        """The dimension in which the first result of ``op`` is batched."""
        dims = [x.dim if isinstance(x, BatchTracer) and x.owner is self else None for x in args]
        values = [x.value if isinstance(x, BatchTracer) and x.owner is self else x for x in args]
        if not op.has("batch") or all(d is None for d in dims):
            return None
        found: list[Any] = []

        def flat(*xs: Array) -> Arrays:
            y, out = op.batch(self.size, xs, dims, **params)
            found.append(out[0] if op.multi else out)
            return y if op.multi else [y]

        stage(flat, [x.type for x in values])
        return found[0]


def vmap_flat(
    function: Callable[..., Sequence[Any]],
    size: int,
    args: Arrays,
    dims: Dims,
    name: Any = None,
    spmd: Any = None,
) -> tuple[list[Array], list[int | None]]:
    """Results and their batch dimensions, in the current trace."""
    kind = BatchTrace if current_settings().mode is None else RecordingTrace
    trace = kind(current_trace(), size, name, spmd)
    xs = [trace.join(x, d) for x, d in zip(args, dims, strict=True)]

    def values() -> list[Array]:
        with nullcontext() if name is None else binding_axis(name, size):
            return [as_value(y, "vmap") for y in function(*xs)]

    ys = run_in_trace(trace, values)
    pairs = [trace.split(y) for y in ys]
    if config.check_tracer_leaks:
        del xs, ys
        leaks.check(trace, "the function under nx.vmap")
    return [y for y, _ in pairs], [d for _, d in pairs]


def batch_program(
    program: Program, size: int, dims: tuple[bool, ...], force: tuple[bool, ...] | None = None, name: Any = None
) -> tuple[Program, tuple[bool, ...]]:
    """The program on inputs batched in dimension 0 where ``dims`` says so, and which results are batched (in 0).

    Results in ``force`` are batched even if they do not vary. Collectives over axis ``name`` are answered. Kept with
    ``program``.
    """

    spmd = spmd_axis()

    def make() -> tuple[Program, tuple[bool, ...]]:
        types = [t.with_shape((size, *t.shape)) if d else t for t, d in zip(program.in_types, dims, strict=True)]
        store: list[tuple[bool, ...]] = []

        def flat(*xs: Array) -> Arrays:
            ys, out = vmap_flat(program, size, xs, [0 if d else None for d in dims], name, spmd)
            wanted = force or (False,) * len(ys)
            is_batched = tuple(d is not None or w for d, w in zip(out, wanted, strict=True))
            store[:] = [is_batched]
            return [move_batch(y, d, size) if b else y for y, d, b in zip(ys, out, is_batched, strict=True)]

        return stage(flat, types, f"vmap({program.name})"), store[0]

    return program.derive(("batch", size, dims, force, name, spmd), make)


@entry
def vmap(
    fun: Callable[P, R],
    in_axes: PyTree = 0,
    out_axes: PyTree = 0,
    axis_name: Hashable | None = None,
    axis_size: int | None = None,
    spmd_axis_name: str | Sequence[str] | None = None,
    sum_match: bool = False,
) -> Callable[P, R]:
    """``fun`` over an added axis of its arguments, as one call on whole arrays.

    Args:
        fun: function of pytrees.
        in_axes: the axis to map over, per argument: an int, None (shared), or a tree prefix of those. Keyword arguments
            are mapped over axis 0. Shared arguments may be anything, also functions.
        out_axes: the position of the axis in the results: an int, None (must not vary), or a tree prefix.
        axis_name: name for collectives inside ``fun``.
        axis_size: number of elements, needed when no argument is mapped.
        spmd_axis_name: mesh axis (or tuple of axes) that splits the added dimension, in
            `nx.lax.with_sharding_constraint` and `nx.shard_map` inside ``fun``.
        sum_match: if ``out_axes`` is None for a result that varies, it is summed over the axis.

    Raises:
        AxisSpecError: ``in_axes`` or ``out_axes`` does not fit the arguments or results.
        ShapeError: mapped axes differ in size.
        ParameterError: not a function.

    >>> vmap(lambda x, y: x * y, in_axes=(0, None))(nx.arange(3.0), 2.0).tolist()
    [0.0, 2.0, 4.0]
    """
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    if not isinstance(in_axes, (int, tuple, type(None), dict)) or isinstance(in_axes, bool):
        raise AxisSpecError(
            "vmap: in_axes", got=repr(in_axes), expected="int, None, or a tuple with one entry per argument"
        )
    if not callable(fun):
        raise ParameterError("vmap: needs a function", got=described(fun), expected="vmap(f)(x), not vmap(f(x))")
    called: Callable[..., Any] = fun

    @api_boundary
    @wraps(fun)
    def mapped(*args: P.args, **kwargs: P.kwargs) -> Any:
        if isinstance(in_axes, tuple) and len(in_axes) != len(args):
            raise AxisSpecError(
                "vmap: in_axes needs one entry per positional argument",
                got=f"{len(in_axes)} entries",
                expected=f"{len(args)}",
                fix="write None for an argument that is shared by all elements",
            )
        leaves, treedef = tree.flatten((args, kwargs))
        axes = _axes_leaves(in_axes, args, "vmap: in_axes") + [0] * len(tree.leaves(kwargs))
        xs = [_as_unbatched(x) if a is None else as_value(x, "vmap") for x, a in zip(leaves, axes, strict=True)]
        dims = [_checked_dim(x, a, i, (args, kwargs)) for i, (x, a) in enumerate(zip(xs, axes, strict=True))]
        size = _common_size(xs, dims, axis_size, (args, kwargs))
        out_defs: list[tree.TreeDef] = []

        def flat(*values: Array) -> Sequence[Any]:
            # A shared Python number stays one, as in JAX: it may be a length, also under `jit`.
            rest = iter(values)
            here = [None if x is None else next(rest) for x in xs]
            given = [x if v is None or type(x) in _NUMBERS else v for x, v in zip(leaves, here, strict=True)]
            a, k = tree.unflatten(treedef, given)
            ys, out_def = tree.flatten(called(*a, **k))
            out_defs.append(out_def)
            return ys

        arrays = [(x, d) for x, d in zip(xs, dims, strict=True) if x is not None]
        ys, found = vmap_flat(flat, size, [x for x, _ in arrays], [d for _, d in arrays], axis_name, spmd_axis_name)
        result = tree.unflatten(out_defs[0], ys)
        wanted = _axes_leaves(out_axes, result, "vmap: out_axes")
        if sum_match:
            pairs = zip(ys, found, wanted, strict=True)
            ys = [reduce_sum(y, axes=(d,)) if w is None and d is not None else y for y, d, w in pairs]
            found = [None if w is None else d for d, w in zip(found, wanted, strict=True)]
        return tree.unflatten(out_defs[0], [_placed(y, d, w, size) for y, d, w in zip(ys, found, wanted, strict=True)])

    return mapped


def _names(args: Any) -> list[str]:
    """What messages call the leaves of (args, kwargs)."""
    return [*tree.path_names(args[0], "args"), *tree.path_names(args[1], "kwargs")]


def _is_none(x: Any) -> bool:
    return x is None


def _axes_leaves(axes: Any, value: Any, where: str) -> list[int | None]:
    # The axes tree is a prefix in which None is a leaf; argument trees keep None as an empty node.
    prefixes, treedef = tree.flatten(axes, _is_none)
    try:
        subtrees = tree.flatten_up_to(treedef, value, where, is_leaf=_is_none) if treedef.num_leaves else []
    except ValueError:
        raise AxisSpecError(
            f"{where} is not a prefix of the tree it describes",
            got=f"{axes!r} for {tree.structure(value)}",
            expected="an int, None, or a tree prefix of them",
        ) from None
    found: list[int | None] = []
    for p, sub in zip(prefixes, subtrees, strict=True):
        if p is not None and (isinstance(p, bool) or not isinstance(p, int)):
            raise AxisSpecError(f"{where} has an entry that is not an axis", got=repr(p), expected="int or None")
        found += [p] * len(tree.leaves(sub))
    return found


def _as_unbatched(x: Any) -> Array | None:
    """The value of an argument that all elements share; None for what is no array, which stays what it is."""
    try:
        return as_value(x, "vmap")
    except (DtypeError, OverflowError):
        return None


def _checked_dim(x: Array | None, axis: int | None, index: int, args: Any) -> int | None:
    if axis is None or x is None:
        return None
    if not -x.ndim <= axis < x.ndim:
        name = _names(args)[index]
        raise AxisSpecError(
            f"vmap: in_axes is out of range for {name}",
            got=f"axis {axis} of {x.type}",
            expected=f"{-x.ndim} <= axis < {x.ndim}" if x.ndim else "None, as the argument is a scalar",
        )
    return axis % x.ndim


def _common_size(xs: Sequence[Array | None], dims: Dims, given: int | None, args: Any) -> int:
    mapped = [(x, d, i) for i, (x, d) in enumerate(zip(xs, dims, strict=True)) if x is not None and d is not None]
    sizes = [x.shape[d] for x, d, _ in mapped]
    if given is not None:
        sizes.append(given)
    if not sizes:
        raise AxisSpecError(
            "vmap: no argument is mapped", got="in_axes of None only", fix="give axis_size, or map an argument"
        )
    if len(set(sizes)) > 1:
        names = _names(args)
        rows = [f"{names[i]}: axis {d} of {x.type}" for x, d, i in mapped]
        raise ShapeError(
            "vmap: mapped axes differ in size",
            got="; ".join(rows),
            expected="one size",
            fix="in_axes=None for what is shared, or another axis",
        )
    return sizes[0]


def _placed(y: Array, dim: int | None, wanted: int | None, size: int) -> Array:
    if wanted is None:
        if dim is not None:
            raise AxisSpecError("vmap: out_axes is None for a result that varies", got=y.type, expected="an axis")
        return y
    ndim = y.ndim if dim is not None else y.ndim + 1
    if not -ndim <= wanted < ndim:
        raise AxisSpecError("vmap: out_axes is out of range", got=f"axis {wanted} for a result of rank {ndim}")
    return move_batch(y, dim, size, wanted % ndim)
