"""Imports that Ctrl-C ended: modules that define ops, rules and emitters can run again; others may not define them."""

import subprocess
import sys


def test_every_module_that_registers_can_be_imported_again():
    code = """
import importlib, sys
import numpy as np
import nxjax as nx
from nxjax.kernels.cpu import ops
from nxjax.lower.cpu import builder
nx.config.update("executor", "cpu")
builder.rules()
f = lambda x: nx.sin(x) * 2 + x
nx.jit(f)(np.float32(1))
names = [m for m in sys.modules if m.startswith(("nxjax.ops.", "nxjax.lower.cpu.rules.", "nxjax.kernels.cpu.ops_"))]
assert len(names) > 40, names
for name in names:
    module = sys.modules.pop(name)
    importlib.import_module(name)
    sys.modules[name] = module
print("well")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert done.stdout == "well\n", done.stderr


def test_another_place_may_not_define_it():
    code = """
import nxjax as nx
from nxjax.errors import NxError
from nxjax.lower.cpu import builder
from nxjax.trace.core import Op
builder.rules()
class Sine(Op):
    name = "sin"
    def infer(self, *types, **params): ...
def fails(function, *args):
    try:
        function(*args)
    except (AssertionError, NxError) as error:
        return str(error)
    raise SystemExit("no error")
assert "defined twice" in fails(Sine)
assert "two rules" in fails(builder.rule("reduce_sum"), lambda b, e, x: [x])
print("well")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert done.stdout == "well\n", done.stderr
