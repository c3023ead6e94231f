"""What all tests share: golden texts, executors, hypothesis' profile, and programs checked as they are made."""

import copy
import functools
import gc
import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from nxjax.config import config
from nxjax.runtime import clear_caches
from nxjax.testing import executors

# Tests that import OpenVINO themselves start no process that reports it over the network.
modules: dict[str, Any] = sys.modules
modules.setdefault("openvino_telemetry", None)

# Processes that tests start do not compile nxjax's sources anew: that takes longer than most of what they do.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# JAX is the second opinion here: its programs are compiled quickly, and contracted less, than for speed.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")


def compile_jax_quickly() -> Any:
    """JAX lowers in one MLIR context, and XLA emits its loops in the older way, all in one piece: half of the time for
    small programs.

    This holds for programs that JAX compiles in this process, not for nxjax's own XLA executor. Gives what it
    replaces.
    """
    try:
        from jax._src import compiler
        from jax._src.interpreters import mlir
    except ImportError:  # the core's tests run without JAX
        return None
    options = compiler.get_compile_options

    def quick(*args: Any, **kwargs: Any) -> Any:
        made = options(*args, **kwargs)
        quick = (("xla_cpu_use_fusion_emitters", False), ("xla_cpu_parallel_codegen_split_count", 1))
        made.env_option_overrides = [*made.env_option_overrides, *quick]
        return made

    compiler.get_compile_options = quick
    mlir.make_ir_context = functools.cache(mlir.make_ir_context)
    return options


JAX_OPTIONS = compile_jax_quickly()


@pytest.fixture
def shipped_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    """JAX as users have it: the older loops of XLA make infinity of NaN where no bits of a mantissa are left."""
    monkeypatch.setattr("jax._src.compiler.get_compile_options", JAX_OPTIONS)
    sys.modules["jax"].clear_caches()


# A test that calls a function once is about machine code.
config.update("compile_first", True)
# The CPU is several devices in all tests, before anything has used one.
config.update("num_cpu_devices", 8)

settings.register_profile("suite", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("suite")

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the texts in tests/golden")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Iterator[None]:
    """What is imported and collected stays to the end: no collection of garbage walks it, now or in any test."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        # Programs are many small objects: Python's own count of new ones comes round all the time.
        gc.set_threshold(20_000)
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The cases of a test in the order of their names, so that processes which share the work agree on it."""
    first: dict[str, int] = {}
    for i, item in enumerate(items):
        first.setdefault(item.nodeid.split("[")[0], i)
    items.sort(key=lambda item: (first[item.nodeid.split("[")[0]], item.nodeid))
    for item in items:
        if isinstance(item, pytest.Function) and item.module not in RANDOM:
            RANDOM[item.module] = generators(item.module)


Generators = list[tuple[np.random.BitGenerator, np.random.BitGenerator, np.random.BitGenerator]]

# Of each file with tests: its random generators, each with two copies from before the first test.
RANDOM: dict[ModuleType, Generators] = {}


def generators(module: ModuleType) -> Generators:
    """The generators of numbers in ``module``, as they are now: for fixtures, and far from there for tests."""
    found = [x.bit_generator for x in vars(module).values() if isinstance(x, np.random.Generator)]
    found += [x._bit_generator for x in vars(module).values() if isinstance(x, np.random.RandomState)]
    return [(x, copy.deepcopy(x), x.jumped()) for x in found]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """The numbers that a file's fixtures draw do not depend on which tests ran before."""
    if isinstance(item, pytest.Function):
        for generator, first, _ in RANDOM[item.module]:
            generator.state = first.state


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Nor those that a test draws."""
    if isinstance(item, pytest.Function):
        for generator, _, second in RANDOM[item.module]:
            generator.state = second.state


@pytest.fixture
def golden(request: pytest.FixtureRequest):
    """``golden(name, text)``: ``text`` equals tests/golden/name."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"no golden text {name}; run pytest --update-golden"
        assert text == path.read_text(), f"{name} differs; run pytest --update-golden and read the diff"

    return compare


@pytest.fixture(params=executors())
def executor(request: pytest.FixtureRequest) -> str:
    """Every executor of this machine in turn."""
    return request.param


@pytest.fixture(autouse=True, scope="module")
def _forgotten():
    """Compiled programs go with the file that made them.

    A process may have some 65,000 mappings on Linux and a compiled program takes up to three: JAX's for all files,
    kept together, come near that. To free them takes longer than to keep them, so they stay while there is room.
    """
    yield
    if (jax := sys.modules.get("jax")) is not None and mappings() > 20_000:
        jax.clear_caches()
    clear_caches()
    # Modules and what they keep stay to the end: no collection in later files walks them.
    gc.collect()
    gc.freeze()


def mappings() -> float:
    """How many pieces of memory this process has mapped; infinite where nobody says it."""
    try:
        return Path("/proc/self/maps").read_bytes().count(b"\n")
    except OSError:
        return math.inf


@pytest.fixture(autouse=True)
def _checked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch):
    config.update("check", True)  # in all threads
    guard = config.guard
    if guard and request.node.get_closest_marker("unguarded"):
        config.update("guard", "")
        monkeypatch.delenv("NXJAX_GUARD")  # for processes that the test starts
    yield
    config.update("check", False)
    config.update("guard", guard)
