"""Which kernels have helpers: by grains, and by what they read and write."""

from dataclasses import dataclass

import pytest

from nxjax.config import config
from nxjax.kernels.cpu import isa
from nxjax.kernels.cpu.base import KernelCost
from nxjax.lower.cpu.times import is_parallel


@dataclass
class Counted:
    """As much of a kernel as the rule looks at."""

    items: int
    grain: int
    read: float
    written: float

    def cost(self):
        return KernelCost(1e6, self.read, self.written)


@pytest.mark.parametrize("name", isa.possible())
def test_helpers_by_grains(name):
    wide = isa.named(name).bits == 512
    with config.using(cpu_isa=name):
        for grain in (1, 5):
            for read, least in ((32e3, 2), (4e3, 4 if wide else 2)):
                assert not is_parallel(Counted(least * grain - 1, grain, read, 1e3))
                assert is_parallel(Counted(least * grain, grain, read, 1e3))
