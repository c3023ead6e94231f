"""What a region takes on a unit, measured: a few runs on made-up inputs, guarded against units that fail or hang."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

import numpy as np

from nxjax.backends.hybrid.blame import line
from nxjax.backends.hybrid.unit import RegionRefused, Step, Unit
from nxjax.config import with_current_settings
from nxjax.trace import dtypes
from nxjax.trace.array import DeviceArray, wrap
from nxjax.trace.program import Program

T = TypeVar("T")
# Times of a region that plans rely on; fewer are measured anew.
ENOUGH: Final = 3
# Seconds that measuring one region on one unit may take, one run aside.
_MEASURING: Final = 0.02


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


# What goes on for as long as its data say.
_ENDLESS: Final = frozenset(("while", "custom_linear_solve", "custom_root"))


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
    args = examples(program)
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


def examples(program: Program) -> list[DeviceArray]:
    """Made-up inputs of a program."""
    rng = np.random.default_rng(0)
    draw = lambda t: rng.uniform(0.1, 1, t.shape) if t.dtype in dtypes.FLOAT else np.zeros(t.shape)
    return [wrap(draw(v.type).astype(v.type.dtype)) for v in program.inputs]
