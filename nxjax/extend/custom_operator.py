"""`nx.custom_op`: a program's own ops, tested when they are defined.

An op that fails its test on samples of its types is not registered, and leaves no name behind. What an op *is* lives in
`nxjax.transforms.custom_op`; ways to compute it on single targets are given with `nx.kernel`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from nxjax.backends import dispatch
from nxjax.config.forks import fork_lock
from nxjax.errors import KernelError, NxError, ParameterError, TracerArrayConversionError
from nxjax.lower.npu import custom as npu
from nxjax.ops import quant_elementwise
from nxjax.ops.base import Elementwise
from nxjax.testing.comparison import LawBroken, first_difference, many, tolerance
from nxjax.testing.laws import Sample, check_op
from nxjax.trace import dtypes
from nxjax.trace.array import wrap
from nxjax.trace.core import EVAL, OPS, Array, find_op, use
from nxjax.trace.program import Program, Var
from nxjax.trace.stage import stage
from nxjax.trace.types import ArrayType
from nxjax.transforms.custom_op import NO_DEFAULT, CustomOp, Parameters, make
from nxjax.transforms.custom_signature import OperatorSignature, draw
from nxjax.transforms.grad import vjp
from nxjax.transforms.inline import inlined
from nxjax.transforms.jvp import jvp

NDArray = np.ndarray[Any, Any]
# Ops that work element by element without being of the family.
ALONE: Final = frozenset(("select_n", "clamp", "copy", "stop_gradient", "reduce_precision", "name"))
# Shapes and deviations of the operands that are drawn where no type says what fits.
DRAWN: Final = (((2, 3), 1.0), ((4,), 6.0))
# Names are taken one at a time; a definition may hold another.
DEFINING: Final = fork_lock()


def custom_op(
    function: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    type: type | None = None,
    derivative: Callable[..., Any] | None = None,
    batching: Callable[..., Any] | None = None,
    quantize: str | None = None,
    samples: Sequence[Any] | None = None,
) -> Any:
    """A decorator that makes an op from a function: one equation in every program, which a device can match as a whole.

    Parameters without a default are operands (arrays); those with a default, or by keyword only, are settings, known
    when a program is traced. A function in nx functions has derivatives, batching and a lowering for every device. A
    function in NumPy always runs on the host.

    Args:
        function: the reference for the op.
        name: the op's name in programs; by default the function's. Names of other ops are refused.
        type: ``"elementwise"``; a signature such as ``"float[n,k], float[k] -> float[n]"``; or a function of types and
            settings. By default it comes from tracing the function; one in NumPy needs it.
        derivative: the reverse derivative, as for ``op.defgrad``; by default derived.
        batching: ``(op, size, args, dims, **settings) -> (result, dim)``, under `vmap`; by default derived.
        quantize: how a quantized program computes it: ``"table"``, by its values on the grid (the default of
            elementwise ops of one operand); ``"expand"``, by the quantized ops it is made of (of other ops of nx
            functions); or ``"float"``, between dequantize and quantize.
        samples: test operands: arrays, tuples of arrays, or `nx.testing.sample` with settings; by default random ones
            of the type, with another value for each float setting.

    Returns:
        The op. Call it like the function. ``op.defgrad`` and ``op.defjvp`` set a custom derivative.

    Raises:
        KernelError: the op fails its test; nothing is registered.
        ParameterError: it cannot be tested as declared, or its name is taken.

    >>> @nx.custom_op
    ... def scaled_sine(x, scale=2.0):
    ...     return scale * nx.sin(x)
    >>> float(nx.grad(scaled_sine)(0.0))
    2.0
    >>> scaled_sine.elementwise
    True
    """
    if function is None:
        return functools.partial(
            custom_op,
            name=name,
            type=type,
            derivative=derivative,
            batching=batching,
            quantize=quantize,
            samples=samples,
        )
    if not callable(function):
        raise ParameterError("custom_op: needs a function", got=repr(function)[:60])
    chosen = name or getattr(function, "__name__", "")
    if not chosen.isidentifier():
        raise ParameterError("custom_op: name", got=repr(chosen), expected="an identifier", fix="pass name='...'")
    with use(EVAL):  # a definition inside a traced function is tested on values all the same
        op, tests = _defined(function, chosen, type, batching, quantize, samples)
    op.samples = tests
    op.examine = examine_derivative
    op.pulls = derivative
    with DEFINING, _registered(op), use(EVAL):
        _examine(op)
        if derivative is not None or not op.numpy:
            examine_derivative(op)
    return op


# --- what was declared ---


def _defined(
    function: Callable[..., Any], name: str, type: Any, batching: Any, quantize: Any, samples: Any
) -> tuple[CustomOp, list[Sample]]:
    """The op, not registered, and what it is tested with."""
    if not (type is None or isinstance(type, str) or callable(type)):
        expected = "'elementwise', a signature such as 'float[n] -> float[n]', or a function of types"
        raise ParameterError(f"custom_op {name}: type", got=repr(type), expected=expected)
    if quantize not in (None, "table", "expand", "float"):
        expected = "'table', 'expand' or 'float'"
        raise ParameterError(f"custom_op {name}: quantize", got=repr(quantize), expected=expected)
    parameters = Parameters.of(function, name)
    declared = OperatorSignature.parse(type, name) if isinstance(type, str) and type != "elementwise" else type
    tests, program, multi = _probed(function, parameters, name, declared, samples)
    if program is None and declared is None:
        raise ParameterError(
            f"custom_op {name}: a function in NumPy does not say the type of its result",
            expected="type='elementwise', a signature, or a function of types",
            fix="pass type=..., or write the function with nx functions",
        )
    elementwise = declared == "elementwise" or (declared is None and program is not None and _each_alone(program))
    alone = elementwise and not multi and len(parameters.operands) == 1
    if quantize == "table" and not alone:
        raise ParameterError(
            f"custom_op {name}: a table needs an elementwise op of one operand", got=", ".join(parameters.operands)
        )
    pieces = program is not None and not multi
    if quantize == "expand" and not pieces:
        raise ParameterError(f"custom_op {name}: only an op of nx functions with one result has pieces to quantize")
    how = quantize or ("table" if alone else "expand" if pieces else "float")
    rule = declared if callable(declared) else None
    return make(name, elementwise, multi, function, parameters, program is None, rule, batching, how), tests


def _candidates(parameters: Parameters, name: str, declared: Any, samples: Any) -> list[Sample]:
    if samples is not None:
        rows = [s if isinstance(s, (Sample, tuple)) else (s,) for s in samples]
        found = [s if isinstance(s, Sample) else Sample(tuple(map(np.asarray, s))) for s in rows]
    else:
        rng = np.random.default_rng(0)
        if isinstance(declared, OperatorSignature):
            drawn = declared.samples(rng)
        else:
            drawn = [tuple(draw(rng, s, dtypes.float32, d) for _ in parameters.operands) for s, d in DRAWN]
        found = [Sample(xs) for xs in drawn]
        found += [Sample(found[0].args, {n: v}) for n, v in _varied(parameters)]
    if not found:
        raise ParameterError(f"custom_op {name}: samples", got="none", expected="at least one")
    full: list[Sample] = []
    for s in found:
        settings = {**parameters.settings, **s.params}
        unset = [n for n, v in settings.items() if v is NO_DEFAULT]
        if unset or len(s.args) != len(parameters.operands):
            call = ", ".join([*parameters.operands, *(f"{n}=..." for n in unset)])
            raise ParameterError(
                f"custom_op {name}: samples do not fill its parameters",
                got=f"no value for {unset}" if unset else f"{len(s.args)} operands",
                expected=", ".join((*parameters.operands, *parameters.settings)),
                fix=f"pass samples=[nx.testing.sample({call})]",
            )
        for a in s.args:
            a.flags.writeable = False  # as operands are: what writes into them is found out here
        full.append(Sample(s.args, settings, False))
    return full


def _varied(parameters: Parameters) -> list[tuple[str, float]]:
    """Settings that are floats, with another value: a rule that forgets one is right for its default alone."""
    floats = [(n, v) for n, v in parameters.settings.items() if isinstance(v, float) and np.isfinite(v)]
    return [(n, 1.25 * v if v else 0.5) for n, v in floats]


def _probed(
    function: Callable[..., Any], parameters: Parameters, name: str, declared: Any, samples: Any
) -> tuple[list[Sample], Program | None, bool]:
    """Samples that fit, the traced function (None: it is NumPy), and whether it gives several results."""
    several: list[bool] = []

    def flat(settings: dict[str, Any], *xs: Any) -> Sequence[Any]:
        y = function(*xs, **settings)
        several.append(isinstance(y, (tuple, list)))
        return many(y)

    fit: list[Sample] = []
    program: Program | None = None
    problem: Exception | None = None
    for s in _candidates(parameters, name, declared, samples):
        usual = all(s.params[n] == v or v is NO_DEFAULT for n, v in parameters.settings.items())
        try:
            staged = stage(functools.partial(flat, s.params), [wrap(a).type for a in s.args], name)
            program = staged if usual or program is None else program
            fit.append(s)
        except TracerArrayConversionError as error:
            try:
                flat(s.params, *s.args)
                fit.append(s)
            except Exception:
                problem = problem or error
        except NxError as error:
            problem = problem or error
        except Exception:
            # A function may refuse settings that nobody asked for.
            if usual or samples is not None:
                raise
    drawn_freely = samples is None and not isinstance(declared, OperatorSignature)
    if not fit or (problem is not None and not drawn_freely):
        raise ParameterError(
            f"custom_op {name}: its function does not take the samples it is tested with",
            got=str(problem).splitlines()[0],
            fix="say what fits: type='float[n,n] -> float[n]', or samples=[(x, y), ...]",
        ) from problem
    return fit, program, several[-1]


def _each_alone(program: Program) -> bool:
    """Whether a traced function works element by element: every equation does, or only spreads a constant."""
    flat = inlined(program)
    shape = flat.inputs[0].type.shape
    if any(v.type.shape != shape for v in flat.inputs) or any(t.shape != shape for t in flat.out_types):
        return False
    varying = set(flat.inputs)
    for e in flat.equations:
        if varying.isdisjoint(a for a in e.inputs if isinstance(a, Var)):
            continue
        alone = isinstance(e.op, Elementwise) or e.op.name in ALONE
        if not alone or any(v.type.shape != shape for v in e.outputs):
            return False
        varying.update(e.outputs)
    return True


# --- registration and its tests ---


@contextmanager
def _registered(op: CustomOp) -> Generator[None, None, None]:
    """The name is taken inside, and stays so if nothing fails. The same function defined again takes its own place."""
    before = find_op(op.name)
    if before is not None and not (isinstance(before, CustomOp) and _origin(before) == _origin(op)):
        raise ParameterError(
            f"custom_op: there is an op {op.name!r} already", got=before.__doc__ or before, fix="pass name='...'"
        )
    OPS[op.name] = op
    try:
        yield
    except BaseException as error:
        del OPS[op.name]
        if before is not None:
            OPS[op.name] = before
        if isinstance(error, LawBroken):
            raise KernelError(
                f"custom_op {op.name}: fails its own test and is not registered",
                got=str(error),
                fix="correct the function, its type or its derivative",
            ) from None
        if isinstance(error, Exception) and not isinstance(error, (KernelError, ParameterError)):
            raise raised(f"custom_op {op.name}: its test ends in an error, and it is not registered", error) from error
        raise
    finally:
        forget_results()
    npu.forget(op.name)
    if before is not None:
        # Programs that still hold the old one must not be taken for programs of the new one.
        before.__class__.name = f"{op.name}_{id(before):x}"


def raised(what: str, error: Exception) -> KernelError:
    """The error for rules and kernels that fail themselves: which error, and where in the user's code."""
    return KernelError(
        what,
        got=f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}",
        fix="correct the rule that the traceback ends in; it must take the op's samples, and batches of them",
    )


