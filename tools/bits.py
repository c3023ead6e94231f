#!/usr/bin/env python3
"""One table of hashes of random programs and of a network in training, for all machines: `nx.config.reproducible`.

    python tools/bits.py check                                  # the table of the project, on this machine
    python tools/bits.py check --programs 40 --isa avx2 portable --threads 1 4
    python tools/bits.py write --programs 10000                 # makes the table anew
    python tools/emulate.py run tools/bits.py check --programs 20      # on an ARM that is not here
    python tools/emulate.py --host-llvm run tools/bits.py check --alone    # quicker: without batches

A program is a chain of random steps (sums, products, convolutions, functions, scans, scatters, derivatives of all of
them) on numbers that come from integers. Its results are hashed, any NaN as any other; so are those of elements of
batches, which must be what they are alone. One line of the table is the hash of `EACH` programs in order.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import lax
from nxjax.commands.command import command
from nxjax.kernels.cpu import isa
from nxjax.runtime import clear_caches

TABLE = Path(__file__).resolve().parents[1] / "tests" / "golden" / "bits.json"
EACH = 20  # programs of one line
BATCHES = (1, 3, 8)
Step = Callable[[Any], Any]


def numbers(r: random.Random, shape: Sequence[int], dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    """Numbers from -4 to 4, of which some are 0 and some are repeated."""
    count = int(np.prod(shape))
    flat = np.array([r.getrandbits(20) for _ in range(count)], np.int64) - (1 << 19)
    flat[flat % 31 == 0] = 0
    return (flat / (1 << 17)).astype(dtype).reshape(tuple(shape))


UNARY: tuple[Step, ...] = (
    jnp.exp, jnp.exp2, jnp.expm1, jnp.sin, jnp.cos, jnp.tan, jnp.tanh, jnp.sinh, jnp.cosh, jnp.arctan, jnp.arcsinh,
    jnp.cbrt, jnp.square, jnp.abs, jnp.floor, jnp.sign, nx.nn.sigmoid, nx.nn.relu, nx.nn.gelu, nx.nn.silu,
    nx.nn.softplus, lax.erf, lax.erfc,
    lambda x: jnp.log(abs(x)), lambda x: jnp.log1p(abs(x)), lambda x: jnp.sqrt(abs(x)), lambda x: lax.rsqrt(abs(x) + 1),
    lambda x: jnp.arcsin(x / 9), lambda x: jnp.arctanh(x / 5), lambda x: jnp.sin(x * 1e7), lambda x: x**3,
    lambda x: abs(x) ** 0.7, lambda x: lax.lgamma(x), lambda x: jnp.arctan2(x, x + 1),
    lambda x: x % 0.7, lambda x: 1 / (x + 0.3), lambda x: x * 0.1 + 0.7, lambda x: jnp.clip(x, -1, 1.5),
    lambda x: jnp.where(x > 0.2, x, -0.3 * x), lambda x: x.astype(jnp.bfloat16).astype(x.dtype),
    lambda x: x.astype(jnp.float16).astype(x.dtype), lambda x: x.astype(np.int32).astype(x.dtype) + x,
)  # fmt: skip
ALONG: tuple[Callable[[Any, int], Any], ...] = (
    lambda x, a: x.sum(a), lambda x, a: x.mean(a, keepdims=True) - x, lambda x, a: x.max(a),
    lambda x, a: x.min(a) * x.sum(),
    lambda x, a: jnp.var(x, a), lambda x, a: nx.nn.softmax(x, a), lambda x, a: nx.nn.log_softmax(x, a),
    lambda x, a: nx.nn.logsumexp(x, a), lambda x, a: jnp.cumsum(x, a), lambda x, a: jnp.cumprod(1 + x / 99, a),
    lambda x, a: lax.cumlogsumexp(x, a % x.ndim), lambda x, a: lax.cummax(x, a % x.ndim), lambda x, a: jnp.sort(x, a),
    lambda x, a: jnp.flip(x, a), lambda x, a: (1 + x / 99).prod(a),
    lambda x, a: (x - x.mean(a, keepdims=True)) * lax.rsqrt(x.var(a, keepdims=True) + 1e-3),
    lambda x, a: jnp.take(x, jnp.argmax(x, a), a) if x.ndim == 1 else x.sum(a),
    lambda x, a: jnp.concatenate([x, x[..., ::-1]], a) if x.size < 500 else x,
)  # fmt: skip


def step(r: random.Random, shape: Sequence[int], dtype: Any) -> Step:
    """A function of one array of ``shape``."""
    kind = r.randrange(12)
    if not shape or kind < 4:
        f = r.choice(UNARY)
        return f if r.randrange(3) else lambda x, g=r.choice(UNARY): f(x) * g(x) + x
    if kind < 7:
        axis, along = r.randrange(-len(shape), len(shape)), r.choice(ALONG)
        return lambda x: along(x, axis)
    if kind == 7:
        w = numbers(r, (shape[-1], r.choice((1, 3, 8, 17, 33))), dtype) / shape[-1]
        return lambda x: x @ w.astype(x.dtype)
    if kind == 8 and len(shape) == 2:
        return r.choice(
            (lambda x: x @ x.T / 9, lambda x: x.T @ x / 9, lambda x: x.T, lambda x: jnp.einsum("ij,ij->i", x, x))
        )
    if kind == 9 and len(shape) == 3:
        w = numbers(r, (r.choice((1, 4, 9)), shape[0], r.choice((1, 3)), r.choice((1, 3))), dtype) / 9
        steps = r.choice(((1, 1), (2, 1)))
        return lambda x: lax.conv_general_dilated(x[None], w.astype(x.dtype), steps, "SAME")[0]
    if kind == 10:
        n = shape[0]
        places = np.array([r.randrange(max(n // 2, 1)) for _ in range(n)])
        return r.choice((
            lambda x: x[places],
            lambda x: jnp.zeros_like(x).at[places].add(x),
            lambda x: x.at[places].multiply(0.5),
            lambda x: lax.scan(lambda c, v: ((c * 0.5 + v.sum()), jnp.tanh(c + v)), jnp.zeros((), x.dtype), x)[1],
        ))  # fmt: skip
    size = int(np.prod(shape))
    choices = [(size,), (*shape, 1), (1, *shape)] + [(k, size // k) for k in (2, 3, 5, 8) if size % k == 0]
    choices += [(k, 3, size // (3 * k)) for k in (2, 4, 5) if size % (3 * k) == 0]
    new = r.choice([c for c in choices if len(c) <= 3] or [tuple(shape)])
    return lambda x: x.reshape(new)


def program(seed: int) -> tuple[Step, np.ndarray[Any, Any]]:
    """The function, and a batch of its arguments."""
    r = random.Random(seed)
    dtype = np.dtype(r.choice(("float32",) * 5 + ("float64", "bfloat16", "float16")))
    shape = tuple(r.choice((1, 2, 3, 5, 8, 13, 33, 64)) for _ in range(r.randrange(1, 4)))
    while np.prod(shape) > 2000:
        shape = shape[1:]
    like = nx.ShapeDtypeStruct(shape, dtype)
    steps: list[Step] = []
    for _ in range(r.randrange(2, 9)):
        f = step(r, like.shape, dtype)
        after = nx.eval_shape(f, like)
        if 0 < after.size <= 4000 and after.dtype == dtype:
            steps.append(f)
            like = after

    def run(x: Any) -> Any:
        for f in steps:
            x = f(x)
        return x

    x = numbers(r, (max(BATCHES), *shape), dtype)
    if r.randrange(3) == 0:
        return nx.grad(lambda v: (run(v).astype(np.float32) * 0.5).sum()), x
    return run, x


def hashed(ys: Any) -> str:
    """Of all bytes; any NaN is as good as another."""
    found = hashlib.sha256()
    for y in nx.tree.leaves(ys):
        y = np.asarray(y)
        nan = y != y
        y = np.where(nan, np.zeros_like(y), y) if nan.any() else y
        found.update(repr((y.shape, y.dtype.name)).encode() + y.tobytes() + nan.tobytes())
    return found.hexdigest()[:16]


def one(seed: int, only_alone: bool = False) -> str:
    """The hash of a program's results; those of elements of batches, where they are others, are an error."""
    f, x = program(seed)
    alone = nx.jit(f)
    if only_alone:
        return hashed(alone(x[0]))
    size = BATCHES[seed % len(BATCHES)]
    ys = nx.jit(nx.vmap(f))(x[:size])
    first = hashed(alone(x[0]))
    for i in {0, size - 1}:
        mine, expected = hashed(nx.tree.map(lambda y, i=i: y[i], ys)), hashed(alone(x[i]))
        if mine != expected:
            raise AssertionError(f"program {seed}: element {i} of a batch of {size} is {mine}, and alone {expected}")
    return first


