"""`nx.hardware.sensors()`: a table of what is measured, and of why the rest is not."""

import nxjax as nx
from tests.backends.sensors.trees import ANSWERS, Clock, Driver, roots, ryzen, written


def test_the_table_has_figures_and_reasons(tmp_path):
    ryzen(tmp_path)
    written(tmp_path, {"proc/stat": "cpu  100 0 100 700 100 0 0 0 0 0"})
    clock = Clock()

    def busy(seconds):
        clock.sleep(seconds)
        written(tmp_path, {"proc/stat": "cpu  150 0 150 750 150 0 0 0 0 0"})

    from nxjax.backends.sensors import Roots

    plain = roots(tmp_path, ioctl=Driver(ANSWERS), clock=clock)
    here = Roots(plain.sys, plain.dev, plain.proc, plain.ioctl, plain.which, plain.run, clock, busy)
    found = nx.hardware.sensors(over=1.0, roots=here)
    assert list(found) == ["npu", "cpu", "gpu"] and len(found) == 3
    assert found["npu"].celsius == 57.0 and found["cpu"].busy == 0.5 and not found["gpu"].available
    text, html = repr(found), found._repr_html_()
    for word in ("57.0 °C", "6.25 W", "40 %", "1600 MHz", "50 %", "unavailable", "amdxdna ioctl", "nvidia-smi"):
        assert word in text and word in html
    assert "Column 4 Utilization" in html and text.count("\n") == 3