def _origin(op: CustomOp) -> tuple[str, str]:
    return op.function.__module__, getattr(op.function, "__qualname__", op.name)


def forget_results() -> None:
    """Drop what was compiled or tabulated from ops by their names."""
    dispatch.compiler.clear()
    quant_elementwise.forget_tables()


def _examine(op: CustomOp) -> None:
    """The laws of an op but for its derivatives: type, text, executors, batching."""
    for s in op.samples:
        with np.errstate(all="ignore"):
            check_op(op, [s])


def examine_derivative(op: CustomOp) -> None:
    """The op's derivative against central differences of its meaning, element by element.

    In float64 where the op takes it. A rule for reverse mode alone is tested there alone. A forward rule gives the
    result too: that is compared with the meaning.
    """
    with use(EVAL), np.errstate(all="ignore"):
        for s in op.samples:
            args = _widened(op, s)
            moving = [i for i, a in enumerate(args) if a.dtype in dtypes.FLOAT]
            if moving and any(t.dtype in dtypes.FLOAT for t in op.types([wrap(a).type for a in args], s.params)):
                try:
                    _compare_results(op, args, s.params)
                    _compare_gradients(op, args, moving, s.params)
                except NxError:
                    raise
                except Exception as error:
                    given = "its derivative rule" if op.derivative_given else "its derivative"
                    raise raised(f"{op.name}: {given} fails on the op's samples", error) from error


