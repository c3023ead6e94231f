"""What the tests of codelets share: vertices run by the host's compiler and by the NumPy meaning, side by side."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from nxjax.kernels.ipu import host_compiler
from nxjax.kernels.ipu.host import Library, MeaningLibrary, VertexBoxes


def contiguous(shape):
    steps, step = [], 1
    for n in reversed(shape):
        steps.append(step)
        step *= n
    return tuple(reversed(steps))


def run(runner, codelet, arrays, attributes, outs):
    """One launch: ``arrays`` are [n, *sizes] per field that is read, ``outs`` sizes per field that is only written."""
    count = len(next(iter(arrays.values())))
    places, memory = {}, {}
    for field in codelet.fields:
        if field.io == "out":
            sizes = tuple(outs[field.name])
            filled = np.full((count, *sizes), 1, field.dtype)
        else:
            filled = np.array(arrays[field.name], dtype=field.dtype)
            sizes = filled.shape[1:]
        flat = filled.reshape(-1)
        each = int(np.prod(sizes))
        memory[field.name] = flat.reshape(filled.shape)
        places[field.name] = VertexBoxes(flat, np.arange(count) * each, sizes, contiguous(sizes))
    runner.prepare(codelet, count, places, attributes)()
    return {f.name: memory[f.name] for f in codelet.fields if f.io != "in"}


def both(library: Library, codelet, arrays, attributes, outs):
    """(C++, meaning) of one launch."""
    return (
        run(library, codelet, arrays, attributes, outs),
        run(MeaningLibrary(), codelet, arrays, attributes, outs),
    )


def same(x, y):
    """Equal, NaN with NaN, zeros of either sign."""
    np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


def ulps(x, y):
    """Distance in units of the last place; NaN and infinities must agree."""
    x, y = np.asarray(x), np.asarray(y)
    word = {2: np.int16, 4: np.int32}[x.dtype.itemsize]

    def line(v):
        bits = v.view(word).astype(np.int64)
        return np.where(bits < 0, -(bits & (2 ** (8 * x.dtype.itemsize - 1) - 1)), bits)

    np.testing.assert_array_equal(np.isnan(x), np.isnan(y))
    return np.where(np.isnan(x), 0, np.abs(line(x) - line(y)))


def warnings_of(codelets):
    """What the compiler says with all warnings on, each codelet by itself as Poplar's compiler would get it."""
    path, _ = host_compiler.compiler()
    found = ""
    with tempfile.TemporaryDirectory() as work:
        names = []
        for i, codelet in enumerate(codelets):
            names.append(os.path.join(work, f"c{i}.cpp"))
            Path(names[-1]).write_text(codelet.source)
        flags = ["-std=c++17", "-O0", "-fsyntax-only", "-Wall", "-Wextra", f"-I{host_compiler.SHIM}/host"]
        done = subprocess.run([path, *flags, f"-isystem{host_compiler.SHIM}", *names], capture_output=True, text=True)
        found = done.stderr
    return found
