"""The machine's limits are measured once, and are those of some machine."""

from nxjax.kernels.cpu import isa
from nxjax.profiling.peaks import peaks


def test_they_are_measured_once():
    found = peaks(1)
    assert found is peaks(1)
    assert (found.threads, found.isa) == (1, isa.current().name)
    assert 1e8 < found.bandwidth < 1e13
    assert 1e8 < found.flops < 1e14
    assert "1 thread:" in str(found)
