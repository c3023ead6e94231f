"""Costs come from the target's own compiler, and a part that is left to the host is not passed over."""

import numpy as np
import pytest

import nxjax as nx
from nxjax import nas
from nxjax.errors import ParameterError
from nxjax.example_libraries import stax
from nxjax.nas import blocks


def deployed(model):
    init, apply = model
    x = np.zeros((1, 8, 8, 1), np.float32)
    return apply, init(nx.random.key(0), x.shape)[1], (x,)


def test_ethos_u_says_cycles_time_and_memory():
    pytest.importorskip("ethosu")
    costs = nas.Costs("ethos-u55-128", deployed)
    small, large = (
        costs(stax.serial(blocks.conv(w), blocks.inverted_residual(w), blocks.pooled(), stax.Dense(4))) for w in (8, 32)
    )
    assert all(small[n] < large[n] for n in ("cycles", "chip_time", "sram_peak", "weights", "macs"))
    assert costs.basis["cycles"] == "vendor-estimate" and costs.basis["macs"] == "vendor-estimate"
    # The time is cycles at the clock that the target says.
    assert small["chip_time"] / small["cycles"] == pytest.approx(large["chip_time"] / large["cycles"])


def test_what_stays_on_the_host_is_an_error():
    pytest.importorskip("ethosu")
    odd = stax.serial(blocks.conv(4), stax.elementwise(nx.lax.erf), blocks.pooled(), stax.Dense(4))
    with pytest.raises(ParameterError, match="leaves a part of this architecture to the host"):
        nas.Costs("ethos-u55-128", deployed)(odd)


def test_only_some_figures():
    costs = nas.Costs("tflite", deployed, figures=("macs",))
    model = stax.serial(blocks.conv(4), stax.Flatten, stax.Dense(3))
    assert costs(model) == {"macs": 8 * 8 * 9 * 4 + 256 * 3}
    with pytest.raises(ParameterError, match=r"has no such figure\n.*joules"):
        nas.Costs("tflite", deployed, figures=("joules",))(model)
