"""Primitives that programs define themselves, rule by rule, as in JAX's extension guide.

A `Primitive` is an op that gets its rules after it is made: how it is computed (`def_impl`), the types of its results
(`def_abstract_eval`), and, through the registries below, its forward derivative, its transpose and its batching. Eager
code calls the implementation directly. Compiled programs call it back, unless `lowered` gave a form in functions of
nxjax. `nx.custom_op` is shorter: it derives and tests rules.
"""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from types import MethodType
from typing import Any, Final, TypeGuard, final

import numpy as np

from nxjax.errors import LoweringError, ParameterError
from nxjax.ops.base import NDArray, zeros
from nxjax.trace import dtypes
from nxjax.trace.array import as_value, wrap
from nxjax.trace.core import (
    EVAL,
    Array,
    Arrays,
    Dims,
    Op,
    Tangents,
    Tracer,
    UndefinedPrimal,
    current_compiler,
    current_trace,
    find_op,
    use,
)
from nxjax.trace.types import ArrayType, ShapeDtypeStruct
from nxjax.transforms.callback import HashableByKey, pure_callback


@final
class Zero:
    """A tangent or cotangent that is zero, with its type as ``aval``: what rules get, and may give, in its place.

    >>> Zero.from_primal_value(nx.ones(3)).aval
    f32[3]
    """

    __slots__ = ("aval",)

    def __init__(self, aval: ArrayType) -> None:
        self.aval = aval

    def __repr__(self) -> str:
        return f"Zero({self.aval})"

    @staticmethod
    def from_primal_value(value: Any) -> Zero:
        """The zero tangent of ``value``."""
        return Zero(as_value(value, "Zero").type.strong())

    def instantiate(self) -> Array:
        """The zeros written out."""
        return zeros(self.aval)


@final
class Rules(MutableMapping[Any, Any]):
    """Rules of one kind by primitive. Ops of nxjax have theirs as methods: one that is missing may be set, once.

    Raises:
        ParameterError: a rule in place of one that an op of nxjax has.
    """

    def __init__(self, kind: str, builtin: Callable[[Op], Callable[..., Any]]) -> None:
        self.kind = kind
        self.builtin = builtin
        self._rules: dict[Any, Callable[..., Any]] = {}

    def __getitem__(self, primitive: Any) -> Callable[..., Any]:
        if primitive in self._rules or _own(primitive) or not isinstance(primitive, Op):
            return self._rules[primitive]
        if not primitive.has(self.kind):
            raise KeyError(primitive)
        return self.builtin(primitive)

    def __setitem__(self, primitive: Any, rule: Callable[..., Any]) -> None:
        if not _own(primitive) and primitive.has(self.kind):
            raise ParameterError(
                f"{primitive}: the {self.kind} rule of an op of nxjax cannot be replaced",
                got=repr(rule),
                fix="put the call into a function with nx.custom_jvp, nx.custom_vjp or nx.custom_batching.custom_vmap",
            )
        self._rules[primitive] = rule
        if not _own(primitive):
            setattr(primitive, self.kind, MethodType(getattr(Primitive, self.kind), primitive))
            setattr(primitive, "rules", primitive.rules | {self.kind})  # noqa: B010 - of this op, not of its class

    def __delitem__(self, primitive: Any) -> None:
        del self._rules[primitive]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._rules)

    def __len__(self) -> int:
        return len(self._rules)

    def of(self, primitive: Primitive, what: str) -> Callable[..., Any]:
        """The rule of a user's primitive, or an error that says which is missing."""
        rule = self._rules.get(primitive)
        if rule is None:
            raise LoweringError(f"{what} for {primitive.name!r} not implemented", got="no rule", fix=_FIXES[self.kind])
        return rule


_FIXES: Final = {
    "jvp": "set jax.interpreters.ad.primitive_jvps[primitive] to rule(primals, tangents, **params)",
    "transpose": "set jax.interpreters.ad.primitive_transposes[primitive] to rule(ct, *operands, **params)",
    "batch": "set jax.interpreters.batching.primitive_batchers[primitive] to rule(operands, dims, **params)",
}


