"""Random programs, run in random ways, and judged: one of them by its seed, and the text that does a failure again.

Knows nothing of files, nor of processes.
"""

from __future__ import annotations

import faulthandler
import math
import os
import random
import signal
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import ml_dtypes
import numpy as np

from nxjax.config import config
from nxjax.errors import LoweringError, NxError
from nxjax.testing.generator import random_text
from nxjax.testing.inputs import Argument, values
from nxjax.testing.judge import Bounds, Results, widened
from nxjax.testing.productions import ROWS
from nxjax.testing.smaller import smaller
from nxjax.testing.steps import GeneratedFunction, GeneratedProgram, StepRefused
from nxjax.testing.ways import Broken, Way, elsewhere, has_jax, in_64_bits, op_by_op, random_ways, run
from nxjax.trace import dtypes

_DERIVATIVES: Final = frozenset(
    ("grad", "jvp", "vjp", "linearize", "second derivative", "higher derivative", "vmap of grad")  #
).union(("custom_jvp", "custom_vjp", "tree", "model"))
# With lines that have no derivatives, or only backwards, some of them in JAX neither.
_UNDIFFERENTIABLE: Final = frozenset(
    ("while_loop", "fori_loop", "special function", "linalg", "custom_vjp", "own rule", "solve")
)
# What differences of values know nothing of.
_ONE_SIDED: Final = frozenset(("stop_gradient", "own rule"))

# Elements of an argument that is written out.
_LITERAL: Final = 200
# Seconds that a run takes at most that may have no end.
_ALARM: Final = 20


@dataclass(frozen=True)
class ProgramOutcome:
    """What became of one random program.

    Attributes:
        failure: Python that does it again, with what is wrong as comments; empty: nothing is.
        features: what was in it, and how it was run.
    """

    failure: str = ""
    features: frozenset[str] = frozenset()


def failure(
    text: str,
    args: Sequence[Any],
    way: Way,
    rounds: Mapping[str, float] | None = None,
    x64: bool = False,
    once: bool = False,
    *,
    bounds: Bounds | None = None,
    sure: bool = True,
) -> str:
    """What is wrong with a program that is run in one way, or nothing.

    Args:
        text: defines ``f``.
        args: NumPy arrays and Python numbers.
        rounds, once: see `nxjax.testing.steps.GeneratedProgram`.
        bounds: what it must give, if that is known.
        sure: what is wrong is judged again by wider bounds before it is said.
    """
    try:
        bounds = bounds or _bounds(text, args, rounds or {}, x64, once)
        if way.executor in ("differences", "slopes"):
            with config.using(enable_x64=x64):
                return bounds.wrong_derivatives() if way.executor == "differences" else bounds.wrong_slopes()
        found = run(text, args, way, x64)
        for k, results in enumerate(found):
            if any(_bits(results) == _bits(before) for before in found[:k]):
                continue
            bits = way.executor in ("cpu", "eager")  # others may keep more digits, or flush denormals
            wrong = bounds.wrong(results, bits=bits)
            if wrong and sure and not wrong.startswith("wrong type"):
                bounds.widen(several=way.executor in ("xla", "jax"))
                wrong = bounds.wrong(results, bits=bits)
                if wrong and way.executor == "jax" and not bounds.wrong(op_by_op(text, args, x64)):
                    wrong = ""  # XLA's compiler is at odds with itself, as where it updates what it still reads
                if wrong and way.executor in ("jax", "xla") and not bounds.exact:
                    wrong = _elsewhere(text, args, way.executor, bounds, results)
            if k and way.executor == "cpu":
                wrong = wrong or "other bits"  # which calls may not have that are all right otherwise
            if wrong:
                return f"{wrong}\n(call {k + 1} of {len(found)})"
        for other in elsewhere(way) if not _reads_bits(text) else ():  # a NaN has any sign
            if _bits(run(text, args, other, x64)[0]) != _bits(found[0]):
                return f"other bits: {way.settings} and {other.settings}"
    except Broken as error:
        return str(error)
    except LoweringError as error:
        if "no promise" in str(error) and way.is_reproducible:
            return ""
        return f"{type(error).__name__}: {error}"
    except Exception as error:
        # What JAX has not for these dtypes, sizes or processors is not compared; what nxjax lacks is told in `attempt`.
        return "" if way.executor == "jax" else f"{type(error).__name__}: {error}"
    return ""


