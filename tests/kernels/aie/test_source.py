"""Kernels' C++ against their meanings: compiled for the host, against a header that says what each AIE call means."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from nxjax.kernels.aie.chip import NPU1, NPU2
from nxjax.kernels.aie.elementwise import Bfloat, ElementwiseAdd, ElementwiseMul, Lookup
from nxjax.kernels.aie.matmul import AWAY, HEADER, UP, Matmul, Requantize, ZeroFill, tiled, untiled
from nxjax.kernels.aie.spec import named, source_file

KERNELS = [
    ZeroFill("i32", 64),
    ZeroFill("bf16", 32),
    Matmul("i8", 16, 24, 32, 4, 8, 8, 8 * 4 + 12 * 32),
    Matmul("i8", 16, 16, 16, 8, 8, 8),
    Matmul("bf16", 8, 24, 16, 4, 8, 4),
    Matmul("bf16", 16, 16, 16, 4, 8, 8),
    Requantize(16, 32, 4, 8, 64),
    Requantize(16, 16, 8, 8, 32),
    Lookup(64),
    ElementwiseAdd(96),
    ElementwiseMul(96),
    Bfloat("add", 64),
    Bfloat("mul", 64),
    Bfloat("relu", 64),
]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    folder = tmp_path_factory.mktemp("aie")
    source, library = folder / "kernels.cc", folder / "kernels.so"
    source.write_text(source_file(KERNELS))
    shim = Path(__file__).parent / "shim"
    command = [compiler, "-std=c++20", "-O1", "-fwrapv", "-fno-strict-aliasing", "-shared", "-fPIC", f"-I{shim}"]
    subprocess.run([*command, str(source), "-o", str(library)], check=True, capture_output=True)
    return ctypes.CDLL(str(library))


def values(kernel, rng):
    """Arguments that reach the corners: extremes of every type, shifts both ways."""
    arrays = []
    for m in kernel.arguments:
        if m.element == "i8":
            arrays.append(rng.integers(-128, 128, m.size).astype(np.int8))
        elif m.element == "i32":
            arrays.append(rng.integers(-(2**20), 2**20, m.size).astype(np.int32))
        else:
            arrays.append((rng.normal(size=m.size) * 3).astype(ml_dtypes.bfloat16))
    if isinstance(kernel, Requantize):
        n = kernel.n
        head = np.array([-3, -100, 90, 31, rng.integers(0, 2), 0, 0, 0], np.int32)
        factors = rng.integers(0, 2**31, n), rng.integers(0, 2**15, n)
        words = np.concatenate([head, rng.integers(-(2**18), 2**18, n), *factors]).astype(np.int32)
        arrays[1][kernel.before :] = words.view(np.int8)
    if isinstance(kernel, (ElementwiseAdd, ElementwiseMul)):
        arrays[2][:8] = [4, -120, 127, rng.integers(2**30, 2**31), rng.integers(-12, 2), rng.integers(0, 2), -7, 5]
    return arrays


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.name)
def test_the_source_computes_the_meaning(compiled, kernel):
    rng = np.random.default_rng(len(kernel.name))
    for _ in range(3):
        arrays = values(kernel, rng)
        ours = [a.copy() for a in arrays]
        kernel.meaning(ours)
        getattr(compiled, kernel.name)(*(a.ctypes.data_as(ctypes.c_void_p) for a in arrays))
        for i, (theirs, own) in enumerate(zip(arrays, ours, strict=True)):
            assert theirs.tobytes() == own.tobytes(), f"argument {i}"


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.name)
def test_a_kernel_is_found_by_its_name_and_takes_time(kernel):
    assert named(kernel.name) == kernel and named(kernel.name).arguments == kernel.arguments
    assert all(kernel.cycles(array) > 0 for array in (NPU1, NPU2))
    assert all(0 <= i < len(kernel.arguments) for i in kernel.writes)


def test_products_of_tiles_are_products_of_matrices():
    rng = np.random.default_rng(0)
    kernel = Matmul("i8", 16, 24, 32, 4, 8, 8)
    a, b = rng.integers(-128, 128, (16, 24)).astype(np.int8), rng.integers(-128, 128, (24, 32)).astype(np.int8)
    c = rng.integers(-9, 9, (16, 32)).astype(np.int32)
    buffers = [tiled(a, 4, 8), tiled(b, 8, 8), tiled(c, 4, 8)]
    kernel.meaning(buffers)
    np.testing.assert_array_equal(untiled(buffers[2], 16, 32, 4, 8), c + a.astype(np.int32) @ b.astype(np.int32))


@pytest.mark.parametrize("rounding", [AWAY, UP])
def test_requantization_rounds_halves_as_it_says(rounding):
    kernel = Requantize(8, 16, 4, 8, 0)
    words = np.zeros(HEADER + 3 * 16, np.int32)
    words[:5] = 0, -128, 127, 1, rounding
    words[HEADER + 16 : HEADER + 32] = 1
    x = np.resize(np.array([5, -5, 4, -4, 1, -1], np.int32), 128)
    out = np.zeros(128, np.int8)
    kernel.meaning([x, words.view(np.int8), out])
    assert out[:6].tolist() == ([3, -3, 2, -2, 1, -1] if rounding == AWAY else [3, -2, 2, -2, 1, 0])
