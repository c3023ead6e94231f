"""`bucketed`: functions of arrays whose length varies, run by a few programs of fixed shapes.

Chooses the bucket, pads, calls and cuts off the padding. `nxjax.transforms.bucketing` does the masking.
"""

from __future__ import annotations

import functools
import inspect
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, final

import numpy as np

from nxjax.config import config, current_settings
from nxjax.errors import ParameterError, ShapeError
from nxjax.ops.convert import cast
from nxjax.ops.slicing import pad
from nxjax.ops.slicing import slice as slice_op
from nxjax.trace import dtypes, tree
from nxjax.trace.array import as_value, wrap
from nxjax.trace.axes import axes_in_scope
from nxjax.trace.boundary import api_boundary, entry
from nxjax.trace.core import Array, Arrays, Tracer, current_trace
from nxjax.trace.mesh import current_mesh
from nxjax.trace.stage import stage
from nxjax.trace.types import ArrayType
from nxjax.trace.wrapping import name_of, wraps
from nxjax.transforms.bucketing.call import Masked, Programs, bucketed_call, masked, open_constants
from nxjax.transforms.bucketing.sizes import Domain, Range, Size
from nxjax.transforms.bucketing.values import zero
from nxjax.transforms.jit import Jitted, jit

POWERS_OF_TWO: Final = "powers of two"
# Axis of one array -> name of its dimension.
Axes = dict[int, str]


@entry
def bucketed(
    fun: Callable[..., Any],
    dims: Mapping[int | str, Any],
    buckets: Mapping[str, Sequence[int] | str] | None = None,
    *,
    at_least: int | Mapping[str, int] = 2,
    multiple_of: int | Mapping[str, int] = 1,
) -> Bucketed:
    """``fun`` for arrays of any length, traced and compiled once per bucket of lengths.

    Arguments are padded to the next bucket. Ops that mix elements along a padded axis (sums, products, softmax, norms,
    convolutions, sorting, attention, loops, and their derivatives) ignore the padding. So the result equals that of
    ``fun`` on the unpadded arrays. If an op cannot ignore it, tracing fails; the error names the line and the fix.

    Args:
        fun: function of pytrees of arrays; keyword arguments are passed on.
        dims: per argument (position or name), the axes whose size varies: ``{axis: dimension}`` for all arrays of the
            argument, or a tree of such dicts. A dimension is a name, which axes of one length share, or the buckets
            themselves: a sequence of sizes, or ``"powers of two"``.
        buckets: sizes per named dimension, ascending; powers of two for names that are not in it.
        at_least: shorter lengths are traced without padding. The default is 2, because broadcasting and empty
            reductions differ at lengths 0 and 1. One number, or one per name.
        multiple_of: lengths are multiples of this, for functions that need it. One number, or one per name.

    Returns:
        A function that composes with `jit`, `grad`, `vmap`. Its ``trace_count`` is the number of programs made.

    Raises:
        ParameterError: ``dims`` or ``buckets`` do not fit each other or the arguments.
        ShapeError: axes of one dimension differ in length, or a length is larger than the largest bucket.
        LoweringError: ``fun`` uses a padded axis in an op without a rule, or does different things at different
            lengths.

    >>> f = bucketed(lambda x: nx.nn.softmax(x).max(), {0: {0: [8, 32]}})
    >>> [round(float(f(nx.ones(n))), 4) for n in (2, 4, 8, 10)], f.trace_count
    ([0.5, 0.25, 0.125, 0.1], 2)
    """
    return Bucketed(fun, dims, buckets or {}, at_least, multiple_of)


@final
class _Entry:
    """One traced combination of buckets."""

    def __init__(self, programs: Programs, consts: list[Array], domain: Domain, out_tree: tree.TreeDef) -> None:
        self.programs = programs
        self.consts = consts
        self.domain = domain
        self.out_tree = out_tree
        self.call: Jitted = jit(functools.partial(bucketed_call, programs=programs, domain=domain, known=()))
        # A function that closes over tracers of a surrounding trace is good for that trace only.
        self.captures_tracers = any(isinstance(c, Tracer) for c in consts)

    @property
    def masked(self) -> Masked:
        return masked(self.programs, self.domain, ())

    def is_valid(self) -> bool:
        around = current_trace().ancestors()
        return all(c.owner in around for c in self.consts if isinstance(c, Tracer))