def _elsewhere(text: str, args: Sequence[Any], executor: str, bounds: Bounds, results: Results) -> str:
    """What is wrong with JAX's or XLA's ``results``, but for their own rounding errors."""
    # What they make of NaN is their own, too: a derivative may be 0, and XLA's `exp` of a chosen NaN any number. Their
    # convolutions multiply what lies around an image and in its holes, which is 0, by NaN and infinity; their special
    # functions have NaN where SciPy's have limits.
    holes = "conv" in text.replace("convert", "") or "scipy.special" in text
    known = lambda ys: [
        np.where((w != w) | (holes & (y != y)), w, y).astype(y.dtype) for w, y in zip(bounds.working, ys, strict=True)
    ]
    # XLA rounds where it likes, and some of its functions are right only beside 1; but half the digits are right.
    if executor == "xla" and (wrong := bounds.wrong(known(results), digits=0.5)):
        return wrong
    try:
        again = in_64_bits(executor, text, args, results)
    except NxError:  # an op takes no floats of 64 bits beside those that others make of integers
        return ""
    return bounds.wrong(known(again))


def _bits(results: Sequence[Any]) -> list[bytes]:
    # NaN is NaN, whatever its sign and payload.
    return [np.where(x == x, x, np.zeros((), x.dtype)).tobytes() + np.asarray(x == x).tobytes() for x in results]


def _bounds(text: str, args: Sequence[Any], rounds: Mapping[str, float], x64: bool, once: bool) -> Bounds:
    with config.using(enable_x64=x64):
        return Bounds(text, args, rounds, once)


def check(
    text: str,
    args: Sequence[Any],
    way: Way,
    rounds: Mapping[str, float] | None = None,
    x64: bool = False,
    once: bool = False,
) -> None:
    """Raises if a program, run in one way, gives what it must not give.

    >>> check("def f(x): return x + 1", [np.ones(2, np.int32)], Way("cpu"))
    """
    wrong = failure(text, args, way, rounds, x64, once)
    if wrong:
        raise Broken(wrong)


def _drawn(seed: int, others: float = 1.0) -> tuple[GeneratedProgram, list[Way]]:
    """The random program of ``seed``, and the ways to run it."""
    rng = random.Random(f"ways of {seed}")
    program = random_text(ROWS, seed, _taken_by_jax)
    args = program.values()
    smooth = not program.rough and not program.features & _UNDIFFERENTIABLE
    ways = random_ways(rng, args, program.x64, others, differentiable=smooth)
    if "int4" in program.text or any("int4" in a.dtype for a in program.args):
        ways = [way for way in ways if way.executor != "jax"]  # which shifts unsigned integers of 4 bits as signed ones
    if "special.bernoulli" in program.text:
        ways = [way for way in ways if way.executor != "jax"]  # whose numbers have seven digits in 64 bits, too
    if any(map(_has_denormals, args)):
        ways = [way for way in ways if way.executor not in ("jax", "xla")]  # for which they are 0
    jumps = _reads_bits(program.text)  # a number's bits are others beside it
    if not program.features & _ONE_SIDED and not jumps and _moderate(program.args):
        if program.features & _DERIVATIVES and rng.random() < 0.75:
            ways.append(Way("differences"))
        if program.rounds and smooth and rng.random() < 0.8:
            ways.append(Way("slopes"))
    return program, ways


def _reads_bits(text: str) -> bool:
    """Whether a program reads numbers as bits."""
    return "bitcast" in text or ".view(" in text


def _has_denormals(x: Any) -> bool:
    """Whether an element is denormal, or would be with 32 bits."""
    if not isinstance(x, np.ndarray) or x.dtype not in (*dtypes.FLOAT, *dtypes.COMPLEX):
        return False
    least = max(float(ml_dtypes.finfo(t).smallest_normal) for t in (x.dtype, np.float32))
    with np.errstate(all="ignore"):
        return bool(((x != 0) & (np.abs(widened(x)) < least)).any())


def attempt(seed: int, begun: Callable[[str | None], None] | None = None, others: float = 1.0) -> ProgramOutcome:
    """The random program of ``seed``, run in the ways of ``seed``.

    Args:
        begun: is told the text before it runs, in case that the process does not come back; None before JAX runs it,
            whose compiler may end the process.
        others: how much oftener than usual executors other than the CPU compiler run it.
    """
    try:
        program, ways = _drawn(seed, others)
    except StepRefused as error:
        text, given = error.args
        refused = GeneratedProgram(given, GeneratedFunction(tuple(a.name for a in given), (), ()), text=text)
        return ProgramOutcome(report(refused, Way("eager"), f"raises here and not in JAX: {error.__cause__!r}", seed))
    args = program.values()
    features = set(program.features) | {_dtype(a) for a in args} | ({"x64"} if program.x64 else set())
    if begun:
        begun(report(program, ways[0], ""))
    try:
        bounds = _bounds(program.text, args, program.rounds, program.x64, program.once)
    except Exception as error:
        return ProgramOutcome(report(program, ways[0], f"the reference raised {type(error).__name__}: {error}"))
    for way in ways:
        features |= set(way.features)
        if begun and way is not ways[0]:
            begun(None if way.executor == "jax" else report(program, way, ""))
        wrong = failure(program.text, args, way, program.rounds, program.x64, program.once, bounds=bounds)
        if wrong:
            kind = kind_of(wrong)
            again = lambda p, w, kind=kind: kind_of(_failure(p, w, sure=False)) == kind
            little = smaller(ROWS, program, way, again)
            least = next((x for x in (little, (program, way)) if _failure(*x)), (program, way))
            return ProgramOutcome(report(*least, _failure(*least) or wrong, seed), frozenset(features))
    return ProgramOutcome("", frozenset(features))


