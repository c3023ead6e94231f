"""Random programs, quantized: every way to run one gives the same bits, which are near the float program's values.

Where parts stay float, executors round differently, and only the second holds. What is near comes from the float
program: it runs again with errors as large as the steps of the grids on top of each value. So a sum that overflows,
a wrong scale or a wrong order is found, and the error of eight bits is not blamed.
"""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

import nxjax
from nxjax.backends.quiet import quiet
from nxjax.ops.base import DataMovement
from nxjax.ops.fake_quantize import QuantizeWeight
from nxjax.ops.fixed.functions import FUNCTIONS
from nxjax.ops.quant_base import QuantizedOp
from nxjax.quant.function import Quantized, quantize
from nxjax.testing.comparison import NDArray, executors
from nxjax.testing.generator import random_text
from nxjax.testing.inputs import Argument
from nxjax.testing.judge import Results, arrays, defined, leaves
from nxjax.testing.productions import ROWS
from nxjax.testing.steps import GeneratedProgram, StepRefused, Unfit
from nxjax.testing.ways import Way, called, random_settings
from nxjax.trace import dtypes
from nxjax.trace.core import find_op
from nxjax.trace.evaluate import Perturbation, evaluate, perturbation
from nxjax.trace.program import Equation

# Steps from the least value of a grid to the greatest, of activations and of weights.
_STEPS: Final = {
    "int8": (255, 254),
    "int16x8": (65534, 254),
    "dynamic-int8": (254, 254),
    "int8-weights": (1e7, 254),
    "int4-weights": (1e7, 14),
}
# The step of grids that TFLite fixes, whatever the values: tanh's, the coarsest of them.
_FIXED_STEP: Final = {"int8": 1 / 128, "int16x8": 1 / 32768}
_FIXES: Final = re.compile(r"\b(tanh|logistic|softmax|silu|gelu|attention)\b")
_NUMBER: Final = re.compile(r"^ *(\w+):\S+ = broadcast_in_dim\[.*\] -?\d\S*$", re.MULTILINE)
_DIVIDES: Final = re.compile(r"= (?:div \S+ ([a-z]+)|integer_pow\[y=-.*)$", re.MULTILINE)
# How far off a result may be: by what errors of one step did to this element, and to all on average.
_OWN, _MEAN, _RUNS = 8.0, 4.0, 8
# Sizes whose sums and softmaxes leave 32 bits, and those beside them.
_LONG: Final = (255, 4095, 4097, 8193, 32_769, 65_535, 65_537, 70_001, 131_073)
# What is rounded once, and never together with another op.
_ROUNDED_ONCE: Final = frozenset(("abs", "neg", "max", "min", "mul", "reduce_max", "reduce_min", "stop_gradient"))
_TABLES: Final = frozenset(name for name in FUNCTIONS - _ROUNDED_ONCE if find_op(name))
# The turns of a loop share one grid, and the noise of a turn knows its own values only.
_LOOPS: Final = frozenset(("scan", "while_loop", "fori_loop", "map"))


def random_arguments(rng: random.Random, _x64: bool, large: bool = False) -> list[Argument]:
    """One to four float arrays; one in three is long along an axis."""
    rank = rng.choice((1, 2, 2, 2, 3, 4))
    dims = [rng.choice((1, 2, 3, 3, 4, 5, 8, 16)) for _ in range(rank)]
    if large or rng.random() < 0.3:
        dims = [rng.choice((1, 2, 3)) for _ in dims[:3]]
        dims[rng.randrange(len(dims))] = rng.choice(_LONG)
    found: list[Argument] = []
    for i in range(rng.choice((1, 1, 2, 2, 3, 4))):
        shape = rng.choice((tuple(dims), tuple(dims), tuple(dims[-1:]), tuple(dims[:1]), tuple(dims[::-1])))
        data = rng.choice(("plain",) * 6 + ("ties", "constant", "positive", "positive"))
        found.append(Argument(f"x{i}", shape, "float32", data, rng.getrandbits(20)))
    return found


