"""The contract of a compute unit: one of the things that a hybrid program is cut over.

A unit says which equations it takes, what a region would cost on it and who says so, and prepares regions. It knows
nothing of the other units, of schedules, or of what happens when it fails.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, final

from nxjax.backends.evidence import Label
from nxjax.errors import Shown
from nxjax.lower.placement import Basis, Verdict
from nxjax.ops.arithmetic import add
from nxjax.trace.array import DeviceArray, wrap
from nxjax.trace.program import Program
from nxjax.trace.stage import stage
from nxjax.trace.types import ArrayType


@final
@dataclass(frozen=True)
class Estimate:
    """The cost of one run of a region.

    Attributes:
        seconds: of one run, transfers aside.
        basis: "measured", "vendor-estimate" or "model".
        says: the source: a tool's or a model's name.
        joules: of one run; None if unknown.

    >>> print(Estimate(2e-6, "model", "a roofline"))
    2 us (model: a roofline)
    """

    seconds: float
    basis: Basis
    says: str
    joules: float | None = None

    def __str__(self) -> str:
        return f"{1e6 * self.seconds:.4g} us ({self.basis}: {self.says})"


@final
@dataclass(frozen=True)
class Link:
    """The link between a unit and the host's memory.

    Attributes:
        bandwidth: bytes per second; infinite if the unit reads the host's memory.
        latency: seconds of any transfer, however small.
        says: the source of the figures.

    >>> Link().seconds(1 << 20)
    0.0
    """

    bandwidth: float = float("inf")
    latency: float = 0.0
    says: str = "the host's memory"

    def seconds(self, nbytes: int) -> float:
        """The time of one transfer of ``nbytes`` bytes.

        >>> Link(1e9, 0.5).seconds(500_000_000)
        1.0
        """
        return self.latency + nbytes / self.bandwidth


SHARED: Final = Link()


@final
class RegionRefused(Exception):
    """Raised by `Unit.prepare`: the unit refuses the region.

    Attributes:
        reason: why, for people.
        numbers: the equations of the region's program that cause it; empty if unknown.
    """

    def __init__(self, reason: str, numbers: Sequence[int] = ()) -> None:
        super().__init__(reason)
        self.reason = reason
        self.numbers = tuple(numbers)


class Step(Shown, ABC):
    """A region prepared on a unit.

    Attributes:
        label: what its results prove about the chip.
        runs_on: what executes it, for people.
        estimate: its time, if known from preparing, or None.
        notes: what the user should know.
        checked: the reference that its results were compared with, or why there was none; None for nxjax's own
            executors.

    >>> class Doubled(Step):
    ...     label, runs_on = "host", "this page"
    ...     def __call__(self, args):
    ...         return [x + x for x in args]
    >>> Doubled()([nx.numpy.arange(3)])[0].tolist()
    [0, 2, 4]
    """

    label: Label
    runs_on: str
    estimate: Estimate | None = None
    notes: tuple[str, ...] = ()
    checked: str | None = None

    @abstractmethod
    def __call__(self, args: Sequence[DeviceArray]) -> list[DeviceArray]:
        """The region's results, in order. May be called from several threads at once."""

    def close(self) -> None:
        """Free its resources: sessions, processes, memory on a device."""


class Unit(ABC):
    """Something that regions of a program can run on.

    Attributes:
        name: as the user wrote it: ``cpu``, ``gpu``, ``tflite``, ``intel-npu``.
        platform: ``cpu``, ``gpu``, ``tpu`` or ``npu``.
        label: what its results prove about the chip; the label of a prepared step has priority.
        exact: integer regions have the reference's bits, so that another exact unit may redo them.
        tolerance: floats of its results are no further from other units', as a share of the largest, unless something
            is wrong with it.
        host: runs in the host's memory and supports everything, including effects.
        binds: benefits from constant weights, because it needs them or moves them only once.
        wants_grids: computes on integers, so its regions should quantize inputs that are on a grid.
        lanes: how many regions it runs at once.
        link: the connection to it.
        watts: power drawn while it computes; None: unknown.

    >>> unit = nx.Hybrid("cpu").units[0]
    >>> isinstance(unit, Unit), unit.name, unit.exact, unit.available()[0]
    (True, 'cpu', True, True)
    """

    name: str
    platform: str
    label: Label
    exact: bool
    tolerance: float = 0.1
    host: bool = False
    binds: bool = True
    wants_grids: bool = False
    lanes: int = 1
    link: Link = SHARED
    watts: float | None = None
    # Ends what it is doing, from another thread, where it can be ended.
    interrupt: Callable[[], None] | None = None

    @property
    def key(self) -> str:
        """The key of its measured times, independent of the user's name."""
        return self.name

    @property
    def on_cores(self) -> bool:
        """Whether it runs on the host's cores, like executors and simulators. Such units take turns."""
        return self.platform == "cpu" or self.label in ("host", "own-model", "vendor-simulator")

    @abstractmethod
    def available(self) -> tuple[bool, str]:
        """Whether it can run here, and why not (or what it is). Imports nothing heavy."""

    @abstractmethod
    def supports(self, program: Program) -> list[Verdict]:
        """A verdict on each equation of a flat program. The unit knows its consts."""

    @abstractmethod
    def estimate(self, program: Program) -> Estimate | None:
        """The cost of a region before it is prepared, or None if unknown."""

    @abstractmethod
    def prepare(self, program: Program) -> Step:
        """Prepare a region, and move its consts to the unit.

        Raises:
            RegionRefused: the unit refuses the region.
        """

    def receive(self, value: DeviceArray) -> DeviceArray:
        """Move another unit's result to where this one reads it; by default the host's memory."""
        value.numpy()
        return value

    def probe(self) -> bool:
        """Whether it works, by a small computation with a known result."""
        import numpy as np

        x = np.asarray([1.0, 2.0, 3.0, 4.0], np.float32).reshape(1, 4)
        program = stage(lambda a: [add(a, a)], [ArrayType(x.shape, x.dtype)], "probe")
        step = self.prepare(program)
        try:
            (y,) = step([wrap(x)])
            return bool(np.array_equal(y.numpy(), x + x))
        finally:
            step.close()

    def __repr__(self) -> str:
        return f"<unit {self.name}: {self.label}>"
