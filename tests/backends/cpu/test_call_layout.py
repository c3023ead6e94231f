"""Where things lie: what is found is read back, and what is not as expected is refused."""

from __future__ import annotations

import ctypes
import dataclasses
import sys

import numpy as np
import pytest

import nxjax as nx
from nxjax.backends.cpu import call_layout
from nxjax.backends.cpu.call_layout import Unknown, word
from nxjax.backends.cpu.native.objects import ObjectCode
from nxjax.config import config, current_settings
from nxjax.kernels.cpu.ir import LlvmModule
from nxjax.trace.array import DeviceArray
from nxjax.trace.types import ArrayType
from nxjax.transforms.jit import Jitted

pytestmark = pytest.mark.skipif(sys.version_info >= (3, 14), reason="calls go through Python from 3.14 on")


def test_slots_are_where_they_are_found() -> None:
    layout = call_layout.find(Jitted)
    data = np.ones(3, np.float32)
    x = DeviceArray(data, ArrayType((3,), data.dtype))
    for offset, held in (
        (layout.array_data, data),
        (layout.array_type, x.type),
        (layout.array_buffer, None),
        (layout.array_place, None),
    ):
        assert word(id(x) + offset) == id(held)
    assert word(id(x.type) + layout.type_shape) == id(x.type.shape)
    assert word(id(x.type) + layout.type_dtype) == id(data.dtype)
    with config.using(enable_x64=True):
        here = current_settings()
        assert word(id(here) + layout.settings_call) == id(here.call)
    f = nx.jit(lambda x: x)
    f._plans = mark = (1, 2)
    assert word(id(f) + layout.plans) == id(mark)
    assert word(id(mark) + layout.tuple_items) == id(1)
    assert ctypes.string_at(id(b"nxjax") + layout.bytes_data, 5) == b"nxjax"


def test_a_class_whose_calls_are_not_pythons_is_refused() -> None:
    class Plain:
        __slots__ = ("_plans",)

    with pytest.raises(Unknown, match="tp_call of jit"):
        call_layout.call_slot(Plain)
    with pytest.raises(Unknown, match="slot _plans"):
        call_layout.find(type("Other", (), {}))


def test_another_interpreter_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "version_info", (9, 9, 0))
        with pytest.raises(Unknown, match="another Python"):
            call_layout.find(Jitted)
    with monkeypatch.context() as patch:
        patch.setattr(call_layout, "_header", lambda: 32)
        with pytest.raises(Unknown, match="no global lock"):
            call_layout.find(Jitted)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "gettotalrefcount", int, raising=False)
        with pytest.raises(Unknown, match="debug"):
            call_layout.find(Jitted)


def test_where_nothing_is_installed_python_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    from nxjax.backends.cpu import call

    monkeypatch.setattr(call, "_why", ["another Python"])
    with nx.config.using(executor="cpu"):
        f = nx.jit(lambda x: x * 3)
        for _ in range(5):
            assert f(np.ones(2, np.float32)).tolist() == [3, 3]
        assert f._plans is None


@pytest.mark.parametrize("python", [(3, 11), (3, 12), (3, 13)])
def test_immortal_objects_keep_their_counts(python):
    """From 3.12 on, a negative lower half of the count says that an object is one."""
    layout = dataclasses.replace(call_layout.find(Jitted), python=python)
    module = LlvmModule()
    code = ObjectCode(module, layout, "f", ("ptr",), "i64")
    (x,) = code.arguments
    code.incref(x)
    code.decref(x)
    code.ret(0)
    assert ("load i32" in module.text) == (python > (3, 11))
    assert module.text.count("load i32") == (2 if python > (3, 11) else 0)


def test_each_thing_that_is_asked_for_can_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every check ends the search where it does not hold."""
    expected = [
        "another Python",
        "no global lock",
        "a debug build",
        "not 64 bits, little end first",
        "type",
        "count of references",
        "tuple",
        "list",
        "bytes",
        "NumPy: data",
        "NumPy: type",
        "NumPy: flags",
        "slot _data",
        "slot type",
        "slot buffer",
        "slot shape",
        "slot dtype",
        "slot weak",
        "slot vma",
        "slot call",
        "settings",
        "slot _plans",
        "no weak references",
        "weak references",
        "slot block",
        "slot address",
    ]
    for wrong in expected:

        def check(condition: bool, what: str, wrong: str = wrong) -> None:
            if not condition or what == wrong:
                raise Unknown(what)

        monkeypatch.setattr(call_layout, "_check", check)
        with pytest.raises(Unknown, match=f"^{wrong}$"):
            call_layout.find(Jitted)
