"""Ops that programs define themselves: one equation, known by a function, with rules that are given or derived.

`CustomOp` is the op; how it is declared, tested and registered is the business of `nxjax.extend.custom_operator`. It
expands into its function (or, for a NumPy function, into a call of it), from which type, value, derivative, batching
and portable lowering follow; a derivative, a way to batch, and kernels of single executors can be put in their place.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, final

import numpy as np

from nxjax.config.dataclass import dataclass
from nxjax.errors import DtypeError, GradientError, ParameterError, TreeError
from nxjax.ops.arithmetic import add, mul
from nxjax.ops.base import Elementwise, NDArray, equal_dtypes, equal_shapes, eval_by_expand, infer_by_expand, like
from nxjax.ops.convert import cast
from nxjax.ops.shape import broadcast_in_dim, reshape
from nxjax.trace.array import as_value, readonly, readonly_view
from nxjax.trace.core import Array, Arrays, Dims, Op, Tangents, Tracer
from nxjax.trace.stage import stage
from nxjax.trace.types import ArrayType, Shape, ShapeDtypeStruct
from nxjax.transforms.callback import HashableByKey, pure_callback
from nxjax.transforms.custom_jvp import custom_jvp_call
from nxjax.transforms.custom_vjp import Forward, Pullback, custom_lin, custom_vjp_call
from nxjax.transforms.has_aux import check_pair
from nxjax.transforms.jvp import instantiate, jvp_flat
from nxjax.transforms.subprograms import not_none_mask

NO_DEFAULT: Final = inspect.Parameter.empty


@final
@dataclass(frozen=True)
class Parameters:
    """What a function takes: operands (no default, by position), then settings (a default, or by keyword only)."""

    operands: tuple[str, ...]
    settings: dict[str, Any]  # name -> default, or NO_DEFAULT

    @classmethod
    def of(cls, function: Callable[..., Any], name: str) -> Parameters:
        operands: list[str] = []
        settings: dict[str, Any] = {}
        for p in inspect.signature(function).parameters.values():
            if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
                raise ParameterError(f"custom_op {name}: needs named parameters", got=str(p), expected="no * or **")
            if p.kind is p.KEYWORD_ONLY or p.default is not p.empty:
                settings[p.name] = p.default
            else:
                operands.append(p.name)
        if not operands:
            raise ParameterError(
                f"custom_op {name}: has no operand",
                got=str(inspect.signature(function)),
                expected="at least one parameter without a default",
            )
        return cls(tuple(operands), settings)

    def bind(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Operands in order and all settings, from a call."""
        names = (*self.operands, *self.settings)
        if len(args) > len(names):
            raise ParameterError(f"{name}: too many arguments", got=len(args), expected=f"at most {len(names)}")
        given = dict(zip(names, args, strict=False))
        twice = sorted(given.keys() & kwargs.keys())
        unknown = sorted(kwargs.keys() - set(names))
        if twice or unknown:
            raise ParameterError(
                f"{name}: arguments",
                got=f"twice: {twice}" if twice else f"unknown: {unknown}",
                expected=", ".join(names),
            )
        given |= kwargs
        missing = [n for n in self.operands if n not in given]
        missing += [n for n, d in self.settings.items() if d is NO_DEFAULT and n not in given]
        if missing:
            raise ParameterError(f"{name}: arguments are missing", got=missing, expected=", ".join(names))
        settings = {n: given.get(n, d) for n, d in self.settings.items()}
        for n, value in settings.items():
            _check_setting(name, n, value)
        return [given[n] for n in self.operands], settings


def _check_setting(op: str, name: str, value: Any) -> None:
    """Settings are part of the equation: they must be known, and hash."""
    if isinstance(value, Tracer):
        raise ParameterError(
            f"{op}: setting {name!r} is traced",
            got=value.type,
            expected="a number, string or tuple that is known when the program is traced",
            fix=f"make it an operand: a parameter {name!r} without a default, before the settings",
        )
    try:
        hash(value)
    except TypeError:
        raise ParameterError(f"{op}: setting {name!r} does not hash", got=type(value).__name__) from None


