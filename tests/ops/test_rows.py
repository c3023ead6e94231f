"""An elementary function is one row: it is found under all its names, and runs wherever functions run."""

import importlib
import inspect
import re
from pathlib import Path
from typing import final

import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import DtypeError, NxError, ProgramError, UnsupportedOpsError
from nxjax.ops.arithmetic import add, mul
from nxjax.ops.base import CompositeOp, Face, define_op
from nxjax.ops.elementary import Composed, Smooth, atan, sinh
from nxjax.testing import bad, check_op, sample
from nxjax.trace.core import OPS, Array

PACKAGE = Path(nx.__file__).parent


@final
class Gudermannian(Composed):
    """The angle whose tangent is sinh x"""

    name = "example_gudermannian"
    example = "jnp.array([0.0, jnp.inf])", "Array([0.       , 1.5707964], dtype=float32)"
    numpy = Face("example_gudermannian example_gd", "The Gudermannian.")
    scipy = Face("example_gudermannian", "The Gudermannian (DLMF 4.23.39).", ("1.0", "0.8658"))

    def composed(self, x: Array, /) -> Array:
        return atan(sinh(x))


gudermannian = OPS.get("example_gudermannian") or Gudermannian()
X = np.array([-3.0, -0.5, 0.0, 1.0, 4.0], np.float32)


def reference(x):
    return np.arctan(np.sinh(x.astype(complex if x.dtype.kind == "c" else float))).astype(x.dtype)


@pytest.mark.parametrize(
    "path",
    ["lax.example_gudermannian", "numpy.example_gudermannian", "numpy.example_gd", "example_gd",
     "scipy.special.example_gudermannian"],
)  # fmt: skip
def test_every_face_has_it(path):
    package, _, name = f"nxjax.{path}".rpartition(".")
    function = getattr(importlib.import_module(package), name)
    vars(nx).pop(name, None)  # what the top level has kept, it lists
    assert list(inspect.signature(function).parameters) == ["x"]
    assert function.__name__ == name
    np.testing.assert_allclose(function(X), reference(X), rtol=1e-6)
    with pytest.raises(DtypeError, match=name):
        function("text")
    text = inspect.getdoc(function) or ""
    assert "Gudermannian" in text or "The angle whose tangent is sinh x" in text
    assert ">>> " in text


def test_packages_list_their_own_names_only():
    names = {*dir(nx.lax), *dir(nx.numpy), *dir(nx.scipy.special)}
    assert "sinh" in names
    assert not [name for name in names if "gudermannian" in name]


def test_lax_has_the_primitive():
    assert nx.lax.example_gudermannian_p is gudermannian


def test_numpy_promotes_and_lax_does_not():
    assert nx.numpy.example_gudermannian(1).dtype == np.float32
    with pytest.raises(DtypeError, match="float or complex"):
        nx.lax.example_gudermannian(1)


def test_other_chips_run_its_decomposition():
    assert "chlo.sinh" in nx.jit(nx.numpy.example_gd).lower(X).as_text(dialect="stablehlo")
    model = nx.compile(nx.numpy.example_gd, target="ipu-bow")(X)
    np.testing.assert_allclose(model(X), reference(X), rtol=1e-6)


def test_every_law_and_executor():
    """Its type, value, derivatives in both modes, `vmap`, `jit` on every executor, text and errors."""
    narrow = [sample(X.astype(d), differentiable=False) for d in (np.float16, nx.numpy.bfloat16.dtype)]
    samples = [sample(X), sample(X[1]), sample((X[:3] / 4 + 0.3j).astype(np.complex64)), *narrow]
    check_op(gudermannian, samples, [bad(np.int32(1), error=DtypeError, says="float")], reference=reference)


def test_quantized_it_is_a_table():
    f = nx.numpy.example_gd
    x = np.linspace(-3, 3, 64, dtype=np.float32)
    q = nx.quantize(f, "int8", calibrate=[(x,)])
    y = np.asarray(q(x))
    step = 2 * reference(x).max() / 255
    assert abs(y - reference(x)).max() < 1.1 * step
    artifact = nx.compile(q, target="tflite")(x)
    np.testing.assert_array_equal(np.asarray(artifact(x)), y)