def _builtin_jvp(op: Op) -> Callable[..., Any]:
    def rule(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        ts = [None if isinstance(t, Zero) else t for t in tangents]
        y, t = op.jvp([as_value(x, op.name) for x in primals], ts, **params)
        ys, dys = (y, t) if op.multi else ((y,), (t,))
        out = [Zero(a.type.strong()) if d is None else d for a, d in zip(ys, dys, strict=True)]
        return (list(ys), out) if op.multi else (y, out[0])

    return rule


def _builtin_transpose(op: Op) -> Callable[..., Any]:
    def rule(ct: Any, *args: Any, **params: Any) -> Any:
        cts = [None if isinstance(c, Zero) else c for c in ct] if op.multi else ct
        return list(op.transpose(cts, *args, **params))

    return rule


def _builtin_batch(op: Op) -> Callable[..., Any]:
    def rule(args: Sequence[Any], dims: Dims, **params: Any) -> Any:
        size = next(x.shape[d] for x, d in zip(args, dims, strict=True) if d is not None)
        return op.batch(size, args, dims, **params)

    return rule


primitive_jvps: Final = Rules("jvp", _builtin_jvp)
primitive_transposes: Final = Rules("transpose", _builtin_transpose)
primitive_batchers: Final = Rules("batch", _builtin_batch)
# Rules that get the size and name of the axis first.
fancy_primitive_batchers: Final[dict[Any, Callable[..., Any]]] = {}


_MADE: Final[dict[str, Primitive]] = {}  # the last of each name; text that holds one is not parsed


class _Kind(ABCMeta):
    """Every op is an instance of `Primitive`: that is what JAX calls one."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Op) if cls.__name__ == "Primitive" else super().__instancecheck__(instance)


def _own(x: Any) -> TypeGuard[Primitive]:
    """Whether ``x`` is a program's own primitive, not an op of nxjax."""
    return Primitive in type(x).__mro__


class Primitive(Op, metaclass=_Kind):
    """An operation of the user's own, known by rules that are set on it.

    Args:
        name: what programs show.

    >>> double_p = Primitive("double")
    >>> _ = double_p.def_impl(lambda x: 2 * x)
    >>> _ = double_p.def_abstract_eval(lambda x: x)
    >>> float(double_p.bind(3.0)), nx.make_jaxpr(double_p.bind)(3.0).eqns[0].primitive is double_p
    (6.0, True)
    """

    # Of each instance here, not of the class.
    name: str = ""
    multi: bool = False
    any_params = True
    rules = frozenset({"infer", "eval", "expand", "jvp", "transpose", "batch", "stablehlo"})

    def __init__(self, name: str) -> None:
        # Not `Op.__init__`: names may come again, and the class has no one instance.
        before = _MADE.get(name)
        if before is not None:
            before.name = f"{name}_{id(before):x}"  # pyright: ignore[reportIncompatibleVariableOverride]
            current_compiler().clear()  # compiled programs are found by text
        self.name = f"{name}_" if find_op(name) else name  # pyright: ignore[reportIncompatibleVariableOverride]
        self.multi = False
        self.impl: Callable[..., Any] | None = None
        self.abstract_eval: Callable[..., Any] | None = None
        self.lowered: Callable[..., Any] | None = None
        _MADE[name] = self

    def __reduce__(self) -> Any:
        """Copies and pickles are the primitive itself, found by its name in the same program."""
        return _MADE.__getitem__, (self.name,)

    @property
    def multiple_results(self) -> bool:
        """Whether the primitive gives a list of results."""
        return self.multi

    @multiple_results.setter
    def multiple_results(self, value: bool) -> None:
        self.multi = bool(value)  # pyright: ignore[reportIncompatibleVariableOverride]

    # --- what is set ---

    def def_impl(self, impl: Callable[..., Any]) -> Callable[..., Any]:
        """``impl(*values, **params)`` computes the result; eager code calls it, and compiled code calls it back."""
        self.impl = impl
        return impl

    def def_abstract_eval(self, abstract_eval: Callable[..., Any]) -> Callable[..., Any]:
        """``abstract_eval(*types, **params)`` gives the type(s) of the result: `ShapedArray`, of shape and dtype."""
        self.abstract_eval = abstract_eval
        return abstract_eval

    def def_effectful_abstract_eval(self, abstract_eval: Callable[..., Any]) -> Callable[..., Any]:
        """As `def_abstract_eval`, for a function that gives ``(types, effects)``."""
        self.abstract_eval = lambda *types, **params: abstract_eval(*types, **params)[0]
        return abstract_eval

    def def_custom_bind(self, bind: Callable[..., Any]) -> Callable[..., Any]:
        """``bind(*values, **params)`` instead of the usual one."""
        self.bind = bind
        return bind

    # --- what follows ---

    def __call__(self, *args: Any, **params: Any) -> Any:
        if current_trace() is EVAL and self.impl is not None and not any(isinstance(x, Tracer) for x in args):
            return self._computed(args, params)
        return super().__call__(*args, **params)

    def bind(self, *args: Any, **params: Any) -> Any:
        y = self(*(as_value(x, self.name) for x in args), **params)
        return list(y) if self.multi else y

    def _computed(self, args: Sequence[Any], params: dict[str, Any]) -> Any:
        assert self.impl is not None
        y = self.impl(*args, **params)
        if not self.multi:
            return as_value(y, self.name)
        return tuple(as_value(v, self.name) for v in y)

    def infer(self, *types: ArrayType, **params: Any) -> Any:
        if self.abstract_eval is None:
            raise LoweringError(
                f"abstract evaluation for {self.name!r} not implemented",
                got="no rule",
                fix="give it one with primitive.def_abstract_eval(rule)",
            )
        out = self.abstract_eval(*types, **params)
        return tuple(map(_as_type, out)) if self.multi else _as_type(out)

    def eval(self, *xs: NDArray, **params: Any) -> Any:
        with use(EVAL):
            y = (self._host if self.impl is not None else self.expand)(*map(wrap, xs), **params)
        return tuple(v.numpy() for v in y) if self.multi else y.numpy()

    def _host(self, *xs: Any, **params: Any) -> Any:
        """The implementation on arrays, in the types that the op says."""
        y = self._computed(xs, params)
        types = self.infer(*(x.type for x in xs), **params)
        if not self.multi:
            return self._fitted(y, types)
        return tuple(map(self._fitted, y, types))

    def _fitted(self, y: Array, type: ArrayType) -> Array:
        if y.shape != type.shape:
            raise ParameterError(f"{self.name}: def_impl and def_abstract_eval differ", got=y.type, expected=type)
        return y if y.dtype == type.dtype else wrap(np.asarray(y.numpy()).astype(type.dtype))

    def expand(self, *xs: Array, **params: Any) -> Any:
        if self.lowered is not None:
            y = self.lowered(*xs, **params)
            if not self.multi:
                return as_value(y[0] if isinstance(y, (tuple, list)) else y, self.name)
            return tuple(as_value(v, self.name) for v in y)
        if self.impl is None:
            raise LoweringError(
                f"evaluation rule for {self.name!r} not implemented",
                got="no rule",
                fix="give it one with primitive.def_impl(function)",
            )
        out = self.infer(*(x.type for x in xs), **params)
        types = out if self.multi else (out,)
        described = tuple(ShapeDtypeStruct(t.shape, t.dtype) for t in types)
        y = pure_callback(_HostCallback(self, tuple(params.items())), described, *xs)
        return tuple(y) if self.multi else y[0]

    def stablehlo(self, b: Any, out: Any, *xs: Any, **params: Any) -> Any:
        return b.inline(self.expand, xs, params, self.multi)

    def jvp(self, primals: Arrays, tangents: Tangents, **params: Any) -> tuple[Any, Any]:
        rule = primitive_jvps.of(self, "differentiation rule")
        ts = tuple(Zero(x.type.strong()) if t is None else t for x, t in zip(primals, tangents, strict=True))
        y, t = rule(tuple(primals), ts, **params)
        if not self.multi:
            return as_value(y, self.name), _tangent(self, t)
        return tuple(as_value(v, self.name) for v in y), tuple(_tangent(self, v) for v in t)

    def transpose(self, ct: Any, *args: Any, **params: Any) -> Tangents:
        rule = primitive_transposes.of(self, "transpose rule (for reverse-mode differentiation)")
        if self.multi:
            types = self.infer(*(x.type for x in args), **params)
            ct = [Zero(t.strong()) if c is None else c for c, t in zip(ct, types, strict=True)]
        return [_tangent(self, v) for v in rule(ct, *args, **params)]

    def batch(self, size: int, args: Arrays, dims: Dims, **params: Any) -> tuple[Any, Any]:
        fancy = fancy_primitive_batchers.get(self)
        if fancy is not None:
            y, out = fancy(AxisData(size), tuple(args), tuple(dims), **params)
        else:
            y, out = primitive_batchers.of(self, "batching rule")(tuple(args), tuple(dims), **params)
        if not self.multi:
            return as_value(y, self.name), _dim(out)
        ys = tuple(as_value(v, self.name) for v in y)
        dims_out = (out,) * len(ys) if out is None or isinstance(out, int) else out
        return ys, tuple(map(_dim, dims_out))


@final
class AxisData:
    """The axis that `vmap` adds: its size, and its name if it has one."""

    def __init__(self, size: int, name: Any = None) -> None:
        self.size = size
        self.name = name
        self.spmd_name = None
        self.explicit_mesh_axis = None


@final
class _HostCallback(HashableByKey):
    """The implementation of a primitive with its parameters, called back from compiled programs."""

    def __init__(self, primitive: Primitive, params: tuple[tuple[str, Any], ...]) -> None:
        super().__init__(primitive.name, primitive, params)
        self.primitive = primitive
        self.params = params

    def __hash__(self) -> int:
        return hash(self.primitive)  # parameters may not hash

    def __call__(self, *xs: Any) -> Any:
        y = self.primitive._host(*xs, **dict(self.params))  # pyright: ignore[reportPrivateUsage]
        return y if self.primitive.multi else (y,)


def _as_type(x: Any) -> ArrayType:
    if isinstance(x, ArrayType):
        return x
    return ArrayType(tuple(x.shape), dtypes.as_dtype(x.dtype), bool(getattr(x, "weak_type", False)))


def _tangent(op: Op, t: Any) -> Array | None:
    return None if t is None or isinstance(t, (Zero, UndefinedPrimal)) else as_value(t, op.name)


def _dim(d: Any) -> int | None:
    return None if d is None else int(d)
