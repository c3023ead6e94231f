"""A driver is met by a process of its own: what that gives is taken, how it ends is said."""

import numpy as np
import pytest

from nxjax.backends.iree import child, session
from nxjax.errors import ExecutionError


def use(monkeypatch, tmp_path, body):
    path = tmp_path / "driver.py"
    path.write_text("import json, os, sys\nfrom pathlib import Path\nplace = Path(sys.argv[1])\n" + body)
    monkeypatch.setattr(child, "_SCRIPT", path)


def test_a_driver_that_aborts_is_an_error(monkeypatch, tmp_path):
    use(monkeypatch, tmp_path, "os.abort()\n")
    with pytest.raises(ExecutionError, match="status -6"):
        child.devices("vulkan")


def test_a_driver_that_stalls_is_an_error(monkeypatch, tmp_path):
    use(monkeypatch, tmp_path, "import time; time.sleep(60)\n")
    monkeypatch.setattr(child, "LISTING", 0.3)
    with pytest.raises(ExecutionError, match="does not answer"):
        child.devices("vulkan")


def test_what_was_answered_before_the_end_counts(monkeypatch, tmp_path):
    body = """
import numpy as np
request = json.loads((place / "request.json").read_text())
first, second = request["tests"]
arrays = np.load(place / "arrays.npz")
np.savez(place / "results.npz", **{"0": arrays[first["inputs"][0][0]] * 2})
(place / "answer.json").write_text(json.dumps({"tests": [{"state": "ran"}]}))
os.abort()
"""
    use(monkeypatch, tmp_path, body)
    x = np.arange(3, dtype=np.int8)
    given = child.run("vulkan", "p", {"m": b""}, [("m", "f", (x,), x), ("m", "g", (x,), x)])
    np.testing.assert_array_equal(given[0], x * 2)
    assert given[1].startswith("g: its process ended with status -6")


def test_element_types_are_those_of_iree():
    import ml_dtypes

    wanted = {
        "float32": 0x21000020,
        "int8": 0x11000008,
        "uint8": 0x12000008,
        "bool": 0x13000008,
        "complex64": 0x23000040,
    }
    assert {name: session.element_type(np.dtype(name)) for name in wanted} == wanted
    assert session.element_type(np.dtype(ml_dtypes.bfloat16)) == 0x22000010
    assert session.carried(np.ones(2, ml_dtypes.bfloat16)).dtype == np.uint16
