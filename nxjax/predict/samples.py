"""Times to learn from: of this machine, measured; of a target, as its compiler estimates them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, final

from nxjax.backends.cpu.native.runtime import processors
from nxjax.config import current_settings
from nxjax.deploy.compile import compile
from nxjax.display.progress import bars
from nxjax.errors import ParameterError
from nxjax.lower.placement import Basis
from nxjax.predict.features import deployed, features, is_host, open_loops
from nxjax.predict.programs import Program
from nxjax.runtime import block_until_ready
from nxjax.trace.boundary import entry
from nxjax.transforms.jit import jit

_ROUNDS: Final = 40
_ROUND: Final = 0.001  # seconds that a round of calls lasts, at least


@final
@dataclass(frozen=True)
class Sample:
    """One program's time.

    Attributes:
        name: of the program.
        features: for the prediction.
        modelled: seconds by nxjax's model of the target, or None.
        seconds: the time to predict.
        basis: its source: measured, or the vendor's estimate.

    >>> Sample("a product", {"runs": 1.0, "macs": 1e6}, None, 2e-3, "measured").seconds
    0.002
    """

    name: str
    features: dict[str, float]
    modelled: float | None
    seconds: float
    basis: Basis


@entry
def gather(target: str, programs: Iterable[Program], *, progress: bool | None = None) -> list[Sample]:
    """The times of programs on a target.

    Args:
        target: "cpu" runs each program on this machine; a name from `nx.targets` whose compiler estimates times on the
            chip (Ethos-U, TPUs) compiles each.
        programs: name, function and arguments of each.
        progress: show a bar; by default on a terminal or in a notebook.

    Programs that run partly on the host are left out, because the figures do not count that part. So are programs with
    loops of unknown length, and those with any loop on TPUs, whose compiler counts a loop's body once.

    Raises:
        ParameterError: the target has no time that is measured or from its vendor.

    >>> [sample] = gather("cpu", [("a sum", lambda x: x.sum(), (nx.ones(100),))])
    >>> sample.name, sample.basis, 0 < sample.seconds < 1
    ('a sum', 'measured', True)
    """
    found: list[Sample] = []
    everything = list(programs)
    shown = bars(progress, "predict.gather", len(everything) > 5)
    for name, fun, args in everything if shown is None else shown(everything, desc=f"asking {target}", unit="program"):
        if is_host(target) and open_loops(fun, args):
            continue
        timed = _measured(fun, args) if is_host(target) else _estimated(target, fun, args)
        if timed is not None:
            values, modelled = features(target, fun)(*args)
            found.append(Sample(name, values, modelled, *timed))
    return found


def _measured(fun: Callable[..., Any], args: tuple[Any, ...]) -> tuple[float, Basis]:
    """Seconds of a call, once it is compiled: the least of many short rounds, since others only add to it.

    Times are the processor's: what other programs take of it does not count. A call lasts as long as the thread that
    makes it works, or as long as each of several threads works that share it evenly, whichever is longer.
    """
    jitted = jit(fun)
    for _ in range(3):
        block_until_ready(jitted(*args))
    threads = current_settings().num_threads or processors()

    def lasted(calls: int) -> float:
        own, together = time.thread_time(), time.process_time()
        y: Any = None
        for _ in range(calls):
            y = jitted(*args)
        block_until_ready(y)
        return max(time.thread_time() - own, (time.process_time() - together) / threads) / calls

    calls = max(1, int(_ROUND / max(lasted(1), 1e-7)))
    return min(lasted(calls) for _ in range(_ROUNDS)), "measured"


def _estimated(target: str, fun: Callable[..., Any], args: tuple[Any, ...]) -> tuple[float, Basis] | None:
    artifact = compile(deployed(target, fun, args), target=target, verify=False, progress=False)(*args)
    if any(p.device == "host" for p in artifact.report.rows):
        return None
    if getattr(artifact.analysis, "turns", None) and artifact.analysis.turns.found:
        return None
    time = artifact.cost.time
    if time is None or time[1].basis == "model":
        raise ParameterError(
            f"predict: {target} has no time to learn from",
            got=", ".join(f"{k} ({f.basis})" for k, f in artifact.cost.figures.items()) or "no figures",
            expected="a time that is measured, or the vendor's estimate",
            fix="give samples of your own to nx.predict.fit, measured on the chip",
        )
    return time[1].value, time[1].basis
