"""`nx.tune`: other blocks, layouts, fusions and devices for one program, measured against the usual ones.

A step changes one choice; it stays where the program is faster for sure. What is kept has won once more against the
usual way at the end, so that a lucky measurement does not count.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, ParamSpec, TypeVar, final

import numpy as np

from nxjax.backends import cache, registry
from nxjax.backends.cpu.backend import CpuBackend
from nxjax.backends.cpu.native.runtime import runtime
from nxjax.backends.pairs import GAIN, Pair, measured
from nxjax.display import page
from nxjax.display.progress import bars
from nxjax.errors import NxError, ParameterError
from nxjax.kernels.cpu import isa
from nxjax.kernels.cpu.knobs import KNOBS
from nxjax.runtime import block_until_ready
from nxjax.trace import tree
from nxjax.trace.boundary import entry
from nxjax.trace.program import Program
from nxjax.transforms.jit import Jitted, jit

P = ParamSpec("P")
R = TypeVar("R")
FORMAT: Final = "tuned 1"
# Seconds of one comparison, at most, and its part of what is left.
_LONGEST: Final = 2.0
_SHARE: Final = 0.1
# What the last comparison, with the usual way, may take of the whole.
_LAST: Final = 0.15


@final
@dataclass(frozen=True)
class TuningAttempt:
    """One way that was tried.

    Attributes:
        choices: the CPU compiler's choices that were not the usual ones.
        device: where it ran.
        ratio: its time to that of the best way so far; nan where it was not measured.
        kept: whether it became the best.
        why: why it was not measured, or not kept.
    """

    choices: dict[str, int]
    device: str
    ratio: float
    kept: bool
    why: str = ""


@final
@dataclass(frozen=True)
class Tuned(Generic[P, R]):
    """A jitted function with the fastest choices found; call it like the function.

    Attributes:
        function: the jitted function. Its calls are as quick as any; those of this object take a little longer.
        choices: the choices that are not the usual ones; empty where the usual ones are best.
        device: where it runs.
        speedup: the usual way's time to this one's, measured at the end; 1 where the usual way is kept.
        attempts: what was tried, in order; empty where the result came from the cache.
        seconds: what it took.
        cached: whether it came from the cache.
        difference: the largest difference of a result to the usual way's, relative to the largest result.
    """

    function: Callable[P, R]
    choices: dict[str, int]
    device: str
    speedup: float
    attempts: tuple[TuningAttempt, ...] = ()
    seconds: float = 0.0
    cached: bool = False
    difference: float = 0.0
    name: str = field(default="function")

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __str__(self) -> str:
        how = "from the cache" if self.cached else f"{len(self.attempts)} ways tried in {self.seconds:.1f} s"
        if self.choices or self.device != "cpu":
            said = f"{self.speedup:.2f} times as fast as usual on {self.device}"
        else:
            said = "the usual way is the fastest"
        lines = [f"{self.name}: {said}; {how}"]
        lines += [f"  {n} = {v:,} (usual {KNOBS[n].default:,}): {KNOBS[n].what}" for n, v in self.choices.items()]
        if self.difference:
            lines.append(f"  results differ by up to {self.difference:.1e} of the largest")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        ways = [a for a in self.attempts if a.ratio == a.ratio]
        rows = [
            (
                ", ".join(f"{k}={v:,}" for k, v in a.choices.items()) or "usual",
                a.device,
                f"{a.ratio:.3f}",
                "kept" if a.kept else "",
            )
            for a in ways
        ]
        return page.page(
            page.text(str(self)), page.table(("choices", "device", "time to the best", ""), rows) if rows else ""
        )


@entry
def tune(
    fun: Callable[P, R],
    *,
    seconds: float = 30.0,
    exact: bool = True,
    devices: Sequence[str] | None = None,
    progress: bool | None = None,
    again: bool = False,
) -> Callable[P, Tuned[P, R]]:
    """A function of example arguments that returns ``fun`` with the fastest compiler choices found on this machine.

    It tries block sizes, layouts and fusions of the CPU compiler (if they change this program's machine code) and the
    other executors. Each is measured in turn with the best choice so far.

    Args:
        fun: a pure function, or a jitted one, whose static arguments stay static.
        seconds: time limit, including compilation. A measurement in progress is finished.
        exact: keep only choices whose results on these arguments are equal bit for bit. Other blocks sum floats in
            another order; ``exact=False`` allows them and reports the difference.
        devices: executors or platforms to try, such as ``("cpu", "xla", "vulkan")``; by default all for the CPU, and a
            GPU if there is one.
        progress: show a bar; by default in a terminal or notebook.
        again: measure even if the cache has the answer.

    Returns:
        ``tune(f)(*args)`` is a `Tuned`. The cache (``NXJAX_CACHE_DIR``) keeps the choices for this program and machine,
        so the next process reuses them.

    Raises:
        ParameterError: ``seconds`` is not positive, or a device is not available.

    >>> fast = nx.tune(lambda x: nx.nn.softmax(x @ x.T), seconds=0.2)(nx.numpy.ones((64, 64)))
    >>> fast(nx.numpy.ones((64, 64))).shape, fast.speedup >= 1
    ((64, 64), True)
    """
    if not seconds > 0:
        raise ParameterError("tune: seconds", got=seconds, expected="a positive number")
    jitted: Jitted[Any, Any] = fun if isinstance(fun, Jitted) else jit(fun)

    def run(*args: P.args, **kwargs: P.kwargs) -> Tuned[P, R]:
        return _Tuning(jitted, args, kwargs, seconds, exact).run(_places(devices), progress, again)

    return run


def _places(devices: Sequence[str] | None) -> list[str]:
    if devices is not None:
        for name in devices:
            found = registry.for_device(name)
            if not found.available()[0]:
                raise ParameterError(f"tune: {name!r} is not here", got=found.available()[1])
        return [d for d in dict.fromkeys(devices) if d != "cpu"]
    here = (b for b in map(registry.get, registry.names()) if b.platform in ("cpu", "gpu") and b.listed)
    return [b.name for b in here if b.name not in ("cpu", "reference") and b.available()[0]]


@final
class _Tuning:
    def __init__(
        self, jitted: Jitted[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any], seconds: float, exact: bool
    ) -> None:
        self.jitted = jitted
        self.args = args
        self.kwargs = kwargs
        self.exact = exact
        self.start = time.perf_counter()
        self.end = self.start + seconds
        self.seconds = seconds
        self.program: Program = jitted.trace(*args, **kwargs).program.hoist_consts()[0]
        self.usual = self._made(CpuBackend())
        self.attempts: list[TuningAttempt] = []
        self.wanted: list[Any] = []

    # --- ways ---

    def _made(self, place: Any, donate: bool = False) -> Jitted[Any, Any]:
        j = self.jitted
        arguments = j.arguments._replace(in_shardings=None)
        if not donate:
            arguments = arguments._replace(donate_argnums=(), donate_argnames=frozenset())
        device = place.device if isinstance(place, CpuBackend) else place
        return Jitted(arguments, device, j.inline)

    def _call(self, way: Jitted[Any, Any]) -> Callable[[], Any]:
        return lambda: block_until_ready(way(*self.args, **self.kwargs))

    def _tape(self, choices: dict[str, int]) -> str:
        """What a call would run: equal texts are equal ways."""
        backend = CpuBackend(choices)
        lowered = backend.lowered(self.program)
        keys = [k.kernel.key + str(getattr(k.kernel, "integers", "")) + f" {k.kernel.items}" for k in lowered.calls()]
        return "\n".join((*keys, str(lowered.arena)))

    def _difference(self, way: Jitted[Any, Any]) -> float:
        """The largest difference to the usual results, relative to the largest one; 0 for the same bits."""
        worst = 0.0
        for x, y in zip(self.wanted, _arrays(self._call(way)()), strict=True):
            if x.dtype != y.dtype or x.shape != y.shape:
                return float("inf")
            if x.tobytes() == y.tobytes():
                continue
            wide = np.complex128 if x.dtype.kind == "c" else np.float64
            a, b = x.astype(wide), y.astype(wide)
            if not np.array_equal(np.isfinite(a), np.isfinite(b)):
                return float("inf")
            far = np.abs(np.where(np.isfinite(a), a - b, 0))
            scale = float(np.max(np.abs(np.where(np.isfinite(a), a, 0)), initial=0.0))
            worst = max(worst, float(np.max(far, initial=0.0)) / max(scale, 1e-300), 1e-300)
        return worst

    # --- the search ---

    def run(self, places: list[str], progress: bool | None, again: bool) -> Tuned[Any, Any]:
        key = self._key(places)
        known = None if again else _loaded(key)
        name = getattr(self.jitted, "__name__", "function").replace("<lambda>", "lambda")
        if known is not None:
            choices, device = known["choices"], known["device"]
            way = self._made(CpuBackend(choices) if device == "cpu" else device, donate=True)
            return Tuned(way, choices, device, known["speedup"], cached=True, difference=known["difference"], name=name)
        self.wanted = _arrays(self._call(self.usual)())
        make_bar = bars(progress, "nx.tune", self.seconds > 1)
        bar = None if make_bar is None else make_bar(total=round(self.seconds), desc=f"tuning {name}", unit="s")
        try:
            choices, device, best = self._search(places, bar)
            speedup, choices, device = self._confirmed(choices, device, best)
        finally:
            if bar is not None:
                bar.close()
        way = self._made(CpuBackend(choices) if device == "cpu" else device, donate=True)
        difference = 0.0 if not choices and device == "cpu" else self._difference(best)
        made: dict[str, Any] = {"choices": choices, "device": device, "speedup": speedup, "difference": difference}
        cache.store(key, json.dumps(made).encode())
        spent = time.perf_counter() - self.start
        return Tuned(way, choices, device, speedup, tuple(self.attempts), spent, False, difference, name)

    def _search(self, places: list[str], bar: Any) -> tuple[dict[str, int], str, Jitted[Any, Any]]:
        choices: dict[str, int] = {}
        best, device = self.usual, "cpu"
        until = self.end - _LAST * self.seconds
        seen = {self._tape({})}
        for name, value in self._steps():
            if time.perf_counter() > until:
                break
            self._show(bar)
            new = {**choices, name: value}
            if value == KNOBS[name].default:
                del new[name]
            tape = self._tape(new)
            if tape in seen:
                continue
            seen.add(tape)
            way = self._made(CpuBackend(new))
            if self._better(best, way, new, "cpu", until):
                choices, best = new, way
        for place in places:
            if time.perf_counter() > until:
                break
            self._show(bar)
            way = self._made(place)
            if self._better(best, way, {}, place, until):
                choices, best, device = {}, way, place
        # The rest of the time is for those that seemed faster, but not for sure.
        for attempt in sorted(self.attempts, key=lambda a: a.ratio):
            if time.perf_counter() > until or device != "cpu" or not attempt.ratio < 1 - GAIN:
                break
            if not attempt.kept and attempt.device == "cpu" and attempt.choices != choices:
                self._show(bar)
                way = self._made(CpuBackend(attempt.choices))
                if self._better(best, way, attempt.choices, "cpu", until, 2 * _LONGEST):
                    choices, best = attempt.choices, way
        return choices, device, best

    def _steps(self) -> Iterator[tuple[str, int]]:
        """One choice after the other, twice: what was tried before others were settled may be worth another try."""
        for _ in range(2):
            for knob in KNOBS.values():
                yield from ((knob.name, v) for v in knob.options)

    def _better(
        self,
        best: Jitted[Any, Any],
        way: Jitted[Any, Any],
        choices: dict[str, int],
        device: str,
        until: float,
        longest: float = _LONGEST,
    ) -> bool:
        """Whether a way is faster than the best one for sure, and allowed; it is noted either way."""
        note = lambda ratio, kept, why="": self.attempts.append(TuningAttempt(choices, device, ratio, kept, why))
        try:
            difference = self._difference(way)
        except NxError as error:
            note(float("nan"), False, str(error).splitlines()[0])
            return False
        if difference and (self.exact or difference == float("inf")):
            note(float("nan"), False, f"results differ by {difference:.1e}")
            return False
        left = max(until - time.perf_counter(), 0.0)
        pair = measured(self._call(best), self._call(way), most=60, seconds=min(longest, max(_SHARE * left, 0.02)))
        note(pair.ratio, pair.faster, "" if pair.faster else "not faster")
        return pair.faster

    def _confirmed(
        self, choices: dict[str, int], device: str, best: Jitted[Any, Any]
    ) -> tuple[float, dict[str, int], str]:
        """The way that was found, if it wins against the usual one once more; else the usual one."""
        if best is self.usual:
            return 1.0, {}, "cpu"
        pair: Pair = measured(
            self._call(self.usual), self._call(best), most=100, seconds=max(_LAST * self.seconds, 0.05)
        )
        if not pair.faster:
            self.attempts.append(
                TuningAttempt(choices, device, pair.ratio, False, "did not win against the usual way again")
            )
            return 1.0, {}, "cpu"
        return 1 / pair.ratio, choices, device

    def _show(self, bar: Any) -> None:
        if bar is not None:
            bar.n = min(round(time.perf_counter() - self.start), bar.total)
            kept = sum(a.kept for a in self.attempts)
            bar.set_postfix(tried=len(self.attempts), kept=kept)

    def _key(self, places: list[str]) -> str:
        target = isa.current()
        threads = runtime().thread_statistics()["threads"]
        machine = f"{target.name} {target.cpu} {target.features} {threads} {self.exact} {','.join(places)}"
        knobs = ",".join(f"{k.name}:{k.default}" for k in KNOBS.values())
        return cache.key_of(FORMAT, self.program.fingerprint, machine, knobs)


def _arrays(values: Any) -> list[np.ndarray[Any, Any]]:
    return [np.array(x) for x in tree.leaves(values)]


def _loaded(key: str) -> dict[str, Any] | None:
    """What an earlier process found, if it can still be had."""
    data = cache.load(key)
    if data is None:
        return None
    found: dict[str, Any] = json.loads(data)
    if any(name not in KNOBS for name in found["choices"]):
        return None
    return found