@final
class Bucketed:
    """A function of arrays of varying length; made by `bucketed`.

    Attributes:
        trace_count: the number of programs: one per combination of buckets and of the arguments' other types.
    """

    def __init__(
        self,
        fun: Callable[..., Any],
        dims: Mapping[int | str, Any],
        buckets: Mapping[str, Sequence[int] | str],
        at_least: int | Mapping[str, int],
        multiple_of: int | Mapping[str, int],
    ) -> None:
        if not callable(fun):
            raise ParameterError("bucketed: needs a function", got=type(fun).__name__)
        if not isinstance(dims, Mapping) or not dims:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ParameterError(
                "bucketed: dims", got=repr(dims), expected='a dict such as {0: {1: "time"}}: argument, axis, dimension'
            )
        wraps(fun)(self)
        self.fun = fun
        self.trace_count = 0
        self._names = _parameter_names(fun)
        self._sizes: dict[str, Sequence[int] | str] = {}
        self._dims = {self._position(k): self._named(v, f"{k}") for k, v in dims.items()}
        for name, sizes in buckets.items():
            if name not in self._sizes:
                raise ParameterError(
                    f"bucketed: buckets for {name!r}, which no axis has", got=name, expected=", ".join(self._sizes)
                )
            self._sizes[name] = _checked_sizes(name, sizes)
        self._at_least = _per_name(at_least, self._sizes, "at_least", 0)
        self._step = _per_name(multiple_of, self._sizes, "multiple_of", 1)
        self._entries: dict[Any, _Entry] = {}

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __repr__(self) -> str:
        return f"<bucketed {getattr(self.fun, '__qualname__', self.fun)}>"

    @api_boundary
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if config.disable_jit:
            return self.fun(*args, **kwargs)
        leaves, treedef, axes = self._flat(args, kwargs)
        lengths = self._lengths(leaves, axes, args, kwargs)
        domain = Domain(tuple(self._range(name, n) for name, n in lengths.items()))
        top = {r.name: r.high for r in domain.ranges}
        padded = [_padded(x, a, top) for x, a in zip(leaves, axes, strict=True)]
        entry = self._entry(padded, treedef, axes, domain)
        out = entry.call(*(wrap(np.asarray(lengths[name], np.int32)) for name in domain.names), *entry.consts, *padded)
        ys = [_cut(y, sizes, lengths) for y, sizes in zip(out, entry.masked.sizes, strict=True)]
        return tree.unflatten(entry.out_tree, ys)

    @api_boundary
    def padded(self, lengths: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        """The call on arguments padded to their buckets' sizes, with ``lengths`` as data. Results are padded, too.

        Lengths may be traced, one per element of a batch under `vmap`, or inputs of a deployed program. Values after
        the true length are ignored in arguments and arbitrary in results.

        >>> total = bucketed(lambda x: x.sum(), {0: {0: "n"}}, {"n": [4]})
        >>> rows = nx.arange(8.0).reshape(2, 4)
        >>> nx.vmap(total.padded)({"n": nx.array([2, 3])}, rows).tolist()
        [1.0, 15.0]
        """
        leaves, treedef, axes = self._flat(args, kwargs)
        sizes = self._lengths(leaves, axes, args, kwargs)
        if set(lengths) != set(sizes):
            raise ParameterError("bucketed: lengths", got=sorted(lengths), expected=sorted(sizes))
        domain = Domain(tuple(self._range(name, n) for name, n in sizes.items()))
        for r in domain.ranges:
            if r.high != sizes[r.name]:
                raise ShapeError(
                    f"bucketed: padded arguments have a bucket's size along {r.name!r}",
                    got=sizes[r.name],
                    expected=r.high,
                )
        entry = self._entry(leaves, treedef, axes, domain)
        scalars = [as_value(lengths[name], "bucketed: lengths") for name in domain.names]
        scalars = [cast(x, dtypes.int32) for x in scalars]
        return tree.unflatten(entry.out_tree, entry.call(*scalars, *entry.consts, *leaves))

    def clear_cache(self) -> None:
        """Forget every traced combination of buckets."""
        self._entries.clear()

    # --- dimensions ---

    def _position(self, key: int | str) -> int | str:
        if isinstance(key, str) and key in self._names:
            return self._names.index(key)
        return key

    def _named(self, spec: Any, where: str) -> Any:
        """``spec`` with a name for every dimension; its sizes are kept."""
        if spec is None:
            return None
        if isinstance(spec, (tuple, list)):
            return tuple(self._named(v, f"{where}[{i}]") for i, v in enumerate(spec))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        if isinstance(spec, Mapping) and all(isinstance(k, int) for k in spec):  # pyright: ignore[reportUnknownVariableType]
            return _AxesSpec({a: self._dimension(d, f"{where} axis {a}") for a, d in spec.items()})  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        if isinstance(spec, Mapping):
            return {k: self._named(v, f"{where}[{k!r}]") for k, v in spec.items()}  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        raise ParameterError(
            f"bucketed: dims of argument {where}", got=repr(spec), expected="{axis: dimension}, or a tree of those"
        )

    def _dimension(self, dimension: Any, where: str) -> str:
        if isinstance(dimension, str) and dimension != POWERS_OF_TWO:
            self._sizes[dimension] = POWERS_OF_TWO
            return dimension
        name = f"argument {where}"
        self._sizes[name] = _checked_sizes(name, dimension)
        return name

    def _range(self, name: str, n: int) -> Range:
        """The lengths that share a program with ``n``."""
        sizes, low, step = self._sizes[name], self._at_least[name], self._step[name]
        if n % step:
            raise ShapeError(f"bucketed: a length of {name!r}", got=n, expected=f"a multiple of {step}")
        if n < low:
            return Range(name, n, n)
        if isinstance(sizes, str):
            high = 1 << max(0, (n - 1).bit_length())
            before = high // 2
        else:
            high = next((b for b in sizes if b >= n), None)
            if high is None:
                raise ShapeError(
                    f"bucketed: a length of {name!r} is larger than the largest bucket",
                    got=n,
                    expected=f"at most {sizes[-1]}",
                    fix="add a larger bucket",
                )
            before = max((b for b in sizes if b < n), default=0)
        high = -(-high // step) * step
        first = max(low, before + 1)
        return Range(name, -(-first // step) * step, high, step)

    # --- arguments ---

    def _flat(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Array], tree.TreeDef, list[Axes]]:
        leaves, treedef = tree.flatten((args, kwargs))
        axes: list[Axes] = []
        for i, arg in enumerate(args):
            axes += _spread(self._dims.get(i), arg, f"argument {i}")
        for key in kwargs if len(kwargs) < 2 else sorted(kwargs):
            axes += _spread(self._dims.get(self._position(key)), kwargs[key], f"argument {key}")
        values = [as_value(x, "bucketed") for x in leaves]
        return values, treedef, [_counted(x, a) for x, a in zip(values, axes, strict=True)]

    def _lengths(self, leaves: Arrays, axes: Sequence[Axes], args: Any, kwargs: Any) -> dict[str, int]:
        found: dict[str, int] = {}
        for x, mine in zip(leaves, axes, strict=True):
            for axis, name in mine.items():
                n = x.shape[axis]
                if found.setdefault(name, n) != n:
                    paths = tree.path_names((args, kwargs), "arguments")
                    rows = [
                        f"{p}: axis {a} of {y.type}"
                        for p, y, other in zip(paths, leaves, axes, strict=True)
                        for a, d in other.items()
                        if d == name
                    ]
                    raise ShapeError(
                        f"bucketed: axes of dimension {name!r} differ in length", got="; ".join(rows), expected="one"
                    )
        if not found:
            raise ParameterError(
                "bucketed: no argument has a bucketed axis", got=f"{len(args)} arguments", expected=sorted(self._sizes)
            )
        return found

    def _entry(self, padded: Arrays, treedef: tree.TreeDef, axes: Sequence[Axes], domain: Domain) -> _Entry:
        types = tuple(x.type for x in padded)
        key = (treedef, types, domain, axes_in_scope(), current_mesh(), current_settings().call)
        entry = self._entries.get(key)
        if entry is None or (entry.captures_tracers and not entry.is_valid()):
            entry = self._entries[key] = self._trace(types, treedef, axes, domain)
        return entry

    def _trace(self, types: Sequence[ArrayType], treedef: tree.TreeDef, axes: Sequence[Axes], domain: Domain) -> _Entry:
        self.trace_count += 1
        out_trees: list[tree.TreeDef] = []

        def flat(*xs: Array) -> Sequence[Any]:
            args, kwargs = tree.unflatten(treedef, xs)
            ys, out_tree = tree.flatten(self.fun(*args, **kwargs))
            out_trees.append(out_tree)
            return ys

        programs = [
            stage(flat, [_resized(t, a, member) for t, a in zip(types, axes, strict=True)], self._fun_name())
            for member in (dict(zip(domain.names, m, strict=True)) for m in domain.members())
        ]
        if any(t != out_trees[0] for t in out_trees):
            raise ParameterError("bucketed: the result's structure depends on a length", got=out_trees)
        found, consts = open_constants(programs, domain)
        entry = _Entry(found, consts, domain, out_trees[0])
        _ = entry.masked  # errors belong to the first call, not to whoever runs it
        return entry

    def _fun_name(self) -> str:
        return name_of(self.fun)


class _AxesSpec(dict[int, str]):
    """Axes of all arrays below; told apart from a dict of arguments."""


def _parameter_names(fun: Callable[..., Any]) -> list[str]:
    try:
        parameters = inspect.signature(fun).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def _checked_sizes(name: str, sizes: Any) -> Sequence[int] | str:
    if sizes == POWERS_OF_TWO:
        return POWERS_OF_TWO
    if isinstance(sizes, (tuple, list)) and sizes and all(isinstance(b, int) and b > 0 for b in sizes):  # pyright: ignore[reportUnknownVariableType]
        return tuple(sorted(set(sizes)))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    raise ParameterError(
        f"bucketed: buckets of {name!r}", got=repr(sizes), expected=f"sizes such as [64, 128], or {POWERS_OF_TWO!r}"
    )


def _per_name(value: int | Mapping[str, int], names: Mapping[str, Any], what: str, default: int) -> dict[str, int]:
    given = dict.fromkeys(names, value) if isinstance(value, int) else dict(value)
    unknown = sorted(set(given) - set(names))
    if unknown or any(n < default for n in given.values()):
        raise ParameterError(
            f"bucketed: {what}",
            got=repr(value),
            expected=f"an int from {default} on, or one per name of {sorted(names)}",
        )
    return {name: given.get(name, 2 if what == "at_least" else default) for name in names}


def _spread(spec: Any, value: Any, where: str) -> list[Axes]:
    """The axes of every leaf of ``value``."""
    if spec is None:
        return [{} for _ in tree.leaves(value)]
    if isinstance(spec, _AxesSpec):
        return [dict(spec) for _ in tree.leaves(value)]
    if isinstance(spec, dict):
        if not isinstance(value, Mapping) or set(spec) - set(value):  # pyright: ignore[reportUnknownArgumentType]
            raise ParameterError(f"bucketed: dims do not fit {where}", got=tree.structure(value), expected=sorted(spec))  # pyright: ignore[reportUnknownArgumentType]
        found: list[Axes] = []
        keys: Any = value if isinstance(value, OrderedDict) else sorted(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        for key in keys:  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
            found += _spread(spec.get(key), value[key], f"{where}[{key!r}]")  # pyright: ignore[reportUnknownMemberType]
        return found
    if not isinstance(value, (tuple, list)) or len(value) != len(spec):  # pyright: ignore[reportUnknownArgumentType]
        raise ParameterError(f"bucketed: dims do not fit {where}", got=tree.structure(value), expected=spec)
    found = []
    for i, (s, v) in enumerate(zip(spec, value, strict=True)):  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        found += _spread(s, v, f"{where}[{i}]")
    return found


def _counted(x: Array, axes: Axes) -> Axes:
    """Axes counted from the front."""
    for a in axes:
        if not -x.ndim <= a < x.ndim:
            raise ParameterError(
                f"bucketed: dims name axis {a}",
                got=x.type,
                expected=f"{-x.ndim} <= axis < {x.ndim}" if x.ndim else "none",
            )
    return {a % x.ndim: name for a, name in axes.items()}


def _padded(x: Array, axes: Axes, top: Mapping[str, int]) -> Array:
    room = [top[axes[a]] - n if a in axes else 0 for a, n in enumerate(x.shape)]
    return pad(x, zero(x), padding_config=tuple((0, r, 0) for r in room)) if any(room) else x


def _resized(type: ArrayType, axes: Axes, lengths: Mapping[str, int]) -> ArrayType:
    return type.with_shape(tuple(lengths[axes[a]] if a in axes else n for a, n in enumerate(type.shape)))


def _cut(y: Array, sizes: Sequence[Any], lengths: Mapping[str, int]) -> Array:
    shape = tuple(int(Size.of(s).at(lengths)) for s in sizes)
    return y if shape == y.shape else slice_op(y, start_indices=(0,) * y.ndim, limit_indices=shape)