@final
@dataclass(frozen=True)
class CustomKernel:
    """Another way to compute an op on one executor: ``run``, and when it may be used."""

    run: Callable[..., Any]
    supports: Callable[..., bool] | None = None

    def applies_to(self, types: Sequence[ArrayType], params: dict[str, Any]) -> bool:
        return self.supports is None or bool(self.supports(*types, **params))


class CustomOp(Op):
    """An op made of ``function``. Abstract; `make` gives each its own final class.

    Attributes:
        function: what it means, on values of the language, or on NumPy arrays if ``numpy``.
        parameters: its operands and settings.
        elementwise: whether it works element by element.
        declared: ``(*types, **settings) -> type(s)``, or None to ask the function.
        batching: ``(op, size, args, dims, **settings) -> (results, dims)``, or None to derive it.
        quantized: in quantized programs, ``"table"`` (by its values on the grid), ``"expand"`` (by the ops it is made
            of) or ``"float"``.
        kernels: executor -> `CustomKernel`; ``"cpu"`` runs on NumPy arrays, ``"xla"`` writes StableHLO.
        pushes, pulls: the forward or reverse derivative that was given, at most one of them.
    """

    elementwise: ClassVar[bool] = False
    any_params = True

    def __init__(
        self,
        function: Callable[..., Any],
        parameters: Parameters,
        numpy: bool,
        declared: Callable[..., Any] | None,
        batching: Callable[..., Any] | None,
        quantized: str,
    ) -> None:
        # Not `Op.__init__`: the name is taken when the op has passed its test.
        self.function = function
        self.parameters = parameters
        self.numpy = numpy
        self.declared = declared
        self.batching = batching
        self.quantized = quantized
        self.kernels: dict[str, CustomKernel] = {}
        self.samples: Sequence[Any] = ()  # operands and settings that it is tested with
        self.examine: Callable[[CustomOp], None] | None = None  # compares the derivative with differences
        self.pushes: Callable[..., Any] | None = None
        self.pulls: Callable[..., Any] | None = None
        self.__name__ = getattr(function, "__name__", self.name)
        self.__doc__ = function.__doc__
        self.__wrapped__ = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        operands, settings = self.parameters.bind(self.name, args, kwargs)
        return super().__call__(*(as_value(x, self.name) for x in operands), **settings)

    def has(self, rule: str) -> bool:
        if rule == "jvp":
            return self.numpy or self.derivative_given
        if rule == "batch":
            return self.elementwise or self.batching is not None or self.derivative_given
        return rule in ("infer", "eval", "expand", "stablehlo")

    @property
    def derivative_given(self) -> bool:
        return self.pushes is not None or self.pulls is not None

    # --- the meaning ---

    def infer(self, *types: ArrayType, **params: Any) -> Any:
        if self.declared is not None:
            out: Any = self.declared(*types, **params)
            return tuple(out) if self.multi else out
        if self.numpy:
            equal_shapes(self, *types)
            equal_dtypes(self, *types)
            return types[0].strong()
        return infer_by_expand(self, types, params)

    def as_results(self, y: Any) -> tuple[Any, ...]:
        """The results as a tuple, as many as the op has."""
        if isinstance(y, (tuple, list)) is not self.multi:
            raise TreeError(
                f"{self.name}: gives {'one result' if self.multi else 'several results'}",
                got=type(y).__name__,
                expected="as when it was defined",
            )
        return tuple(y) if self.multi else (y,)

    def expand(self, *xs: Array, **params: Any) -> Any:
        if not self.numpy:
            y = tuple(as_value(v, self.name) for v in self.as_results(self.function(*xs, **params)))
            return y if self.multi else y[0]
        types = self.types([x.type for x in xs], params)
        described = [ShapeDtypeStruct(t.shape, t.dtype) for t in types]

        host = _HostCallback(self, tuple(params.items()), types)
        y = tuple(pure_callback(host, described, *xs, vmap_method="sequential"))
        return y if self.multi else y[0]

    def types(self, types: Sequence[ArrayType], params: dict[str, Any]) -> tuple[ArrayType, ...]:
        """The types of the results, always as a tuple."""
        out = self.infer(*types, **params)
        return tuple(out) if self.multi else (out,)

    def run_numpy(
        self, run: Callable[..., Any], xs: Sequence[NDArray], types: Sequence[ArrayType], params: dict[str, Any]
    ) -> list[NDArray]:
        """What a NumPy function gives, in the dtypes that the op says."""
        ys = [
            np.asarray(v.numpy() if isinstance(v, Array) else v)
            for v in self.as_results(run(*map(readonly_view, xs), **params))
        ]
        # An operand, or memory that the function keeps, is no result: both have other users.
        return [readonly(y.astype(t.dtype, copy=False)) for y, t in zip(ys, types, strict=True)]

    def meaning(self, *xs: NDArray, **params: Any) -> Any:
        """The function itself on NumPy arrays, whatever kernels there are."""
        if not self.numpy:
            return eval_by_expand(self, xs, params)
        ys = self.run_numpy(self.function, xs, self.types(_types(xs), params), params)
        return tuple(ys) if self.multi else ys[0]

    def eval(self, *xs: NDArray, **params: Any) -> Any:
        kernel = self.kernels.get("cpu")
        if kernel is None or not kernel.applies_to(_types(xs), params):
            return self.meaning(*xs, **params)
        ys = self.run_numpy(kernel.run, xs, self.types(_types(xs), params), params)
        return tuple(ys) if self.multi else ys[0]

    def stablehlo(self, b: Any, out: Any, *xs: Any, **params: Any) -> Any:
        kernel = self.kernels.get("xla")
        if kernel is not None and kernel.applies_to([x.type for x in xs], params):
            found = kernel.run(b, out, *xs, **params)
            if found is not None:
                return found
        return b.inline(self.expand, xs, params, self.multi)

    # --- derivatives ---

    def jvp(self, primals: Arrays, tangents: Tangents, **params: Any) -> tuple[Any, Any]:
        if self.pushes is not None:
            ys, ts = _JvpRule(self, tuple(params.items()))(primals, [*map(instantiate, tangents, primals)])
            return (tuple(ys), tuple(ts)) if self.multi else (ys[0], ts[0])
        if self.pulls is None and not self.numpy:
            found = jvp_flat(lambda *xs: self.as_results(self.expand(*xs, **params)), primals, tangents)
            return (tuple(found[0]), tuple(found[1])) if self.multi else (found[0][0], found[1][0])
        if self.pulls is None:
            raise GradientError(
                f"{self.name}: has no derivative",
                got="a custom op whose meaning is a NumPy function",
                fix=f"give it one: @{self.name}.defgrad or @{self.name}.defjvp",
            )
        if self.elementwise and not self.multi:
            return self._elementwise_jvp(primals, tangents, params)
        ys, residuals, pull = _VjpRule(self, tuple(params.items()))(primals)
        found = custom_lin(
            *residuals,
            *(t for t in tangents if t is not None),
            num_residuals=len(residuals),
            varying=not_none_mask(tangents),
            pull=pull,
            out_types=tuple(y.type.strong() for y in ys),
        )
        return (tuple(ys), tuple(found)) if self.multi else (ys[0], found[0])

    def _elementwise_jvp(self, primals: Arrays, tangents: Tangents, params: dict[str, Any]) -> tuple[Any, Any]:
        """Element by element the reverse rule is a product with the derivative, and so is the forward rule."""
        y = self(*primals, **params)
        derivatives = self.apply_vjp([like(y, 1)], primals, params)
        total: Array | None = None
        for derivative, t in zip(derivatives, tangents, strict=True):
            if derivative is not None and t is not None:
                part = mul(derivative, t)
                total = part if total is None else add(total, part)
        return y, total

    def apply_vjp(self, cts: Arrays, primals: Arrays, params: dict[str, Any]) -> list[Array | None]:
        """The reverse rule: one cotangent per operand, of its type."""
        assert self.pulls is not None
        found = self.pulls(tuple(cts) if self.multi else cts[0], *primals, **params)
        rows: Sequence[Any] = found if isinstance(found, (tuple, list)) else (found,)  # pyright: ignore[reportUnknownVariableType]
        if len(rows) != len(primals):
            raise TreeError(
                f"{self.name}: its gradient gives another number of cotangents",
                got=len(rows),
                expected=f"one per operand: {', '.join(self.parameters.operands)}",
            )
        return [self.checked_tangent(ct, x.type, "cotangent") for ct, x in zip(rows, primals, strict=True)]

    def checked_tangent(self, t: Any, type: ArrayType, what: str) -> Array | None:
        """A (co)tangent that a rule gave, checked."""
        if t is None:
            return None
        value = as_value(t, f"{self.name}: {what}")
        if value.shape != type.shape or (value.dtype != type.dtype and not value.type.weak):
            raise DtypeError(
                f"{self.name}: its derivative rule gives a {what} of another type", got=value.type, expected=type
            )
        return cast(value, type.dtype)

    def defgrad(self, rule: Any = None, *, check: bool = True) -> Any:
        """A decorator that gives the op its reverse derivative: ``rule(ct, *operands, **settings)``.

        ``ct`` is the cotangent of the result, a tuple of them for several results. The rule gives one cotangent per
        operand (a tuple if there are several), None where it is zero. For an elementwise op of one result it serves
        forward mode too; other ops then have reverse mode only.

        Args:
            rule: the rule.
            check: compare with differences of the op's meaning; switch it off for a derivative that is meant to differ,
                such as a straight-through one.

        Raises:
            KernelError: the rule is not the derivative of the op. The op keeps the one it had.
        """
        return self._set_derivative(rule, "pulls", check)

    def defjvp(self, rule: Any = None, *, check: bool = True) -> Any:
        """A decorator that gives the op its forward derivative: ``rule(primals, tangents, **settings) -> (y, t)``.

        Tangents that are zero are written out. Reverse mode follows by transposition. ``check`` as of `defgrad`.
        """
        return self._set_derivative(rule, "pushes", check)

    def _set_derivative(self, rule: Any, kind: str, check: bool) -> Any:
        if rule is None:
            return lambda r: self._set_derivative(r, kind, check)
        before = self.pushes, self.pulls
        self.pushes, self.pulls = (rule, None) if kind == "pushes" else (None, rule)
        try:
            if check and self.examine is not None:
                self.examine(self)
        except BaseException:
            self.pushes, self.pulls = before
            raise
        return rule

    # --- batching ---

    def batch(self, size: int, args: Arrays, dims: Dims, **params: Any) -> tuple[Any, Any]:
        if self.batching is not None:
            return self.batching(self, size, args, dims, **params)
        # A derivative was given: the call of the function that carries it keeps it under vmap.
        flat: Callable[..., Arrays] = lambda *xs: self.as_results(self.expand(*xs, **params))
        types = [x.type.without_dim(d) for x, d in zip(args, dims, strict=True)]
        program = stage(flat, types, self.name)
        items = tuple(params.items())
        call: Any = custom_vjp_call if self.pushes is None else custom_jvp_call
        rule = _VjpRule(self, items) if self.pushes is None else _JvpRule(self, items)
        ys, out = call.batch_axis(None, size, args, dims, program=program, num_consts=0, rule=rule)
        return (ys, out) if self.multi else (ys[0], out[0])


