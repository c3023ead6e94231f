"""OpenVINO is imported in silence."""

import subprocess
import sys

CODE = """
import multiprocessing, sys

def refused(*args, **kwargs):
    raise AssertionError("a process was started")

multiprocessing.Process = refused
from nxjax.lower.npu.formats.openvino_package import package
assert package() is sys.modules["openvino"] and package().opset13
print("openvino_telemetry" in sys.modules)
"""


def test_importing_it_starts_no_process_and_loads_no_reporter():
    assert subprocess.check_output([sys.executable, "-c", CODE], text=True).strip() == "False"
