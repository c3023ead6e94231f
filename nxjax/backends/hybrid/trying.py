"""What a region takes on this machine and whether it computes what it means: tried on made-up inputs, and kept.

Times are of a region's form (its ops and types, not the values of its weights), a few per region and unit, as text in
the cache folder. Bits are compared of regions of integers on units that are called exact; of others there is no one
right answer. Knows no plan.
"""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeVar, final

import numpy as np

from nxjax.backends import cache, registry
from nxjax.backends.hybrid.jobs import error_line
from nxjax.backends.hybrid.unit import RegionRefused, Step, Unit
from nxjax.config import config, with_current_settings
from nxjax.errors import Shown
from nxjax.lower.macs import macs
from nxjax.ops.base import NDArray
from nxjax.ops.quant_grid import Grid
from nxjax.trace import dtypes
from nxjax.trace.array import wrap
from nxjax.trace.evaluate import evaluate
from nxjax.trace.program import Equation, Program

# Times that are kept per region and unit; the oldest go.
KEPT: Final = 33
_FORMAT: Final = "nxjax hybrid history 1"


@lru_cache(1)
def machine() -> str:
    """What tells this machine from others whose cache folder it may share: its processor and how many there are."""
    name = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), name)
    except OSError:
        pass
    return f"{platform.system()} {platform.machine()} {name} x{os.cpu_count()}"


def form(program: Program) -> str:
    """What a region is apart from the values of its consts: the name that its times are kept under."""
    return program.hoist_consts()[0].fingerprint


@final
class History(Shown):
    """Measured times by region and unit. The median is used, so one slow run changes little.

    Args:
        kept: whether times are read from and written to the cache folder.

    >>> history = History(kept=False)
    >>> for seconds in (1.0, 9.0, 1.5):
    ...     history.add("region", "npu", seconds)
    >>> history.seconds("region", "npu"), history.count("region", "npu"), history.seconds("region", "cpu")
    (1.5, 3, None)
    """

    def __init__(self, *, kept: bool = True) -> None:
        self._kept = kept
        self._times: dict[tuple[str, str], deque[float]] = {}
        self._counts: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()

    def add(self, region: str, unit: str, seconds: float) -> None:
        """Add a time. It is saved after each of the first four of a process, then less and less often."""
        if not 0 <= seconds < math.inf:
            return
        with self._lock:
            times = self._of(region, unit)
            times.append(seconds)
            count = self._counts[region, unit] = self._counts[region, unit] + 1
            data = json.dumps({"format": _FORMAT, "unit": unit, "times": list(times)})
        if self._kept and (count <= 4 or not count & (count - 1)):
            cache.store(_key(region, unit), data.encode())

    def seconds(self, region: str, unit: str) -> float | None:
        """The median of the measured times, or None."""
        with self._lock:
            times = self._of(region, unit)
            return statistics.median(times) if times else None

    def count(self, region: str, unit: str) -> int:
        """The number of known times, at most `KEPT`."""
        with self._lock:
            return len(self._of(region, unit))

    def forget(self, region: str, unit: str) -> None:
        """Delete the times, here and in the cache folder."""
        with self._lock:
            self._times[region, unit] = deque(maxlen=KEPT)
            self._counts[region, unit] = 0
        if self._kept:
            cache.discard(_key(region, unit))

    def _of(self, region: str, unit: str) -> deque[float]:
        found = self._times.get((region, unit))
        if found is None:
            found = self._times[region, unit] = deque(_loaded(region, unit) if self._kept else (), maxlen=KEPT)
            self._counts[region, unit] = 0
        return found


def _key(region: str, unit: str) -> str:
    return cache.key_of("hybrid history", machine(), config.cpu_isa or "", unit, region)


def _loaded(region: str, unit: str) -> list[float]:
    """What other processes have left; nothing where it cannot be read."""
    data = cache.load(_key(region, unit))
    try:
        found = json.loads(data) if data is not None else {}
        times = found["times"] if found.get("format") == _FORMAT and found.get("unit") == unit else []
        return [float(t) for t in times if 0 <= float(t) < math.inf]
    except (ValueError, TypeError, AttributeError, KeyError, OverflowError):
        return []


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
        raise RegionRefused(f"it failed when it was made ready: {error_line(wrong[0])}") from wrong[0]
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


# What computes on integers, or moves and chooses values, so that every exact unit has the same bits.
_EXACT_MOVES: Final = frozenset(
    (
        "abs", "argmax", "argmin", "broadcast_in_dim", "clamp", "concatenate", "copy", "dynamic_slice",
        "dynamic_update_slice", "eq", "gather", "ge", "gt", "iota", "le", "lt", "max", "min",
        "name", "ne", "neg", "pad", "quantize_dequantize", "quantize_weight", "reduce_max", "reduce_min",
        "requantize", "reshape", "rev", "select_n", "slice", "sort", "split", "stop_gradient",
        "top_k", "transpose",
    )
)  # fmt: skip


def is_exact(e: Equation) -> bool:
    """Whether an equation has one right answer, bit for bit: integers, grids, or values that only move.

    >>> p = nx.make_jaxpr(lambda i, x: (i * 2, nx.max(x), x * 2))(1, nx.ones(3))
    >>> [(e.op.name, is_exact(e)) for e in p.equations if e.op.name != "broadcast_in_dim"]
    [('mul', True), ('reduce_max', True), ('mul', False)]
    """
    name = e.op.name
    if name in _EXACT_MOVES or any(isinstance(v, Grid) for v in e.params.values()):
        return True
    types = [a.type.dtype for a in (*e.inputs, *e.outputs)]
    return not e.effect and all(d in dtypes.INTEGER or d == dtypes.bool_ for d in types)


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
        wanted, by = [np.asarray(y) for y in evaluate(program, args)], "the integer reference"
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