class ElementwiseOp(CustomOp, Elementwise):
    """A custom op that works element by element: batched as it is, and quantized by a table. Abstract."""

    elementwise = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        operands, settings = self.parameters.bind(self.name, args, kwargs)
        values = self._filled(operands)
        try:
            shape = np.broadcast_shapes(*(x.shape for x in values))
        except ValueError:
            shape = equal_shapes(self, *(x.type for x in values))  # says what is wrong
        return Op.__call__(self, *(_broadcast(x, shape) for x in values), **settings)

    def batch(self, size: int, args: Arrays, dims: Dims, **params: Any) -> tuple[Any, Any]:
        if self.batching is not None:
            return self.batching(self, size, args, dims, **params)
        return Elementwise.batch(self, size, args, dims, **params)


def _broadcast(x: Array, shape: Shape) -> Array:
    if x.shape == shape:
        return x
    first = len(shape) - x.ndim
    kept = [i for i, n in enumerate(x.shape) if n == shape[first + i]]
    small = reshape(x, shape=tuple(x.shape[i] for i in kept)) if len(kept) < x.ndim else x
    return broadcast_in_dim(small, shape=shape, broadcast_dimensions=tuple(first + i for i in kept))


def make(name: str, elementwise: bool, multi: bool, *args: Any) -> CustomOp:
    """A custom op of a final class of its own; ``args`` as of `CustomOp`. It is not registered yet."""
    base = ElementwiseOp if elementwise else CustomOp
    words = "".join(w.capitalize() for w in name.split("_"))
    cls: Any = type(words, (base,), {"name": name, "multi": multi, "__module__": base.__module__})
    return cls(*args)


