"""A region run on made-up inputs before it is used: how long it takes, and whether it computes what it means.

Bits are compared of regions of integers on units that are called exact; of others there is no one right answer.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import numpy as np

from nxjax.backends import registry
from nxjax.backends.hybrid.blame import line
from nxjax.backends.hybrid.capability import is_exact, meaning
from nxjax.backends.hybrid.unit import RegionRefused, Step, Unit
from nxjax.config import with_current_settings
from nxjax.lower.macs import macs
from nxjax.ops.base import NDArray
from nxjax.trace import dtypes
from nxjax.trace.array import wrap
from nxjax.trace.program import Program

T = TypeVar("T")
# Times of a region that plans rely on; fewer are measured anew.
ENOUGH: Final = 3
# Seconds that measuring one region on one unit may take, one run aside.
_MEASURING: Final = 0.02
# Regions of more multiply-accumulates than NumPy does in a moment are compared with what the host's executor gives.
BY_NUMPY: Final = 20_000_000
NOT_INTEGERS: Final = "not compared with a reference: its operations are not all integers"
# What goes on for as long as its data say.
_ENDLESS: Final = frozenset(("while", "custom_linear_solve", "custom_root"))


def guarded(unit: Unit, do: Callable[[], T], seconds: float | None = None) -> T:
    """What ``do`` gives. A unit that fails, or is silent for so many seconds, refuses the region and not the plan.

    Raises:
        RegionRefused: with the unit's own words.
    """
    if unit.host:
        return do()
    found: list[T] = []
    wrong: list[BaseException] = []

    def run() -> None:
        try:
            found.append(do())
        except BaseException as error:
            wrong.append(error)

    if seconds is None:
        run()
    else:
        thread = threading.Thread(target=with_current_settings(run), name=f"nxjax-measure-{unit.name}", daemon=True)
        thread.start()
        thread.join(seconds)
        if thread.is_alive():
            if unit.interrupt is not None:
                unit.interrupt()
            raise RegionRefused(f"it did not answer within {seconds:g} s when it was measured")
    if wrong:
        if isinstance(wrong[0], (RegionRefused, KeyboardInterrupt, SystemExit)):
            raise wrong[0]
        raise RegionRefused(f"it failed when it was made ready: {line(wrong[0])}") from wrong[0]
    return found[0]


def sample(program: Program) -> list[NDArray]:
    """Random arguments, the same ones each time: narrow integers over all of their range."""
    rng = np.random.default_rng(0)

    def one(shape: tuple[int, ...], dtype: Any) -> NDArray:
        if dtype in dtypes.FLOAT:
            return rng.uniform(-4, 4, shape).astype(dtype)
        if dtype in (np.int8, np.uint8):
            info = np.iinfo(dtype)
            return rng.integers(info.min, info.max + 1, shape).astype(dtype)
        # Wider ones may be places in something.
        return rng.integers(0, 2 if dtype == dtypes.bool_ else 100, shape).astype(dtype)

    return [one(v.type.shape, v.type.dtype) for v in program.inputs]


# --- times ---


def measurable(program: Program) -> bool:
    """Whether a region may be run on made-up inputs: it has no effect, and no loop that data could keep going."""
    for e in program.equations:
        if e.effect or e.op.name in _ENDLESS:
            return False
        if not all(map(measurable, e.programs())):
            return False
    return True


def measure(step: Step, program: Program, seconds: float = _MEASURING) -> list[float]:
    """Times of a few runs on made-up inputs, the first of them not counted."""
    args = [wrap(x) for x in sample(program)]
    times: list[float] = []
    start = time.perf_counter()
    while len(times) < 1 + ENOUGH or time.perf_counter() - start < seconds:
        before = time.perf_counter()
        step(args)
        times.append(time.perf_counter() - before)
        if len(times) >= 64 or (len(times) > 1 and sum(times) > 50 * seconds):
            break
    # The rest of them by their median: a plan is not made from the best of luck.
    return [statistics.median(times[1:])] * ENOUGH


# --- bits ---


def small(program: Program) -> bool:
    return sum(map(macs, program.equations)) <= BY_NUMPY


def comparable(program: Program) -> bool:
    """Whether all that it computes has one right answer."""
    return all(map(is_exact, program.equations))


def compared(
    program: Program, run: Callable[[Sequence[NDArray]], Sequence[NDArray]], where: str
) -> tuple[str, list[NDArray], list[NDArray]]:
    """What the results of a region were compared with, in words; the arguments and the results.

    Raises:
        RegionRefused: a bit differs.
    """
    args = sample(program)
    if small(program):
        wanted, by = meaning(program, args), "the integer reference"
    else:
        hoisted, consts = program.hoist_consts()
        made = registry.host().compile(hoisted)
        wanted = [y.numpy() for y in made([*consts, *map(wrap, args)])]  # pyright: ignore[reportArgumentType]
        by = "the host's executor"
    got = list(run(args))
    if len(got) != len(wanted):
        raise RegionRefused(f"it gives {len(got)} results on {where}, where {len(wanted)} are due")
    for y, w in zip(got, wanted, strict=True):
        if y.shape != w.shape or y.dtype != w.dtype:
            raise RegionRefused(f"its results on {where} are {y.dtype}{list(y.shape)}, not {w.dtype}{list(w.shape)}")
        if y.tobytes() != w.tobytes():
            off = np.abs(y.astype(np.float64) - w.astype(np.float64)).max()
            raise RegionRefused(f"its results differ from {by} by up to {off:.3g} on {where}")
    return f"compared with {by} on random numbers, bit for bit", args, wanted