class _Noise:
    """Errors within ``size`` steps of a grid that holds what it is given; a step is ``least`` at least.

    They come from a grid of twice these steps that begins anywhere. So values that are equal, or nearly so, have one
    error, as rounding gives them: in a sum of many it does not cancel.
    """

    def __init__(self, seed: int, size: float, least: float) -> None:
        self._rng, self._size, self._least = np.random.default_rng(seed), size, least

    def __call__(self, x: NDArray, steps: float) -> NDArray:
        if x.dtype != np.float32 or not x.size:
            return x
        finite = x[np.isfinite(x)]
        if not finite.size:
            return x
        with np.errstate(all="ignore"):
            span = max(float(finite.max()), 0.0) - min(float(finite.min()), 0.0)
            step = 2 * self._size * max(span / steps, self._least)
            if not step:
                return x
            begin = self._rng.uniform(0, step)
            return np.asarray((np.floor((x - begin) / step) + 0.5) * step + begin).astype(x.dtype)

    def by_table(self, e: Equation) -> Callable[..., Any]:
        """``e`` as tables of int16 values give it: lines between 513 values, so steep functions are far off."""

        def run(x: NDArray, **params: Any) -> NDArray:
            y = e.op.eval(x, **params)
            greatest = np.abs(x, where=np.isfinite(x), out=np.zeros_like(x)).max(initial=0.0)
            if x.dtype != np.float32 or not greatest:
                return y
            step = greatest / 256 * self._rng.uniform(0.8, 1.25)
            bound = np.abs(y, where=np.isfinite(y), out=np.zeros_like(y)).max(initial=0.0)
            before = np.floor(x / step) * step
            left, right = (
                np.nan_to_num(e.op.eval(at.astype(x.dtype), **params), posinf=bound, neginf=-bound).clip(-bound, bound)
                for at in (before, before + step)
            )
            line = left + (right - left) * ((x - before) / step)
            return np.where(np.isfinite(y), line, y).astype(y.dtype)

        return run


def _noisy(fun: Callable[..., Any], args: Sequence[Any], policy: str, seed: int, size: float = 1.0) -> Results:
    """The results with errors of ``size`` steps on every value, by NumPy."""
    hoisted, consts = nxjax.make_jaxpr(fun)(*args).hoist_consts()
    fixed = _FIXES.search(str(hoisted)) is not None
    noise = _Noise(seed, size, _FIXED_STEP.get(policy, 0.0) if fixed else 0.0)
    of_values, of_weights = _STEPS[policy]
    given = [noise(np.asarray(x), min(of_values, of_weights)) for x in (*consts, *args)]
    token = perturbation.set(Perturbation(lambda x: noise(x, of_values)))
    instead = {e: noise.by_table(e) for e in hoisted.equations if policy == "int16x8" and e.op.name in _TABLES}
    try:
        return evaluate(hoisted, given, instead)
    finally:
        perturbation.reset(token)


def _divides(text: str) -> bool:
    """Whether a program divides by what is no number."""
    return not set(_DIVIDES.findall(text)) <= set(_NUMBER.findall(text))


def far_off(fun: Callable[..., Any], args: Sequence[Any], policy: str, got: Results) -> str:
    """Where ``got``, of quantized ``fun``, is farther from its float values than grids explain; empty: nowhere."""
    with quiet(), np.errstate(all="ignore"), nxjax.config.using(executor="reference"):
        clean = leaves(fun(*args))
        runs = [_noisy(fun, args, policy, k) for k in range(_RUNS)]
        wrong = _far(got, clean, runs, policy)
        if wrong and _divides(str(nxjax.make_jaxpr(fun)(*args))):
            return ""  # chips multiply by a reciprocal, whose grid has no room for small ones beside a large one
        if wrong:  # beside a pole, some few of many elements jump
            runs += [_noisy(fun, args, policy, k, (0.5, 1.0, 1.0, 2.0)[k % 4]) for k in range(_RUNS, 8 * _RUNS)]
            wrong = _far(got, clean, runs, policy)
    return wrong