def test_a_chip_that_refuses_it_names_the_part():
    with pytest.raises(UnsupportedOpsError, match=r"no NPU instruction for atan \(a part of example_gudermannian\)"):
        nx.compile(nx.numpy.example_gd, target="tflite")(X)


@pytest.mark.parametrize("executor", ["cpu", "xla", "reference"])
def test_gradients_of_batches(executor):
    slope = nx.jit(nx.vmap(nx.grad(nx.numpy.example_gd)))
    with nx.config.using(executor=executor):
        np.testing.assert_allclose(slope(X), 1 / np.cosh(X), rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("dtype", [np.float16, nx.numpy.bfloat16.dtype])
def test_narrow_floats_are_rounded_once(dtype):
    x = np.linspace(-4, 4, 100).astype(dtype)
    wide = reference(x.astype(np.float64))
    # Half a unit in the last place, and what float32 errs before that.
    half = 2.0 ** np.floor(np.log2(abs(wide))) * float(nx.numpy.finfo(dtype).eps) / 2
    for function in (nx.numpy.example_gd, nx.jit(nx.numpy.example_gd)):
        y = np.asarray(function(nx.asarray(x))).astype(np.float64)
        assert (abs(y - wide) <= 1.01 * half).all()


# Who names a function that is an op: the row; devices that have a row of their own, which rounds better or is quicker
# than the decomposition; files of ONNX and of PyTorch; the check of types, which takes nothing on trust; and random
# programs.
NAMED_IN = {
    "ops/elementary.py",
    "interop/onnx/elementwise.py", "interop/torch/elementwise.py",
    "kernels/cpu/math_complex.py", "kernels/cpu/math_exp.py", "kernels/cpu/op_files.py",
    "kernels/ipu/expression_cycles.py",
    "lower/npu/rules/elementwise.py",
    "lower/type_rules/elementwise.py",
    "testing/productions/floats.py", "testing/productions/others.py",
}  # fmt: skip


def test_files_that_name_a_function():
    texts = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in PACKAGE.rglob("*.py")}
    found = {path for path, text in texts.items() if re.search(r"\bsinh\b", text) and "Generated by" not in text[:200]}
    assert found == NAMED_IN
    assert not [path for path, text in texts.items() if "gudermannian" in text.lower()]


def test_what_a_class_says_of_public_functions_is_not_ignored():
    for fact, value in {"numpy": Face("example"), "lax": Face("example"), "example": ("1.0", "1.0")}.items():
        with pytest.raises(NxError, match="derive from Unary, Binary or Composed") as caught:
            type("Example", (CompositeOp,), {"name": "example", fact: value})
        assert caught.value.got == fact


def test_an_op_that_no_compiler_could_compute_is_refused():
    with pytest.raises(NxError, match="example_host_only: no compiler could compute this op") as caught:
        define_op(Smooth, "example_host_only", "sinh x", ufunc=np.sinh, push=lambda t, y, x: mul(t, y))
    assert "set hlo= or chlo=" in str(caught.value)
    assert "example_host_only" not in OPS


@final
class Weighted(Composed):
    """x + 2 y + 3 z"""

    name = "example_weighted"
    arguments = "x y z"
    scipy = Face("example_weighted", "A weighted sum.", ("1.0, 1.0, 1.0", "6.0"))

    def composed(self, x: Array, y: Array, z: Array, /) -> Array:
        return add(add(x, mul(y, 2)), mul(z, 3))


weighted = OPS.get("example_weighted") or Weighted()


def test_a_special_function_of_several_operands_promotes_and_broadcasts():
    function = nx.scipy.special.example_weighted
    np.testing.assert_array_equal(function(1, z=nx.numpy.arange(2), y=np.float32(2)), [5, 8])
    assert list(inspect.signature(function).parameters) == ["x", "y", "z"]
    assert "x, y, z: arrays, which broadcast" in function.__doc__


def test_the_number_of_operands_is_checked():
    with pytest.raises(ProgramError, match="example_weighted: wrong number of operands"):
        weighted(nx.numpy.ones(2), nx.numpy.ones(2))
