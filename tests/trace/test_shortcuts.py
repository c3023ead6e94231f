"""Shortcuts of calls: each is named, each is asked for before it is taken, and one setting removes them all."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.backends import eager_kernels
from nxjax.backends.cpu.engine import KernelCache
from nxjax.backends.cpu.executable import CpuExecutable
from nxjax.backends.cpu.first_run import FirstByMeaning
from nxjax.backends.cpu.stored import StoredExecutable
from nxjax.config import config
from nxjax.numpy import eager
from nxjax.trace.array import LARGE
from nxjax.trace.core import EVAL
from nxjax.trace.shortcuts import SHORTCUTS, is_allowed
from nxjax.transforms.jit import Jitted

PACKAGE = Path(nx.__file__).parent
X = np.arange(5, dtype=np.float32)


def taken(name: str, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether what the shortcut ``name`` is for goes that way."""
    with monkeypatch.context() as patch:
        return _TAKEN[name](patch)


def _plan(_: Any) -> bool:
    f = nx.jit(lambda x: x + 1)
    for _ in range(6):
        f(X)
    return f._plans is not None


def _recent(_: Any) -> bool:
    f = nx.jit(lambda x: x - 1)
    f(nx.asarray(X))
    return f._recent is not None


def _executable(f: Any) -> Any:
    f(X)
    (entry,) = f._entries.values()
    return entry.prepared.executable


def _first(_: Any) -> bool:
    with config.using(compile_first=False):
        return type(_executable(nx.jit(lambda x: x * 2 + 1))) is FirstByMeaning


def _hurried(patch: pytest.MonkeyPatch) -> bool:
    patch.setattr(KernelCache, "has", lambda self, kernels: False)
    nx.clear_caches()  # executables are found by content
    return _executable(nx.jit(lambda x: x * 3 + 1))._quick


def _stored(_: Any) -> bool:
    made = lambda: nx.jit(lambda x: (x[:, None] @ x[None] * 3).sum(0))
    with config.using(compile_first=False):
        _executable(made())
        nx.clear_caches()
        return type(_executable(made())) is StoredExecutable


def _held(patch: pytest.MonkeyPatch) -> bool:
    asked: list[Any] = []
    patch.setattr(CpuExecutable, "bind_leading", lambda self, held: asked.append(held))
    f = nx.jit(lambda x, c=nx.asarray(X): x + c * 2)
    f(X)
    f(X)
    return bool(asked)


def _ufunc(_: Any) -> bool:
    return eager._open is EVAL


def _kernel(patch: pytest.MonkeyPatch) -> bool:
    patch.setattr(eager_kernels, "_found", {})
    x = nx.zeros(LARGE, "float16")
    _ = x + x
    return bool(eager_kernels._found) and eager_kernels._found != {None: None}


_TAKEN = {
    "eager ufunc": _ufunc,
    "eager kernel": _kernel,
    "recent entry": _recent,
    "held arguments": _held,
    "plan": _plan,
    "first run": _first,
    "stored program": _stored,
    "hurried code": _hurried,
}


_PLANS = pytest.mark.skipif(sys.version_info >= (3, 14), reason="calls go through Python from 3.14 on")


@pytest.mark.parametrize("name", [pytest.param(n, marks=_PLANS if n == "plan" else ()) for n in SHORTCUTS])
def test_one_setting_removes_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with config.using(executor="cpu"):
        assert is_allowed(name) and taken(name, monkeypatch)
        with config.using(fast_calls=False):
            assert not is_allowed(name) and not taken(name, monkeypatch)
        assert taken(name, monkeypatch)


def test_each_is_asked_for_where_it_says() -> None:
    asked = {
        name: path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        for name in re.findall(r'is_allowed\("([^"]+)"\)', path.read_text())
    }
    assert asked.keys() == SHORTCUTS.keys() - {"eager ufunc"}  # which `eager.close` closes
    for says in SHORTCUTS.values():
        assert (PACKAGE / says.split(":")[0]).exists()


@_PLANS
def test_a_plan_is_left_where_calls_are_not_fast() -> None:
    seen: list[int] = []
    before = Jitted.__call__.__code__
    f = nx.jit(lambda x: x * 5)
    with config.using(executor="cpu"):
        for _ in range(6):
            f(X)
        sys.setprofile(lambda frame, event, _: seen.append(0) if frame.f_code is before and event == "call" else None)
        try:
            f(X)
            native = len(seen)
            with config.using(fast_calls=False):
                slow = f(X)
        finally:
            sys.setprofile(None)
    assert (native, len(seen)) == (0, 1)
    np.testing.assert_array_equal(slow, X * 5)


def test_the_environment_removes_them_from_the_start() -> None:
    code = (
        "import nxjax as nx; from nxjax.numpy import eager\n"
        "f = nx.jit(lambda x: x + 1)\n"
        "x = nx.ones(3)\n"
        "for _ in range(5): y = f(x)\n"
        "print(nx.config.fast_calls, eager._open, f._plans, f._recent, (x + y).tolist())"
    )
    environment = {**os.environ, "NXJAX_FAST_CALLS": "0", "PYTHONPATH": str(PACKAGE.parent)}
    command = [sys.executable, "-c", code]
    ran = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", check=True)
    assert ran.stdout.split("\n")[0] == "False None None None [3.0, 3.0, 3.0]"


def test_a_thread_with_slow_calls_leaves_others_their_own() -> None:
    """Eager ops of all threads take the general way meanwhile, and their calls stay quick."""
    with config.using(fast_calls=False):
        assert eager._open is None
        assert jnp.add(nx.ones(2), 1.0).tolist() == [2.0, 2.0]
    assert eager._open is EVAL
