"""Peak memory of the CPU executor beside JAX's: what a process grows by while it runs a compiled program once.

Each program and library has a process of its own. There the program is compiled ahead of time, a small other one is run
so that threads and the like are there, and free memory goes back to the system. Then the system's mark of the largest
resident size is reset, the program is called for the first time, and the mark is read while arguments and results are
alive. So results, temporaries, packed operands and threads' scratch count, and arguments, which were there before, do
not. The resident size is the one figure that means the same for both: JAX's allocator for the CPU keeps no statistics.
A first call takes fresh pages for all that it needs, so nothing hides in what an earlier call has left. The figures are
exact to some 0.3 MB (pages are counted per thread, and code is read from its file): a difference below it is none.

``first call`` rows begin before tracing and compilation, and so contain the compiler's own memory. There is no int8
network in JAX without a quantizer, so its float32 one stands beside ours.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import numpy as np

from benchmarks.peers import package
from benchmarks.runner import Figure

Work = tuple[Callable[..., Any], tuple[Any, ...]]
Row = Callable[[Any], Work]
ROWS: Final[dict[str, Row]] = {}
MEGA: Final = 10**6
_NOISE: Final = 0.3 * MEGA
_FIRST: Final = "first call: "


def row(name: str) -> Callable[[Row], Row]:
    def put(f: Row) -> Row:
        ROWS[name] = f
        return f

    return put


def library(name: str) -> Any:
    """The parts of nxjax or JAX that rows use, by the same names."""
    if name == "jax":
        jax = package("jax")
        parts = {"np": jax.numpy, "dot": jax.lax.dot_general}
    else:
        jax = importlib.import_module("nxjax")
        parts = {"np": importlib.import_module("nxjax.numpy")}
        parts["dot"] = importlib.import_module("nxjax.ops.dot").dot_general
    parts |= {part: getattr(jax, part) for part in ("nn", "lax", "jit", "grad", "random", "block_until_ready")}
    return SimpleNamespace(name=name, **parts)


def floats(*shape: int, scale: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(0).standard_normal(shape) * scale).astype(np.float32)


def bytes_(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(-128, 127, shape).astype(np.int8)


def indices(count: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, count, count).astype(np.int32)


# --- what memory bounds ---

LARGE, SQUARE, MILLION = (10_000_000,), (4096, 4096), 1_000_000
ROWS["add of two 4-vectors"] = lambda lib: (lambda x, y: x + y, (floats(4), floats(4)))
ROWS["x + 1, 10 M"] = lambda lib: (lambda x: x + 1, (floats(*LARGE),))
ROWS["tanh(x)*x + exp(-x*x), 10 M"] = lambda lib: (
    lambda x: lib.np.tanh(x) * x + lib.np.exp(-x * x),
    (floats(*LARGE),),
)
ROWS["gelu, 10 M"] = lambda lib: (lambda x: lib.nn.gelu(x, approximate=False), (floats(*LARGE),))
ROWS["softmax 10,000 x 1,000"] = lambda lib: (lib.nn.softmax, (floats(10_000, 1000),))
ROWS["column sum 10,000 x 1,000"] = lambda lib: (lambda x: x.sum(0), (floats(10_000, 1000),))
ROWS["cumsum 4096 x 4096 along 1"] = lambda lib: (lambda x: lib.np.cumsum(x, 1), (floats(*SQUARE),))
ROWS["cumsum 4096 x 4096 along 0"] = lambda lib: (lambda x: lib.np.cumsum(x, 0), (floats(*SQUARE),))
ROWS["transpose 4096 x 4096"] = lambda lib: (lambda x: x.T, (floats(*SQUARE),))


@row("layer norm 10,000 x 1,000")
def layer_norm(lib: Any) -> Work:
    def f(x: Any) -> Any:
        m = x.mean(-1, keepdims=True)
        return (x - m) / lib.np.sqrt(((x - m) * (x - m)).mean(-1, keepdims=True) + 1e-5)

    return f, (floats(10_000, 1000),)


ROWS["random normal 1 M"] = lambda lib: (lambda key: lib.random.normal(key, (MILLION,)), (lib.random.key(0),))
ROWS["sort 1 M"] = lambda lib: (lib.np.sort, (floats(MILLION),))
ROWS["argsort 1 M"] = lambda lib: (lib.np.argsort, (floats(MILLION),))
ROWS["sort 1,000 x 1,000"] = lambda lib: (lib.np.sort, (floats(1000, 1000),))
ROWS["gather 1 M"] = lambda lib: (lambda x, i: x[i], (floats(MILLION), indices(MILLION)))
ROWS["scatter-add 1 M"] = lambda lib: (
    lambda x, i, u: x.at[i].add(u),
    (floats(MILLION), indices(MILLION), floats(MILLION)),
)


@row("1,000 Cholesky 16 x 16")
def cholesky(lib: Any) -> Work:
    a = floats(1000, 16, 16)
    return lib.np.linalg.cholesky, (a @ a.swapaxes(1, 2) + 16 * np.eye(16, dtype=np.float32),)


# --- products ---


def _product(left: tuple[int, ...], right: tuple[int, ...]) -> Row:
    return lambda lib: (lambda x, y: x @ y, (floats(*left), floats(*right)))


for n in (64, 256, 1024, 2048):
    ROWS[f"matmul {n}"] = _product((n, n), (n, n))
ROWS["matrix times vector 4096"] = _product(SQUARE, (4096,))
ROWS["64 x matmul 128"] = _product((64, 128, 128), (64, 128, 128))
ROWS["1024 x 512 times 512 x 2048"] = _product((1024, 512), (512, 2048))
ROWS["weights' gradient 512 x 1024 x 2048"] = lambda lib: (
    lambda a, b: a.T @ b,
    (floats(1024, 512), floats(1024, 2048)),
)


@row("int8 matmul 1024")
def int8_matmul(lib: Any) -> Work:
    numbers = (((1,), (0,)), ((), ()))
    f = lambda a, b: lib.dot(a, b, dimension_numbers=numbers, preferred_element_type=np.dtype("int32"))
    return f, (bytes_(1024, 1024), bytes_(1024, 1024))


# --- convolutions ---


def _conv(lib: Any, x: Any, w: Any, groups: int = 1, **options: Any) -> Any:
    return lib.lax.conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=groups, **options
    )


ROWS["conv 3x3 64-64 56x56 b8"] = lambda lib: (
    lambda x, w: _conv(lib, x, w),
    (floats(8, 56, 56, 64), floats(3, 3, 64, 64)),
)
ROWS["depthwise 3x3 64 56x56 b8"] = lambda lib: (
    lambda x, w: _conv(lib, x, w, 64),
    (floats(8, 56, 56, 64), floats(3, 3, 1, 64)),
)
ROWS["int8 conv 3x3 64-64 56x56 b8"] = lambda lib: (
    lambda x, w: _conv(lib, x, w, preferred_element_type=np.dtype("int32")),
    (bytes_(8, 56, 56, 64), bytes_(3, 3, 64, 64)),
)


def _network(name: str, lib: Any) -> Work:
    """A network of `benchmarks.models`, which say ``nx`` for the library: here it is ``lib``."""
    model = importlib.import_module(f"benchmarks.models.{name}")
    nx = SimpleNamespace(lax=lib.lax, nn=lib.nn, mean=lib.np.mean)
    for module in ("layers", "inverted", name):
        found = importlib.import_module(f"benchmarks.models.{module}")
        if hasattr(found, "nx"):
            found.nx = nx  # pyright: ignore[reportAttributeAccessIssue]
    return model.apply, (model.init(0), model.example(1))


ROWS["mobilenet_v2 b1"] = lambda lib: _network("mobilenet_v2", lib)
ROWS["resnet18 b1"] = lambda lib: _network("resnet18", lib)


@row("int8 mobilenet_v2 b1")
def int8_network(lib: Any) -> Work:
    f, args = _network("mobilenet_v2", lib)
    if lib.name == "nxjax":
        f = importlib.import_module("nxjax").quantize(f, "int8", calibrate=[args], progress=False)
    return f, args


@row("small ResNet b1")
def small_resnet(lib: Any) -> Work:
    from benchmarks import convolutions

    f, params, x = convolutions.small_resnet(np.random.default_rng(0))
    _network("resnet18", lib)
    convolutions.nx = SimpleNamespace(lax=lib.lax, nn=lib.nn)  # pyright: ignore[reportAttributeAccessIssue]
    return f, (params, x)


@row("grad of conv 3x3 64-64 56x56 b8")
def conv_gradient(lib: Any) -> Work:
    f = lib.grad(lambda w, x: (_conv(lib, x, w) ** 2).sum(), (0, 1))
    return f, (floats(3, 3, 64, 64, scale=1 / 24), floats(8, 56, 56, 64))


# --- training, loops ---


@row("MLP train step, batch 128")
def mlp(lib: Any) -> Work:
    w = [floats(*s, scale=1 / 20) for pair in pairwise((784, 512, 256, 10)) for s in (pair, pair[1:])]

    def loss(w: Any, x: Any, y: Any) -> Any:
        for i in range(0, 4, 2):
            x = lib.nn.relu(x @ w[i] + w[i + 1])
        return -(lib.nn.log_softmax(x @ w[4] + w[5]) * y).sum(-1).mean()

    def step(w: Any, x: Any, y: Any) -> Any:
        return [a - 0.1 * g for a, g in zip(w, lib.grad(loss)(w, x, y), strict=True)]

    return step, (w, floats(128, 784), np.eye(10, dtype=np.float32)[indices(128) % 10])


def _block(lib: Any) -> tuple[Callable[..., Any], Any]:
    """A transformer block: batch 4, 256 tokens, width 512, 8 heads."""
    d, heads = 512, 8

    def norm(x: Any) -> Any:
        c = x - x.mean(-1, keepdims=True)
        return c / lib.np.sqrt((c * c).mean(-1, keepdims=True) + 1e-5)

    def f(w: Any, x: Any) -> Any:
        b, t, _ = x.shape
        qkv = (norm(x) @ w[0]).reshape(b, t, 3, heads, d // heads)
        s = lib.np.einsum("bqhc,bkhc->bhqk", qkv[:, :, 0], qkv[:, :, 1]) / (d // heads) ** 0.5
        x = x + lib.np.einsum("bhqk,bkhc->bqhc", lib.nn.softmax(s), qkv[:, :, 2]).reshape(b, t, d) @ w[1]
        return x + lib.nn.gelu(norm(x) @ w[2]) @ w[3]

    shapes = ((d, 3 * d), (d, d), (d, 4 * d), (4 * d, d))
    return f, ([floats(*s, scale=1 / 30) for s in shapes], floats(4, 256, d))


ROWS["transformer block forward"] = _block


@row("transformer block grad")
def block_gradient(lib: Any) -> Work:
    f, args = _block(lib)
    return lib.grad(lambda w, x: (f(w, x) ** 2).mean()), args


def _rnn(lib: Any, width: int, batch: int) -> Work:
    def f(w: Any, u: Any, xs: Any, h: Any) -> Any:
        return lib.lax.scan(lambda h, x: ((y := lib.np.tanh(h @ w + x @ u)), y), h, xs)

    w, u = floats(width, width, scale=width**-0.5), floats(32, width, scale=1 / 6)
    return f, (w, u, floats(1000, batch, 32), np.zeros((batch, width), np.float32))


ROWS["scan of 1,000 RNN steps"] = lambda lib: _rnn(lib, 64, 8)
ROWS["scan of 1,000 RNN steps, width 256 b16"] = lambda lib: _rnn(lib, 256, 16)


@row("grad of a scan of 1,000 RNN steps")
def rnn_gradient(lib: Any) -> Work:
    f, args = _rnn(lib, 64, 8)
    return lib.grad(lambda *xs: (f(*xs)[1] ** 2).sum(), (0, 1)), args


@row(_FIRST + "grad of a 12-layer transformer")
def deep(lib: Any) -> Work:
    from benchmarks import transformer

    tokens = indices(2 * transformer.TOKENS).reshape(2, -1)
    return lib.grad(transformer.model(lib.np, lib.nn)), (transformer.parameters(), tokens)


# --- one process ---


def _resident(name: str) -> int:
    """A field of this process's status, in bytes."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return 1024 * int(found[1])