def _types(xs: Sequence[NDArray]) -> list[ArrayType]:
    return [ArrayType(x.shape, x.dtype) for x in xs]


class _OpFunction(HashableByKey):
    """An op with its settings, as a function that programs hold."""

    def __init__(self, words: str, op: CustomOp, params: tuple[tuple[str, Any], ...], *more: Any) -> None:
        super().__init__(f"{words} {op.name}", op, params, more)
        self.op = op
        self.params = params


@final
class _HostCallback(_OpFunction):
    """The NumPy function of an op as a callback."""

    def __init__(self, op: CustomOp, params: tuple[tuple[str, Any], ...], types: tuple[ArrayType, ...]) -> None:
        super().__init__("call of", op, params, types)
        self.types = types

    def __call__(self, *arrays: Any) -> list[NDArray]:
        return self.op.run_numpy(self.op.function, [np.asarray(a) for a in arrays], self.types, dict(self.params))


@final
class _JvpRule(_OpFunction):
    """The forward rule of an op with its settings, on flat values."""

    def __init__(self, op: CustomOp, params: tuple[tuple[str, Any], ...]) -> None:
        super().__init__("jvp of", op, params, op.pushes)

    def __call__(self, primals: Arrays, tangents: Arrays) -> tuple[list[Array], list[Array | None]]:
        op = self.op
        assert op.pushes is not None
        found = op.pushes(tuple(primals), tuple(tangents), **dict(self.params))
        y, t = check_pair(f"{op.name}: its forward rule", found, "(result, tangent)")
        ys = [as_value(v, op.name) for v in op.as_results(y)]
        ts: Sequence[Any] = t if op.multi else (t,)
        return ys, [op.checked_tangent(t, y.type, "tangent") for t, y in zip(ts, ys, strict=True)]


@final
class _VjpRule(_OpFunction, Forward):
    """The reverse rule of an op with its settings: the operands are kept for the way back."""

    def __init__(self, op: CustomOp, params: tuple[tuple[str, Any], ...]) -> None:
        super().__init__("vjp of", op, params, op.pulls)

    def __call__(self, primals: Arrays) -> tuple[list[Array], list[Array], Pullback]:
        ys = self.op.as_results(self.op(*primals, **dict(self.params)))
        return list(ys), list(primals), _Pullback(self.op, self.params)


@final
class _Pullback(_OpFunction):
    def __init__(self, op: CustomOp, params: tuple[tuple[str, Any], ...]) -> None:
        super().__init__("pull of", op, params, op.pulls)

    def __call__(self, residuals: Arrays, cts: Arrays) -> list[Array | None]:
        return self.op.apply_vjp(cts, residuals, dict(self.params))