def ended(seed: int, seconds: float = 60.0) -> str:
    """The report of the program of ``seed``, smaller, if it ends its process or has no end; empty if it doesn't."""
    if not hasattr(os, "fork"):
        return ""
    program, ways = _drawn(seed)
    for way in ways:
        # XLA's threads stay behind where a process is forked: what waits for them has no end.
        if way.executor in ("xla", "jax") and "jaxlib" in sys.modules:
            continue
        if _ends(program, way):
            return report(*smaller(ROWS, program, way, _ends, seconds), "ends the process", seed)
    return ""


def _ends(program: GeneratedProgram, way: Way) -> bool:
    """Whether a process that runs a program is ended by a signal, that of a clock included."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # there may be threads, which the child does not have
        child = os.fork()
    if not child:
        faulthandler.disable()
        signal.alarm(_ALARM)
        try:
            _failure(program, way, sure=False)
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def _taken_by_jax(text: str, args: Sequence[Argument], x64: bool) -> bool:
    """Whether JAX, where it is installed, runs what nxjax refuses."""
    if not has_jax() or "int4" in text:  # JAX wraps numbers that integers of 4 bits can't hold, and no others
        return False
    try:
        run(text, [values(a) for a in args], Way("jax"), x64)
    except Exception:
        return False
    return True


def _failure(program: GeneratedProgram, way: Way, sure: bool = True) -> str:
    return failure(program.text, program.values(), way, program.rounds, program.x64, program.once, sure=sure)


def one(seed: int) -> str:
    """The report of the random program of ``seed``; empty if nothing is wrong."""
    return attempt(seed).failure


def kind_of(wrong: str) -> str:
    """The word that a failure begins with: those of one kind may be one failure.

    >>> kind_of("wrong value: result 0")
    'wrong value'
    """
    return wrong.split(":")[0].split("\n")[0]


def _moderate(args: Sequence[Argument]) -> bool:
    """Whether differences of values mean something at these arguments: not at ties, as among many, nor far from one."""
    return sum(math.prod(a.shape) for a in args) < 5000 and all(
        a.data in ("plain", "points", "python") or not a.dtype.startswith(("float", "bfloat", "complex")) for a in args
    )


def _dtype(x: Any) -> str:
    return x.dtype.name if isinstance(x, np.ndarray) else "Python number"


def report(program: GeneratedProgram, way: Way, wrong: str, seed: int | None = None) -> str:
    """A Python text that fails in the same way."""
    rounds = {n: float(f"{v:.3g}") for n, v in program.rounds.items()}
    more = (
        (f", {rounds}" if rounds else "")
        + (", x64=True" if program.x64 else "")
        + (", once=True" if program.once else "")
    )
    args = "".join(f"    {_literal(a)},  # {a.name}\n" for a in program.args)
    comments = [*([f"seed {seed}"] if seed is not None else []), *wrong.splitlines()[:14]]
    return "\n".join(
        (
            "import numpy as np",
            "from numpy import inf, nan",
            "from nxjax.testing.fuzz_programs import check",
            *(["from nxjax.testing.inputs import Argument, values"] if "values(" in args else []),
            "from nxjax.testing.ways import Way",
            f"text = '''\n{program.text}'''",
            f"args = [\n{args}]",
            f"check(text, args, {_shown(way)}{more})",
            *(f"# {line}" for line in comments),
        )
    )


def _shown(way: Way) -> str:
    plain = Way()
    parts = [f"{n}={v!r}" for n, v in vars(way).items() if v != getattr(plain, n)]
    return f"Way({', '.join(parts)})"


def _literal(a: Argument) -> str:
    """An argument as Python writes it; a large one as what makes it."""
    x = values(a)
    if isinstance(x, complex):
        return f"complex({x.real!r}, {x.imag!r})"
    if not isinstance(x, np.ndarray):
        return repr(x)
    if x.size > _LITERAL:
        return f"values({a!r})"
    if x.dtype.kind == "c":  # Python's text of a complex number loses the signs of zeros
        parts = x.reshape(-1).view(x.real.dtype)
        return f"np.array({parts.tolist()!r}, {parts.dtype.name!r}).view({x.dtype.name!r}).reshape({x.shape})"
    if x.dtype.isbuiltin == 1:
        return f"np.array({x.tolist()!r}, {x.dtype.name!r}).reshape({x.shape})"
    return f"np.array({x.astype(np.float64).tolist()!r}).astype({x.dtype.name!r}).reshape({x.shape})"