def measured(name: str, who: str) -> int:
    """Bytes by which this process grows at most while row ``name`` runs by library ``who``."""
    lib = library(who)
    f, args = ROWS[name](lib)
    tree = importlib.import_module("optree")
    args = tree.tree_map(lambda x: lib.np.asarray(x) if isinstance(x, np.ndarray) else x, args)
    lib.block_until_ready(lib.jit(lambda x: lib.np.tanh(x) @ x.T)(lib.np.asarray(floats(200, 200))))
    g = lib.jit(f)
    run = g if name.startswith(_FIRST) else g.lower(*args).compile()
    gc.collect()
    if who == "nxjax":
        importlib.import_module("nxjax.backends.cpu.native.runtime").runtime().trim(0)
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = _resident("VmRSS")
    results = lib.block_until_ready(run(*args))
    peak = _resident("VmHWM")
    del results
    return max(peak - before, 0)


def child(name: str, who: str) -> int:
    """`measured` in a process of its own."""
    run = [sys.executable, "-m", "benchmarks.cpu_memory", name, who]
    out = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    return json.loads(out.splitlines()[-1])


def figure(name: str) -> Figure:
    """One row, ours beside JAX's; what is lost in the noise counts as equal."""
    ours, theirs = child(name, "nxjax"), child(name, "jax")
    note = f"{ours / MEGA:.1f} MB beside {theirs / MEGA:.1f}"
    if abs(ours - theirs) < _NOISE:
        ours = theirs = max(ours, theirs, 1)
    return Figure(name, ours, max(theirs, 1), "jax", 1.0, note, "B")


def figures() -> Iterator[Figure]:
    return map(figure, ROWS)


if __name__ == "__main__":
    print(measured(sys.argv[1], sys.argv[2]))
