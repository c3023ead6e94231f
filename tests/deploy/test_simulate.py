"""Simulators in the place of chips: when one is on, and the NPU of no particular make as a target."""

import numpy as np
import pytest

import nxjax as nx
from nxjax.deploy.compile import built
from nxjax.deploy.simulate import ANY, simulated
from nxjax.deploy.trace import BoundFunction
from nxjax.errors import ParameterError, PlacementError


@pytest.fixture(autouse=True)
def _off():
    """Simulators are process-wide: none outlives its test."""
    nx.simulate(None)
    yield
    nx.simulate(None)


def test_a_simulator_is_on_inside_or_from_now_on():
    with nx.simulate("npu") as outer:
        assert simulated("npu") is outer
        with nx.simulate("npu") as inner:
            assert simulated("npu") is inner
        assert simulated("npu") is outer
    assert simulated("npu") is None
    kept = nx.simulate("npu")
    assert simulated("npu") is kept
    assert repr(kept) == "npu simulator"
    nx.simulate(None)
    assert simulated("npu") is None
    with pytest.raises(ParameterError, match="no simulator of this"):
        nx.simulate("gpu")


def compiled(f, *args, strict=False):
    bound = BoundFunction(f, args, {}, ())
    return built(ANY, bound, bound.subject(ANY, "integer", 8), {}, strict, True, lambda _: None)


def test_an_npu_of_no_make_takes_whole_numbers():
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    f = nx.quantize(lambda v: nx.nn.relu(v * 2), "int8", calibrate=[(x,)])
    artifact = compiled(f, x, strict=True)
    assert artifact.label == artifact.report.label == "own-model" and artifact.report.share == 1
    assert artifact.deviation.exact
    np.testing.assert_array_equal(artifact.run(x), artifact.reference(x))
    loose = compiled(lambda v: nx.nn.relu(v * 2), x)
    assert loose.report.share == 0 and "float32 is not what" in loose.report.rows[0].reason
    with pytest.raises(PlacementError, match="quantize it"):
        compiled(lambda v: nx.nn.relu(v * 2), x, strict=True)
    with pytest.raises(ParameterError, match="no options"):
        ANY.build(artifact.graph, {"turbo": True})
