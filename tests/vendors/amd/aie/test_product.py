"""Single designs for AMD's arrays: text, kernels, plan and picture in one object; what there is not is refused."""

import numpy as np
import pytest

from nxjax.errors import DtypeError, LoweringError, ParameterError
from nxjax.lower.aie.parse import parse
from nxjax.vendors.amd.aie import product as aie


def test_a_design_has_everything_in_one_object():
    design = aie.matmul(30, 40, 50, array="npu2", columns=2)
    assert design.label == "emitted" and parse(design.mlir).device == "npu2_2col"
    assert all(f.name in design.source for f in parse(design.mlir).functions)
    assert "bound by" in repr(design) and design.cycles.seconds > 0
    assert design._repr_html_() == design.svg() and design.svg().count("of 64 KiB") == 2 * design.plan.rows
    rng = np.random.default_rng(0)
    a, b = rng.integers(-128, 128, (30, 40)).astype(np.int8), rng.integers(-128, 128, (40, 50)).astype(np.int8)
    np.testing.assert_array_equal(design.run(a, b), a.astype(np.int32) @ b.astype(np.int32))
    assert design.label == "own-model" and design.trace is not None and design.trace.moved["c_out_0"] > 0


def test_a_model_that_computes_something_else_earns_no_label(monkeypatch):
    ones = np.ones((8, 8), np.int8)
    design = aie.matmul(8, 8, 8)
    monkeypatch.setattr(aie.model, "run", lambda design, buffers: buffers["c"].fill(7))
    assert design.run(ones, ones).max() == 7 and design.label == "emitted"
    floats = aie.matmul(8, 8, 8, dtype="bfloat16")
    assert floats.run(ones, ones).max() == 7 and floats.label == "emitted"
    monkeypatch.undo()
    design.run(ones, ones)
    floats.run(ones / 3, ones)
    assert design.label == floats.label == "own-model"


@pytest.mark.parametrize(
    ("how", "error", "words"),
    [
        ({"array": "npu3"}, ParameterError, "array"),
        ({"dtype": "float32"}, ParameterError, "dtype"),
        ({"columns": 9}, ParameterError, "columns"),
        ({"relu": True}, ParameterError, "relu"),
        ({"tile": (256, 256, 256)}, LoweringError, "limit"),
    ],
)
def test_what_there_is_not_is_refused(how, error, words):
    with pytest.raises(error, match=words):
        aie.matmul(64, 64, 64, **how)


def test_operands_have_to_be_integers():
    with pytest.raises(DtypeError, match="operands"):
        aie.matmul(8, 8, 8).run(np.zeros((8, 8)), np.zeros((8, 8)))
