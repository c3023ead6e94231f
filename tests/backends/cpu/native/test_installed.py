"""Code that the installation has compiled: it serves a process that has no cache, and is refused if in doubt."""

import os
import subprocess
import sys

import pytest

from nxjax.backends.cpu import installing
from nxjax.backends.cpu.native import installed
from nxjax.backends.cpu.native.runtime import _SYMBOLS

pytestmark = pytest.mark.skipif(installed.room() is None, reason="objects are loaded by LLVM here")

PROCESS = """
import os, sys
from nxjax.backends.cpu.native import installed
installed.file_of = lambda name: os.path.join(sys.argv[1], name)
import nxjax as nx, nxjax.numpy as np, numpy
from nxjax.backends.cpu.engine import engine
from nxjax.kernels.cpu import isa
f = nx.jit(lambda x: np.cumsum(x @ x.T))
for _ in range(4):
    y = f(numpy.ones((3, 4), "f4"))
assert float(y[-1]) == 36.0
print(engine(isa.current()).compilations, "nxjax.backends.cpu.native.emitted" in sys.modules)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(installed, "file_of", lambda name: str(tmp_path / name))
    return tmp_path


def _compiled(folder):
    """How many modules a process with an empty cache compiles, and whether the runtime is one."""
    env = {**os.environ, "NXJAX_CACHE_DIR": "", "NXJAX_GUARD": ""}  # guard mode has no native calls
    done = subprocess.run([sys.executable, "-c", PROCESS, folder], env=env, capture_output=True, text=True, check=True)
    count, runtime = done.stdout.split()
    return int(count), runtime == "True"


def test_a_process_without_a_cache_compiles_its_kernels_alone(folder):
    before, runtime = _compiled(folder)
    assert runtime
    installing.write()
    after, runtime = _compiled(folder)
    assert before - after == 2 and not runtime
    assert sorted(os.listdir(folder)) == ["calls", "runtime"]


@pytest.mark.parametrize("change", ["sources", "code", "cut", "empty", "no object"])
def test_a_file_in_doubt_is_refused(folder, change):
    installing.write()
    assert installed.addresses(_SYMBOLS, "runtime") is not None
    data = (folder / "runtime").read_bytes()
    head = data[:64]
    damaged = {
        "sources": bytes([head[0] ^ 1]) + data[1:],
        "code": data[:-1] + bytes([data[-1] ^ 1]),
        "cut": data[:-100],
        "empty": b"",
        "no object": head[:32] + installed.digest(b"x" * 200).digest() + b"x" * 200,
    }[change]
    (folder / "runtime").write_bytes(damaged)
    assert installed.addresses(_SYMBOLS, "runtime") is None


def test_code_for_something_else_and_missing_symbols_are_refused(folder):
    installing.write()
    assert installed.addresses(_SYMBOLS, "runtime", "another layout") is None
    assert installed.addresses(("nx_run", "nx_nothing"), "runtime") is None
    assert installed.addresses(_SYMBOLS, "nothing") is None
