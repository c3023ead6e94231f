"""Units for tests: the host's executor under other names, that takes some ops only, at a price that is said."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from nxjax.backends import registry
from nxjax.backends.hybrid.spec import Hybrid
from nxjax.backends.hybrid.unit import Estimate, RegionRefused, Step, Unit
from nxjax.backends.hybrid.units import ExecutableStep
from nxjax.lower.placement import YES, Verdict
from nxjax.trace.array import DeviceArray
from nxjax.trace.program import Equation, Program


def set_options(device: Hybrid, **changes: Any) -> None:
    """Options of plans that `Hybrid` has no argument for."""
    setting = device.backend.setting
    device.backend.setting = replace(setting, options=replace(setting.options, **changes))


class Fake(Unit):
    """A chip that is none: computes by the host's compiler and counts what it is given."""

    label = "vendor-simulator"
    platform = "npu"

    def __init__(
        self,
        name: str = "chip",
        takes: Callable[[Equation], bool] = lambda e: True,
        seconds: float = 1e-6,
        exact: bool = True,
        refuses: Callable[[Program], Sequence[int] | None] = lambda p: None,
    ) -> None:
        self.name = name
        self.exact = exact
        self.takes = takes
        self.seconds = seconds
        self.refuses = refuses
        self.broken = False
        self.slow = 0.0
        self.prepared = 0
        self.calls = 0
        self.busy = 0
        self.most = 0
        self.lock = threading.Lock()

    def available(self) -> tuple[bool, str]:
        return True, ""

    def supports(self, program: Program) -> list[Verdict]:
        no = Verdict(False, "the chip has no such instruction")
        return [YES if self.takes(e) and not e.effect else no for e in program.equations]

    def estimate(self, program: Program) -> Estimate | None:
        return Estimate(self.seconds * len(program.equations), "vendor-estimate", "the maker of this test")

    def prepare(self, program: Program) -> Step:
        blamed = self.refuses(program)
        if blamed is not None:
            raise RegionRefused("too many of them", blamed)
        self.prepared += 1
        return FakeStep(self, program)

    def probe(self) -> bool:
        return not self.broken


class FakeStep(Step):
    label = "vendor-simulator"
    runs_on = "a test's chip"

    def __init__(self, unit: Fake, program: Program) -> None:
        self.unit = unit
        self.inner = ExecutableStep(registry.host(), program)

    def __call__(self, args: Sequence[DeviceArray]) -> list[DeviceArray]:
        unit = self.unit
        with unit.lock:
            unit.calls += 1
            unit.busy += 1
            unit.most = max(unit.most, unit.busy)
        try:
            if unit.broken:
                raise OSError("the chip is gone")
            time.sleep(unit.slow)
            return self.inner(args)
        finally:
            with unit.lock:
                unit.busy -= 1
