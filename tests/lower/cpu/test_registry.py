"""Files of rules and emitters: imported when a program has their ops, and again where Ctrl-C ended an import."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.unguarded  # nothing is computed

ALL = """
import importlib
from nxjax.kernels.cpu import op_files, ops
from nxjax.lower.cpu import registry
def everything():
    for file in registry.MODULES:
        importlib.import_module(f"nxjax.lower.cpu.rules.{file}")
    for file in op_files.MODULES:
        importlib.import_module(f"nxjax.kernels.cpu.{file}")
"""


def well(code):
    done = subprocess.run([sys.executable, "-c", ALL + code], capture_output=True, text=True, timeout=100)
    assert done.stdout == "well\n", done.stderr


def test_tables_say_what_each_file_has():
    code = """
everything()
def homes(functions):
    found = {}
    for name, function in functions:
        found.setdefault(function.__module__.rpartition(".")[2], set()).add(name)
    return found
assert homes((n, registry.rule_of(n)) for n in registry.NAMES) == registry.MODULES
assert homes((n, e.emitter) for n in ops.NAMES for e in ops.entries(n)) == op_files.MODULES
print("well")
"""
    well(code)


def test_a_program_imports_what_its_ops_need():
    code = """
import sys
import numpy as np
import nxjax as nx
nx.config.update("executor", "cpu")
nx.jit(lambda x: nx.numpy.sin(x).sum())(np.ones(3, np.float32))
here = {m.removeprefix("nxjax.lower.cpu.rules.") for m in sys.modules if m.startswith("nxjax.lower.cpu.rules.")}
assert here == {"elementwise", "reduce"}, here
assert not {"nxjax.kernels.cpu.gemm", "nxjax.kernels.cpu.conv", "nxjax.kernels.cpu.math_log"} & set(sys.modules)
print("well")
"""
    well(code)


def test_a_rule_is_in_the_table():
    code = """
from nxjax.lower.cpu.builder import rule
for register in (rule("no such op"), lambda f: ops.op("no such op", ())):
    try:
        register(lambda *_: None)
    except AssertionError as error:
        assert "MODULES" in str(error)
    else:
        raise SystemExit("no error")
print("well")
"""
    well(code)


def test_every_module_that_registers_can_be_imported_again():
    code = """
import sys
import numpy as np
import nxjax as nx
nx.config.update("executor", "cpu")
everything()
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
    well(code)


def test_another_place_may_not_define_it():
    code = """
import nxjax as nx
from nxjax.errors import NxError
from nxjax.trace.core import Op
everything()
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
assert "two rules" in fails(registry.rule("reduce_sum"), lambda b, e, x: [x])
print("well")
"""
    well(code)


HALF = """
import pathlib, sys, tempfile, threading
from nxjax.lower.cpu import registry, rules
from nxjax.ops import vocabulary
from nxjax.trace import core
folder = tempfile.mkdtemp()
half, go = threading.Event(), threading.Event()
sys.modules["gate"] = type(sys)("gate")
sys.modules["gate"].half, sys.modules["gate"].go = half, go

def asked(find):
    '''What ``find`` gives a second thread while a first one is in the middle of the import.'''
    half.clear(), go.clear()
    first = threading.Thread(target=find)
    first.start()
    assert half.wait(60)
    found = []
    second = threading.Thread(target=lambda: found.append(find()))
    second.start()
    second.join(0.3)
    early = list(found)
    go.set()
    first.join(), second.join()
    assert not early, "given before its file had been read to the end"
    return found[0]
"""


def test_a_rule_is_given_when_its_file_has_been_read_to_the_end():
    code = """
rules.__path__.append(folder)
pathlib.Path(folder, "half.py").write_text('''
import gate
from nxjax.lower.cpu.registry import rule
@rule("half")
def half_rule():
    return helper()
gate.half.set(); gate.go.wait(60)
def helper():
    return "whole"
''')
registry._HOMES["half"], registry.NAMES = "half", registry.NAMES | {"half"}
assert asked(lambda: registry.rule_of("half"))() == "whole"
print("well")
"""
    well(HALF + code)


def test_an_op_is_given_when_its_file_has_been_read_to_the_end():
    code = """
import nxjax.ops
nxjax.ops.__path__.append(folder)
pathlib.Path(folder, "half.py").write_text('''
import gate
from nxjax.trace.core import OPS
OPS["half"] = lambda: helper()
gate.half.set(); gate.go.wait(60)
def helper():
    return "whole"
''')
vocabulary._HOMES["half"] = "ops.half"
assert asked(lambda: core.find_op("half"))() == "whole"
print("well")
"""
    well(HALF + code)