def _far(got: Results, clean: Results, runs: Sequence[Results], policy: str) -> str:
    for i, (y, x, *noisy) in enumerate(zip(got, clean, *runs, strict=True)):
        if y.shape != x.shape or y.dtype != x.dtype:
            return f"wrong type: result {i} is {y.dtype}{list(y.shape)}, expected {x.dtype}{list(x.shape)}"
        if x.dtype != np.float32 or not x.size or not np.isfinite(np.array([x, *noisy])).all():
            continue  # what is whole, true or infinite jumps between one grid's steps
        noise = np.max([np.abs(n - x) for n in noisy], axis=0)
        span = float(max(x.max(), 0) - min(x.min(), 0))
        allowed = _OWN * noise + _MEAN * noise.mean() + 3 * span / _STEPS[policy][0] + 1e-4 * np.abs(x)
        # Beside a pole, where noise explains more than the range of all values, a result may be NaN, too.
        bad = ~(np.abs(y - x) <= allowed) & (allowed <= span)
        if bad.any():
            at = tuple(int(n) for n in np.unravel_index(int(np.argmax(bad)), bad.shape))
            return (
                f"wrong value: result {i}, {y.dtype}{list(y.shape)}, {int(bad.sum())} of {y.size} elements: "
                f"{list(at)} is {y[at]} in {policy}, expected {x[at]} within {allowed[at]:.3g}"
            )
    return ""


def _drawn(seed: int) -> tuple[GeneratedProgram, str, Way]:
    rng = random.Random(f"quantized {seed}")
    program = random_text(ROWS, rng.getrandbits(40), arguments=random_arguments)
    policy = rng.choice(("int8", "int8", "int16x8", "int16x8", "dynamic-int8", "int8-weights", "int4-weights"))
    closed = tuple(i for i in range(1, len(program.args)) if rng.random() < 0.4)
    executor = rng.choice((*executors(), *("cpu",) * 6))
    return program, policy, Way(executor, random_settings(rng, False), closed=closed, calls=2)


# What a policy, or a way to run, does not take.
_REFUSALS: Final = (
    "nothing in the function is quantized",
    "is not finite",
    "never computed",
    "no promise of the same",
    "the condition of a while loop computes products",
    "is another program than it was in calibration",
)


def failure(text: str, args: Sequence[Any], policy: str, way: Way, judged: bool = True) -> str:
    """What is wrong with a program that is quantized and then run in ``way``, or nothing."""
    given = arrays(args)
    fun = defined(text)
    try:
        with quiet(), nxjax.config.using(executor="reference"), warnings.catch_warnings():
            # Random functions may be poor in 8 bits, and their values nothing but zeros.
            warnings.filterwarnings("ignore", "quantize: ", UserWarning)
            weights = tuple(range(1, len(given))) if "weights" in policy else None
            q = quantize(fun, policy, calibrate=[tuple(given)], params=weights)
            found = [leaves(q(*given))]
        with quiet(), nxjax.config.using(**dict(way.settings), cache_dir=""):
            found += called(q, args, way)
    except Exception as error:
        refused = any(text in str(error) for text in _REFUSALS)
        return "" if refused else f"{type(error).__name__}: {error}"
    if _is_exact(q, given):
        for results in found[1:]:
            for i, (y, expected) in enumerate(zip(results, found[0], strict=True)):
                if y.tobytes() != expected.tobytes():
                    return (
                        f"other bits: result {i} on {way.executor}, {int((y != expected).sum())} of {y.size} elements"
                    )
        del found[1:]
    return next(filter(None, (far_off(fun, given, policy, results) for results in found)), "") if judged else ""


def _is_exact(q: Quantized, args: Sequence[Any]) -> bool:
    """Whether the executors may not differ in a bit: nothing is rounded but on grids."""
    floats = (*dtypes.FLOAT, *dtypes.COMPLEX)

    def exact(e: Equation) -> bool:
        held = list(e.programs())
        if held:
            return all(map(exact, (inner for p in held for inner in p.equations)))
        known = isinstance(e.op, (QuantizedOp, QuantizeWeight, DataMovement)) or e.op.name in _ROUNDED_ONCE
        return known or not any(v.type.dtype in floats for v in e.outputs)

    return all(map(exact, nxjax.make_jaxpr(q)(*args).equations))


def quantized(seed: int) -> str:
    """The report of the random program of ``seed``, quantized; empty if nothing is wrong."""
    try:
        program, policy, way = _drawn(seed)
    except (Unfit, StepRefused):
        return ""
    judged = not any(loop in program.text for loop in _LOOPS)
    wrong = failure(program.text, program.values(), policy, way, judged)
    if not wrong:
        return ""
    again = f"from nxjax.testing.quantized import quantized\nprint(quantized({seed}))"
    return "\n".join((again, *(f"# {line}" for line in (*wrong.splitlines(), *program.text.splitlines(), str(way)))))
