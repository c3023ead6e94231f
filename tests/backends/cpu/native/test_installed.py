"""The runtime that the installation has compiled: it serves a process that has no cache, and is refused if in doubt."""

import os
import subprocess
import sys

import pytest

from nxjax.backends.cpu.native import emitted, installed
from nxjax.backends.cpu.native.runtime import _SYMBOLS

pytestmark = pytest.mark.skipif(installed.room() is None, reason="objects are loaded by LLVM here")

PROCESS = """
import sys
from functools import partial
from nxjax.backends.cpu.native import installed
installed.addresses = partial(installed.addresses, path=sys.argv[1])
import nxjax as nx, nxjax.numpy as np, numpy
y = nx.jit(lambda x: np.cumsum(x @ x.T))(numpy.ones((3, 4), "f4"))
print("nxjax.backends.cpu.native.emitted" in sys.modules, float(y[-1]))
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("runtime") / "runtime.bin")
    emitted.write(path)
    return path


def _compiles(path):
    env = {**os.environ, "NXJAX_CACHE_DIR": ""}
    done = subprocess.run([sys.executable, "-c", PROCESS, path], env=env, capture_output=True, text=True, check=True)
    compiled, y = done.stdout.split()
    assert float(y) == 36.0
    return compiled == "True"


def test_a_process_without_a_cache_does_not_compile_the_runtime(file, tmp_path):
    assert not _compiles(file)
    assert _compiles(str(tmp_path / "missing.bin"))


@pytest.mark.parametrize("change", ["sources", "code", "cut", "empty", "no object"])
def test_a_file_in_doubt_is_refused(file, tmp_path, change):
    with open(file, "rb") as there:
        data = there.read()
    head, code = data[:64], data[64:]
    damaged = {
        "sources": bytes([head[0] ^ 1]) + data[1:],
        "code": data[:-1] + bytes([data[-1] ^ 1]),
        "cut": data[:-100],
        "empty": b"",
        "no object": head[:32] + installed.digest(b"x" * 200).digest() + b"x" * 200,
    }[change]
    assert code and installed.addresses(_SYMBOLS, file) is not None
    path = tmp_path / "runtime.bin"
    path.write_bytes(damaged)
    assert installed.addresses(_SYMBOLS, str(path)) is None


def test_a_symbol_that_is_missing_is_not_found(file):
    assert installed.addresses(("nx_run", "nx_nothing"), file) is None
