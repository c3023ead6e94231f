"""Random programs under random transforms, on every executor: all that keeps a function's values must keep them.

What fails is made smaller and printed as a text that does it again. Knows nothing of files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np

from nxjax.ops import elementary
from nxjax.testing.comparison import LawBroken, NDArray, assert_close, executors, numpy_of
from nxjax.testing.programs import RandomProgram, random_program
from nxjax.trace import dtypes
from nxjax.trace.array import wrap
from nxjax.trace.core import Array
from nxjax.trace.text import parse_program, to_text
from nxjax.transforms.checkpoint import checkpoint
from nxjax.transforms.control.cond import cond
from nxjax.transforms.control.scan import scan
from nxjax.transforms.grad import grad, vjp
from nxjax.transforms.jit import jit
from nxjax.transforms.jvp import jvp
from nxjax.transforms.linearize import linearize
from nxjax.transforms.shapes import make_jaxpr
from nxjax.transforms.vmap import vmap

Function = Callable[..., Any]
_SMALLER: Final = 80  # tries


def _values(xs: Sequence[Any]) -> list[Array]:
    return [wrap(x) if isinstance(x, np.ndarray) else x for x in xs]


def _float(x: Any) -> bool:
    return x.dtype in dtypes.FLOAT


def _of_floats(f: Function, xs: Sequence[Any]) -> tuple[Function, list[Any]]:
    """``f`` of its floating point arguments alone."""
    places = [i for i, x in enumerate(xs) if _float(x)]

    def of(*floats: Any) -> Any:
        full = list(xs)
        for i, x in zip(places, floats, strict=True):
            full[i] = x
        return f(*full)

    return of, [xs[i] for i in places]


def _batched(f: Function, *xs: Any) -> Any:
    return vmap(f)(*(_rows(x) for x in xs))[1]


def _rows(x: Any) -> Any:
    from nxjax.numpy.joining import stack

    return stack([-x, x])


def _pushed(f: Function, *xs: Any) -> Any:
    of, floats = _of_floats(f, xs)
    return jvp(of, tuple(floats), tuple(floats))[0]


def _linear(f: Function, *xs: Any) -> Any:
    of, floats = _of_floats(f, xs)
    return linearize(of, *floats)[0]


def _pulled(f: Function, *xs: Any) -> Any:
    of, floats = _of_floats(f, xs)
    return vjp(of, *floats)[0]


def _scanned(f: Function, *xs: Any) -> Any:
    return scan(lambda c, _: (c, f(*c)), tuple(xs), None, length=2)[1][1]


def _chosen(f: Function, *xs: Any) -> Any:
    first = xs[0].reshape(-1)[0]
    return cond(first == first, f, lambda *ys: f(*ys) * f(*ys) if _float(f(*ys)) else f(*ys), *xs)


def _printed(f: Function, *xs: Any) -> Any:
    program = make_jaxpr(f)(*xs)
    again = parse_program(to_text(program), program.values)
    if to_text(again) != to_text(program):
        raise LawBroken("print, parse, print gives another text")
    return again(*xs)[0]


# Each gives a function's own values in another way.
WAYS: Final[dict[str, Function]] = {
    "jit": lambda f, *xs: jit(f)(*xs),
    "vmap": _batched,
    "jvp": _pushed,
    "linearize": _linear,
    "vjp": _pulled,
    "checkpoint": lambda f, *xs: checkpoint(f)(*xs),
    "scan": _scanned,
    "cond": _chosen,
}
# Only of whole arrays, so only outermost.
_LAST: Final[dict[str, Function]] = {"print and parse": _printed}


def through(f: Function, ways: Sequence[str]) -> Function:
    """``f`` as it is computed through ``ways``, the last of them outermost; ``"jit on xla"`` names an executor.

    >>> import nxjax as nx
    >>> float(through(lambda x: x * 2, ["vmap", "jit on cpu"])(nx.ones(())))
    2.0
    """
    for way in ways:
        if way.startswith("jit on "):
            f = jit(f, device=way.removeprefix("jit on "))
        elif way == "grad":
            f = _slope(f)
        else:
            f = partial({**WAYS, **_LAST}[way], f)
    return f


def _slope(f: Function) -> Function:
    def slope(*xs: Any) -> Any:
        of, floats = _of_floats(f, xs)
        return grad(lambda *ys: of(*ys).sum())(*floats)

    return slope


def chosen_ways(choose: Callable[[int], int], differentiable: bool) -> list[str]:
    """One to four ways; the last may name an executor."""
    names = [*WAYS, *(["grad"] if differentiable else [])]
    ways = [names[choose(len(names))] for _ in range(1 + choose(3))]
    # A second derivative of a long program is worth little more than a first, and takes its time.
    first = ways.index("grad") if "grad" in ways else len(ways)
    ways = ways[: first + 1] + [w for w in ways[first + 1 :] if w != "grad"]
    last = [f"jit on {name}" for name in executors()] + list(_LAST)
    return [*ways, last[choose(len(last))]] if choose(2) else ways


def compare(program: Function, args: Sequence[NDArray], ways: Sequence[str]) -> None:
    """Raises where the ``ways`` change a value, a shape or a dtype, or where one of them fails.

    Raises:
        LawBroken: the values differ.
    """
    # What grad is compared with is grad alone, and that with what jvp gives.
    plain = through(program, [w for w in ways if w == "grad"])
    values = _values(args)
    with np.errstate(all="ignore"):
        expected = plain(*values)
        got = through(program, ways)(*values)
        wide = expected.dtype in dtypes.FLOAT and expected.dtype.itemsize == 8
        size = max(1.0, float(np.max(np.abs(numpy_of(expected)), initial=0.0))) if _float(expected) else 1.0
        rtol = (1e-8 if wide else 2e-4) if _float(expected) else 0
        assert_close(" of ".join(reversed(ways)), "program", got, expected, rtol, rtol * size)
        if "grad" in ways:
            of, floats = _of_floats(program, values)
            t = np.ones_like(np.asarray(floats[0]))
            others = [wrap(np.zeros_like(np.asarray(x))) for x in floats[1:]]
            slope = jvp(lambda *ys: of(*ys).sum(), tuple(floats), (wrap(t), *others))[1]
            total = np.sum(numpy_of(expected))
            assert_close("sum of grad = jvp along ones", "program", np.asarray(total), slope, rtol, rtol * size * 10)


def failure(program: Function, args: Sequence[NDArray], ways: Sequence[str]) -> str:
    """What is wrong, or nothing."""
    try:
        compare(program, args, ways)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def one(seed: int) -> str:
    """One random program through random ways; gives a report if something is wrong, otherwise an empty text."""
    rng = np.random.default_rng(seed)
    choose = lambda n: int(rng.integers(n))
    smooth = bool(choose(2))
    program = random_program(rng, 1 + choose(12), differentiable=smooth)
    # `grad` is of floats; random programs may leave them.
    ways = chosen_ways(choose, smooth and _float(program(*program.args)))
    if not failure(program, program.args, ways):
        return ""
    program, ways = smaller(program, ways)
    return report(program, program.args, ways)


def smaller(program: RandomProgram, ways: Sequence[str]) -> tuple[RandomProgram, list[str]]:
    """A program with fewer steps, and fewer ways, that still fail."""
    best, kept = program, list(ways)
    tries = 0
    found = True
    while found and tries < _SMALLER:
        found = False
        for candidate, fewer in [*((p, kept) for p in _shorter(best)), *((best, w) for w in _without(kept))]:
            tries += 1
            if _runs(candidate) and failure(candidate, candidate.args, fewer):
                best, kept, found = candidate, fewer, True
                break
    return best, kept


def _without(ways: list[str]) -> list[list[str]]:
    return [ways[:i] + ways[i + 1 :] for i in range(len(ways))] if len(ways) > 1 else []


def _runs(program: RandomProgram) -> bool:
    try:
        with np.errstate(all="ignore"):
            return isinstance(program(*program.args), Array)
    except Exception:  # a step that does not fit any more
        return False


def _shorter(program: RandomProgram) -> list[RandomProgram]:
    """Without the last steps, or with one step's result replaced by its first operand."""
    first, steps = len(program.args), program.steps
    found = [replace(program, steps=steps[:k]) for k in range(1, len(steps))]
    for k, (_, _, operands) in enumerate(steps):
        moved = lambda i, k=k, to=operands[0]: to if i == first + k else i - (i > first + k)
        rest = [(name, f, tuple(map(moved, places))) for name, f, places in steps[k + 1 :]]
        found.append(replace(program, steps=(*steps[:k], *rest)))
    return [p for p in found if p.steps]