def _compare_results(op: CustomOp, args: list[NDArray], settings: dict[str, Any]) -> None:
    if op.pushes is None:
        return
    values = tuple(map(wrap, args))
    ys, _ = jvp(lambda *xs: many(op(*xs, **settings)), values, tuple(wrap(np.zeros_like(a)) for a in args))
    for y, want in zip(ys, many(op.meaning(*args, **settings)), strict=True):
        got = _numpy(y)
        place = f"{got.dtype}{list(got.shape)}" if got.shape != want.shape or got.dtype != want.dtype else ""
        if place := place or first_difference(got, want, tolerance(want.dtype), tolerance(want.dtype)):
            raise KernelError(
                f"{op.name}: its forward rule gives another result than the op",
                got=place,
                expected=f"{want.dtype}{list(want.shape)}, as the op gives",
                fix="give (result, tangent), with the result of the op itself",
            )


def _widened(op: CustomOp, s: Sample) -> list[NDArray]:
    wide = [a.astype(np.float64) if a.dtype in dtypes.FLOAT else a for a in s.args]
    try:
        op.infer(*(ArrayType(a.shape, a.dtype) for a in wide), **s.params)
    except NxError:
        return list(s.args)
    return wide


def _compare_gradients(op: CustomOp, args: list[NDArray], moving: list[int], settings: dict[str, Any]) -> None:
    sharp = all(args[i].dtype == np.float64 for i in moving)
    step, tol = (1e-6, 1e-5) if sharp else (1e-2, 3e-2)

    def results(*xs: Any) -> list[Any]:
        full: list[Any] = [wrap(a) for a in args]
        for i, x in zip(moving, xs, strict=True):
            full[i] = x
        return [y for y in many(op(*full, **settings)) if y.dtype in dtypes.FLOAT]

    def gradients(*xs: Any) -> Sequence[Array]:
        made, back = vjp(results, *xs)
        return back([wrap(np.ones(y.shape, y.dtype)) for y in made])

    points = [wrap(args[i]) for i in moving]
    # A rule that only works on values would fail under jit.
    stage(gradients, [p.type for p in points], op.name)
    rng = np.random.default_rng(1)
    ys, pull = vjp(results, *points)
    cts = [draw(rng, y.shape, y.dtype, 1.0) for y in ys]
    pulled = [_numpy(g) for g in pull([wrap(c) for c in cts])]
    for i, got in zip(moving, pulled, strict=True):
        slope = _differences(op, args, i, cts, settings, step)
        known = np.isfinite(slope)
        limit = tol * (1 + np.max(np.abs(slope[known]), initial=0))
        place = first_difference(np.where(known, got, 0), np.where(known, slope, 0), tol, limit)
        if place:
            operand = f"operand {op.parameters.operands[i]!r} ({args[i].dtype}{list(args[i].shape)})"
            raise KernelError(
                f"{op.name}: its derivative is not that of its meaning",
                got=f"gradient of {operand}, {place}",
                expected="central differences of the op",
                fix="correct the rule; for a derivative that is meant to differ, pass check=False",
            )
    if op.pulls is not None and not (op.elementwise and not op.multi):
        return
    ts = [draw(rng, p.shape, p.dtype, 1.0) for p in points]
    _, pushed = jvp(results, tuple(points), tuple(map(wrap, ts)))
    forward = np.asarray(sum(float(np.sum(c * _numpy(t))) for c, t in zip(cts, pushed, strict=True)))
    backward = np.asarray(sum(float(np.sum(g * t)) for g, t in zip(pulled, ts, strict=True)))
    if first_difference(forward, backward, tol, tol):
        raise KernelError(
            f"{op.name}: forward and reverse derivative differ", got=f"<ct, J t> = {forward}", expected=float(backward)
        )


def _numpy(x: Any) -> NDArray:
    return x.numpy() if isinstance(x, Array) else np.asarray(x)


def _differences(
    op: CustomOp, args: list[NDArray], i: int, cts: list[NDArray], settings: dict[str, Any], step: float
) -> NDArray:
    """Central differences of the pairing of the op's float results with ``cts``, in each element of operand ``i``."""

    def paired(x: NDArray) -> float:
        ys = many(op.meaning(*(x if j == i else a for j, a in enumerate(args)), **settings))
        return sum(float(np.sum(c * y)) for c, y in zip(cts, [y for y in ys if y.dtype in dtypes.FLOAT], strict=True))

    slope = np.empty(args[i].shape, np.float64)
    for place in np.ndindex(args[i].shape):
        moved = [args[i].copy(), args[i].copy()]
        moved[0][place] += step
        moved[1][place] -= step
        width = float(moved[0][place]) - float(moved[1][place])
        slope[place] = (paired(moved[0]) - paired(moved[1])) / width
    return slope
