"""XLA: text in, right numbers out, for every dtype, without importing jax, and without compiling twice."""

import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import nxjax as nx
from nxjax.backends.xla import client, serialize
from nxjax.backends.xla.executable import XlaExecutable, compile_text
from nxjax.errors import LoweringError
from nxjax.ops.shape import transpose
from nxjax.trace import dtypes
from nxjax.trace.array import wrap
from nxjax.trace.types import ArrayType

SUM = """module @m { func.func public @main(%a: tensor<4xf32>, %b: tensor<4xf32>) -> (tensor<4xf32>, tensor<f32>) {
  %0 = stablehlo.add %a, %b : tensor<4xf32>
  %1 = stablehlo.constant dense<1.0> : tensor<f32>
  return %0, %1 : tensor<4xf32>, tensor<f32> } }"""
F4 = ArrayType((4,), dtypes.float32)
F0 = ArrayType((), dtypes.float32)


def test_text_is_compiled_and_run():
    executable = XlaExecutable(compile_text(SUM), SUM, (F4, F0))
    x = wrap(np.arange(4, dtype=np.float32))
    y, one = executable([x, x])
    np.testing.assert_array_equal(y.numpy(), [0, 2, 4, 6])
    assert one.numpy() == 1
    assert not y.numpy().flags.writeable
    # A result goes into the next call without passing through NumPy.
    z, _ = executable([y, x])
    np.testing.assert_array_equal(z.numpy(), [0, 3, 6, 9])
    assert executable.cost_analysis()["flops"] >= 4
    assert executable.memory_analysis().argument_size_in_bytes == 32
    assert "HloModule" in executable.text


def test_results_outlive_the_executable():
    executable = XlaExecutable(compile_text(SUM), SUM, (F4, F0))
    x = wrap(np.ones(4, np.float32))
    data = executable([x, x])[0].numpy()
    del executable, x
    np.testing.assert_array_equal(data, [2, 2, 2, 2])


def test_text_that_is_no_program_is_refused():
    with pytest.raises(LoweringError, match="the compiler refused"):
        compile_text("module @m { nonsense }")


DTYPES = ["bool", "int4", "uint4", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
DTYPES += ["float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2", "complex64", "complex128"]


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("shape", [(2, 3), (0, 3), (1, 1)])
def test_every_dtype_goes_in_and_out(name, shape):
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    x = (np.arange(np.prod(shape)).reshape(shape) % 2).astype(dtype)
    y = nx.jit(lambda v: transpose(v, permutation=(1, 0)), device="xla")(wrap(x))
    assert y.numpy().dtype == dtype
    np.testing.assert_array_equal(y.numpy().astype(np.complex128), x.T.astype(np.complex128))


def test_random_keys_are_opaque_words():
    keys = np.arange(4, dtype=np.uint32).view(dtypes.key).reshape(2, 1)
    y = nx.jit(lambda v: transpose(v, permutation=(1, 0)), device="xla")(wrap(keys))
    assert y.dtype == dtypes.key
    np.testing.assert_array_equal(y.numpy().view(np.uint32).ravel(), [0, 1, 2, 3])


def test_bytes_of_another_version_are_not_loaded():
    data = serialize.dump(compile_text(SUM))
    assert serialize.load(data) is not None
    assert serialize.load(data.replace(b"nxjax-xla-2", b"nxjax-xla-0")) is None
    head = 4 + int.from_bytes(data[:4], "little")
    assert serialize.load(data[:head] + b"garbage") is None


def test_a_missing_or_other_version_is_named(monkeypatch):
    client.available.cache_clear()
    monkeypatch.setattr(client, "version", lambda _: "0.4.30")
    ok, reason = client.available()
    assert not ok
    assert "0.4.30" in reason
    assert ">=0.10,<0.11" in reason
    client.available.cache_clear()


PROGRAM = """
import sys
import numpy as np, nxjax as nx
from nxjax.backends.xla import backend
from nxjax.ops.arithmetic import mul
y = nx.jit(nx.grad(lambda x: mul(x, mul(x, x))), device="xla")(3.0)
assert y.numpy() == 27.0
print(backend.compilations, "jax" in sys.modules)
"""


def test_a_second_process_compiles_nothing_and_none_imports_jax(tmp_path: Path):
    def process() -> str:
        env = {"NXJAX_CACHE_DIR": str(tmp_path), "PATH": "/usr/bin:/bin"}
        done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=env, check=True)
        return done.stdout.strip()

    assert process() == "1 False"
    assert process() == "0 False"
