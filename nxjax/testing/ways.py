"""Ways to run a random program: executor, settings, memory of the arguments, donation, number of calls, threads.

Knows nothing of how programs are made, nor what they must give.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import random
import sys
import threading
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final

import numpy as np

import nxjax
from nxjax import numpy as nx_numpy
from nxjax.backends.quiet import quiet
from nxjax.config import config, with_current_settings
from nxjax.kernels.cpu import isa
from nxjax.testing.comparison import executors
from nxjax.testing.inputs import LAYOUTS
from nxjax.testing.judge import Results, Wide, defined, leaves, widened
from nxjax.testing.through import DIFFERENTIATING, THROUGH
from nxjax.testing.writer import MEDIUM

# What is flipped, and how often; a setting that there isn't is left out. No setting may change what a program gives.
_SETTINGS: Final[tuple[tuple[str, tuple[Any, ...], float], ...]] = (
    ("compile_first", (True,), 0.4),
    ("num_threads", (1, 2, 3, 4, 5, 6, 7), 0.3),
    ("cpu_isa", ("avx512-amx", "avx512", "avx512-base", "avx2", "neon", "portable"), 0.25),
    ("check", (True,), 0.2),
    ("cpu_pool_bytes", (0, 4096), 0.05),
    ("fast_calls", (False,), 0.2),
    ("guard", ("end", "begin", "poison"), 0.15),
    ("reproducible", (True,), 0.1),
)


class Broken(AssertionError):
    """A call broke a rule that holds for every call. The message begins with the name of the rule."""


@dataclass(frozen=True)
class Way:
    """One way to run a program.

    Attributes:
        executor: "eager", "jax", "differences" (of values, for the derivatives in the program), "slopes" (the
            program's own derivatives), or the name of one that `jit` takes.
        settings: of `nxjax.config`, by name.
        layouts: the memory of each argument, see `nxjax.testing.inputs`; none: arrays of nxjax.
        donate: which arguments are given away.
        closed: which are values around the function, not arguments.
        calls: how often it is called.
        callers: how many threads call it at once.
        through: transforms that leave its values as they are, see `nxjax.testing.through`; the last is the outermost.
    """

    executor: str = "cpu"
    settings: tuple[tuple[str, Any], ...] = ()
    layouts: tuple[str, ...] = ()
    donate: tuple[int, ...] = ()
    closed: tuple[int, ...] = ()
    calls: int = 1
    callers: int = 1
    through: tuple[str, ...] = ()

    @property
    def is_reproducible(self) -> bool:
        """Whether its results have the same bits everywhere."""
        return dict(self.settings).get("reproducible", False)

    @property
    def features(self) -> list[str]:
        """What it counts as in reports."""
        found = [f"on {self.executor}", *(f"{n}={v}" for n, v in self.settings if n in ("cpu_isa", "guard"))]
        found += [n for n, _ in self.settings if n not in ("cpu_isa", "guard")]
        found += [name for name in ("donate", "closed") if getattr(self, name)]
        found += ["threads"] if self.callers > 1 else []
        found += [f"through {name}" for name in self.through]
        return [*found, *{n for n in self.layouts if n not in ("array", "numpy")}]


@cache
def has_jax() -> bool:
    """Whether JAX is installed, to compare with."""
    return importlib.util.find_spec("jax") is not None


@cache
def _settings() -> tuple[tuple[str, tuple[Any, ...], float], ...]:
    possible = isa.possible()
    isas = tuple(n for n in _SETTINGS[2][1] if n.removesuffix("-base") in possible)
    return tuple((n, isas if n == "cpu_isa" else v, share) for n, v, share in _SETTINGS if hasattr(config, n))


def random_settings(rng: random.Random, large: bool) -> tuple[tuple[str, Any], ...]:
    """Some settings of those that change no result; ``large`` arrays are guarded oftener."""
    often = {"guard": 0.6} if large else {}
    return tuple(
        (name, rng.choice(given)) for name, given, share in _settings() if rng.random() < often.get(name, share)
    )


def random_ways(
    rng: random.Random, args: Sequence[Any], x64: bool, others: float = 1.0, *, differentiable: bool = False
) -> list[Way]:
    """The ways that a program is run: on the CPU compiler always, on others now and then.

    Args:
        others: how much oftener than usual other executors run it.
        differentiable: transforms that differentiate may be used.
    """
    count = len(args)
    large = any(getattr(x, "size", 0) > MEDIUM for x in args)
    settings = random_settings(rng, large)
    layouts: tuple[str, ...] = ()
    if rng.random() < 0.4:
        layouts = tuple(rng.choice(list(LAYOUTS)) if rng.random() < 0.5 else "array" for _ in args)
    subset = lambda share: tuple(i for i in range(count) if rng.random() < share)
    donate = subset(0.5) if rng.random() < 0.25 else ()
    closed = tuple(i for i in subset(0.4) if i not in donate) if rng.random() < 0.12 else ()
    calls = rng.choice((1, 1, 2, 2, 3, 3, 3, 10))
    callers = rng.randint(2, 7) if rng.random() < 0.06 else 1
    names = [n for n in THROUGH if differentiable or n not in DIFFERENTIATING]
    through = tuple(rng.choice(names) for _ in range(rng.choice((1, 1, 2)))) if rng.random() < 0.2 else ()
    if not args or not all(isinstance(x, np.ndarray) for x in args):
        through = ()  # a Python number is of a weak type, which not all transforms keep
    ways = [Way("cpu", settings, layouts, donate, closed, calls, callers, through)]
    if rng.random() < 0.2:
        ways.append(Way("eager", through=through))
    if "xla" in executors() and rng.random() < 0.03 * others:
        ways.append(Way("xla", donate=donate, calls=2))
    wide = any(getattr(x, "dtype", np.dtype(bool)).itemsize > 4 and x.dtype.kind != "c" for x in args)
    if has_jax() and rng.random() < 0.05 * others and (x64 or not wide):
        ways.append(Way("jax"))
    return ways


def elsewhere(way: Way) -> list[Way]:
    """The ways that give the same bits as a reproducible one: on the simplest instruction set, and on one thread."""
    if way.executor != "cpu" or not way.is_reproducible:
        return []
    settings = {**dict(way.settings), "cpu_isa": isa.possible()[-1], "num_threads": 1}
    return [Way(settings=tuple(settings.items()), closed=way.closed, through=way.through)]


def _jax(text: str, args: Sequence[Any], x64: bool, wide: bool = False, jitted: bool = True) -> Results:
    if "jax" not in sys.modules:  # quickly compiled, on the CPU alone
        os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
    jax: Any = importlib.import_module("jax")
    jnp: Any = importlib.import_module("jax.numpy")
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", x64 or wide)
    try:
        f = defined(text, jax=jax, jnp=Wide(jnp) if wide else jnp, lax=jax.lax)
        with contextlib.nullcontext() if jitted else jax.disable_jit():
            return leaves_of_jax(jax.jit(f)(*args), jax)
    finally:
        jax.config.update("jax_enable_x64", before)


def op_by_op(text: str, args: Sequence[Any], x64: bool) -> Results:
    """What JAX gives if it compiles each operation alone."""
    with quiet(), np.errstate(all="ignore"):
        return _jax(text, args, x64, jitted=False)


def in_64_bits(executor: str, text: str, args: Sequence[Any], like: Results) -> Results:
    """What JAX or XLA gives with every float in 64 bits, rounded to the dtypes of ``like``: without rounding errors."""
    args = [widened(x) for x in args]
    with quiet(), np.errstate(all="ignore"):
        if executor == "jax":
            found = _jax(text, args, True, wide=True)
        else:
            with config.using(enable_x64=True, cache_dir=""):
                found = leaves(nxjax.jit(defined(text, jnp=Wide()), device=executor)(*args))
        return [y.astype(x.dtype) for x, y in zip(like, found, strict=True)]


def leaves_of_jax(results: Any, jax: Any) -> Results:
    """JAX's results as NumPy arrays."""
    return [np.asarray(x) for x in jax.tree.leaves(results)]


def run(text: str, args: Sequence[Any], way: Way, x64: bool = False) -> list[Results]:
    """The results of each call of a program, run in ``way``.

    Raises:
        Broken: a call changed what it must not change.
    """
    with quiet():
        if way.executor == "jax":
            return [_jax(text, args, x64)]
        settings = {**dict(way.settings), "enable_x64": x64, "cache_dir": ""}
        using: AbstractContextManager[Any] = config.using(**settings)
        with using:
            f = defined(text)
            for name in way.through:
                f = partial(THROUGH[name], f)
            if way.executor == "eager":
                return [leaves(f(*_given(args, way)))]
            return called(f, args, way)


def _given(args: Sequence[Any], way: Way) -> list[Any]:
    """The arguments in the memory that they come in."""
    layouts = way.layouts or ("array",) * len(args)
    return [LAYOUTS[how](x) if isinstance(x, np.ndarray) else x for x, how in zip(args, layouts, strict=True)]


def called(f: Any, args: Sequence[Any], way: Way) -> list[Results]:
    """The results of each call of a function that `jit` compiles, under the settings of the thread.

    Raises:
        Broken: a call changed what it must not change.
    """
    open_ = [i for i in range(len(args)) if i not in way.closed]
    around = _given(args, way)
    if way.closed:
        plain = f
        # What no call makes an array of is one before.
        for i in way.closed:
            around[i] = nx_numpy.asarray(around[i], dtype=getattr(args[i], "dtype", None))

        def opened(*given: Any) -> Any:
            full = list(around)
            for i, x in zip(open_, given, strict=True):
                full[i] = x
            return plain(*full)

        f = opened

    donated = tuple(k for k, i in enumerate(open_) if i in way.donate)
    device = None if way.executor == "cpu" else way.executor
    compiled = nxjax.jit(f, donate_argnums=donated, device=device)
    kept = [around[i] for i in open_]
    fresh = lambda: [
        nx_numpy.asarray(args[i].copy(), dtype=args[i].dtype)
        if i in way.donate and isinstance(args[i], np.ndarray)
        else x
        for i, x in zip(open_, kept, strict=True)
    ]
    found: list[tuple[Any, Results]] = []
    errors: list[BaseException] = []
    start = threading.Barrier(way.callers)

    def call() -> None:
        try:
            # What another thread's first call compiles is waited for, not made twice.
            start.wait(60)
            for _ in range(way.calls):
                results = compiled(*fresh())
                found.append((results, [x.copy() for x in leaves(results)]))
        except BaseException as error:
            errors.append(error)

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Some donated buffers were not usable")
        if way.callers == 1:
            call()
        else:
            call = with_current_settings(call)
            threads = [threading.Thread(target=call, daemon=True) for _ in range(way.callers)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
    if errors:
        raise errors[0]
    for i, x in enumerate(around):
        if isinstance(args[i], np.ndarray) and np.asarray(x).tobytes() != args[i].tobytes():
            raise Broken(f"argument changed: argument {i} is {np.asarray(x)!r}, was {args[i]!r}")
    for k, (results, copies) in enumerate(found):
        for i, (now, then) in enumerate(zip(leaves(results), copies, strict=True)):
            if now.tobytes() != then.tobytes():
                raise Broken(f"result changed: result {i} of call {k} after later calls")
    return [copies for _, copies in found]