def lines(programs: int, first: int = 0, alone: bool = False) -> Iterator[str]:
    """A hash for each `EACH` programs from number ``first`` on."""
    for begin in range(first, first + programs, EACH):
        found = [one(seed, alone) for seed in range(begin, begin + EACH)]
        clear_caches()  # thousands of programs would not fit
        yield hashlib.sha256(" ".join(found).encode()).hexdigest()[:16]


def network(steps: int = 12) -> list[str]:
    """A hash of all weights after each step of training: a convolution, attention, a dense layer, Adam."""
    r = random.Random(0)
    params: Any = {
        "conv": numbers(r, (8, 1, 3, 3)) / 9,
        "qkv": numbers(r, (8, 24)) / 8,
        "dense": numbers(r, (8 * 16, 10)) / 99,
        "bias": np.zeros(10, np.float32),
    }
    params = nx.tree.map(jnp.asarray, params)
    images, labels = numbers(r, (32, 1, 8, 8)), np.array([r.randrange(10) for _ in range(32)])

    def loss(p: Any) -> Any:
        x = nx.nn.gelu(lax.conv_general_dilated(images, p["conv"], (2, 2), "SAME"))
        x = jnp.moveaxis(x.reshape(32, 8, 16), 1, 2)
        q, k, v = jnp.split(x @ p["qkv"], 3, -1)
        x = x + nx.nn.softmax(q @ jnp.swapaxes(k, 1, 2) / 3) @ v
        logits = (x - x.mean(-1, keepdims=True)).reshape(32, -1) @ p["dense"] + p["bias"]
        return -jnp.take_along_axis(nx.nn.log_softmax(logits), labels[:, None], 1).mean()

    @nx.jit
    def update(p: Any, m: Any, v: Any) -> Any:
        g = nx.grad(loss)(p)
        m = nx.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
        v = nx.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, v, g)
        return nx.tree.map(lambda p, m, v: p - 0.01 * m / (jnp.sqrt(v) + 1e-6), p, m, v), m, v

    m = v = nx.tree.map(jnp.zeros_like, params)
    found: list[str] = []
    for _ in range(steps):
        params, m, v = update(params, m, v)
        found.append(hashed(params))
    return found