def report(program: Function, args: Sequence[NDArray], ways: Sequence[str]) -> str:
    """A Python text that fails in the same way."""
    traced = make_jaxpr(program)(*_values(args))
    given = ", ".join(f"np.array({a.tolist()!r}, np.{a.dtype.name})" for a in args)
    return "\n".join(
        (
            "import numpy as np, nxjax as nx",
            "from nxjax.testing.fuzz_programs import compare",
            f'p = nx.parse_program("""{to_text(traced)}""")',
            f"args = [{given}]",
            f"compare(lambda *xs: p(*xs)[0], args, {list(ways)!r})",
            *(f"# {line}" for line in failure(program, args, ways).splitlines()[:12]),
        )
    )


def quantized(seed: int) -> str:
    """A random smooth network, quantized: compiled and batched it gives what it gives."""
    from nxjax.quant.function import quantize

    rng = np.random.default_rng(seed)
    weights = [wrap(rng.normal(size=s).astype(np.float32)) for s in ((6, 8), (8, 5), (5, 3))]
    between = (elementary.tanh, elementary.logistic, lambda y: y)
    picks = [between[int(rng.integers(len(between)))] for _ in weights]

    def net(params: Any, x: Any) -> Any:
        for w, f in zip(params, picks, strict=True):
            x = f(x @ w)
        return x

    x = wrap(rng.normal(size=(4, 6)).astype(np.float32))
    q = quantize(net, ("int8", "int16x8")[int(rng.integers(2))], calibrate=[(weights, x)])
    expected = q(weights, x)
    names = [f"jit on {n}" for n in executors()]
    for way in (names[int(rng.integers(len(names)))], "checkpoint", "vjp"):
        try:
            got = through(lambda v: q(weights, v), [way])(x)
            assert_close(f"quantized, {way} = eager", "network", got, expected, 0, 0)
        except Exception as error:
            again = f"import nxjax as nx\nprint(nx.testing.fuzz_programs.quantized({seed}))"
            return f"{again}\n# {type(error).__name__}: {str(error)[:400]}"
    return ""