def compare(table: Any, programs: int, first: int = 0, show: bool = True, alone: bool = False) -> list[str]:
    """What differs from the table's ``programs`` on the instruction set and with the threads that are set."""
    wrong: list[str] = []
    expected_lines = table["programs"][first // EACH :]
    for k, (mine, expected) in enumerate(zip(lines(programs, first, alone), expected_lines, strict=False)):
        if mine != expected:
            begin = first + k * EACH
            wrong.append(f"programs {begin} to {begin + EACH - 1}: {mine}, not {expected}")
        if show and k % 10 == 9:
            print(f"  {(k + 1) * EACH} programs, {len(wrong)} lines differ", flush=True)
    for k, (mine, expected) in enumerate(zip(network(), table["network"], strict=True)):
        if mine != expected:
            wrong.append(f"step {k} of the network: {mine}, not {expected}")
    return wrong


@command
def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("check", "write"))
    parser.add_argument("--programs", type=int, help=f"so many, in lines of {EACH} (all of the table; write: 200)")
    parser.add_argument("--first", type=int, default=0, help=f"check: the first one, a multiple of {EACH} (0)")
    parser.add_argument("--alone", action="store_true", help="check: no elements of batches against themselves alone")
    parser.add_argument("--isa", nargs="+", choices=isa.possible(), default=list(isa.possible()))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 4])
    parser.add_argument("--table", type=Path, default=TABLE)
    options = parser.parse_args(arguments)
    table = None if options.what == "write" else json.loads(options.table.read_text())
    most = 200 if table is None else EACH * len(table["programs"]) - options.first
    programs = most if options.programs is None else -(-options.programs // EACH) * EACH
    if programs < 1 or min(options.threads) < 1:
        parser.error("--programs and --threads are numbers from 1")
    if table is not None and programs > most:
        parser.error(f"--programs {options.programs}: the table has {most}")
    if options.first % EACH or options.first < 0 or (table is None and options.first):
        parser.error(f"--first {options.first}: a line of the table begins at a multiple of {EACH}")
    with nx.config.using(reproducible=True, enable_x64=True, progress=False):
        if table is None:
            with nx.config.using(cpu_isa=options.isa[0], num_threads=options.threads[0]):
                table = {"each": EACH, "programs": list(lines(programs)), "network": network()}
            options.table.write_text(json.dumps(table, indent=0) + "\n")
            print(f"{programs} programs written to {options.table}")
            return 0
        failed, since = 0, f" from {options.first} on" if options.first else ""
        for which in options.isa:
            for threads in options.threads:
                begun = time.perf_counter()
                with nx.config.using(cpu_isa=which, num_threads=threads):
                    wrong = compare(table, programs, options.first, alone=options.alone)
                failed += len(wrong)
                print(f"{which}, {threads} threads: {programs} programs{since} and the network in "
                      f"{time.perf_counter() - begun:.0f} s, {len(wrong)} lines differ")  # fmt: skip
                print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
