"""The native call path: a jitted function that was called before is called again without Python.

`shortcut` is told of calls that `Jitted.__call__` has answered. It makes a plan of one and leaves it with the function;
the class's slot for calls, which it puts machine code into once, looks there first. Everything else (a trace is being
made, other types, a setting changed, arrays that lie elsewhere) goes on to `Jitted.__call__` as if there were no plan.
Where the interpreter is one whose objects are laid out in another way, nothing is installed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from nxjax.backends.cpu import call_layout, earlier
from nxjax.backends.cpu.call_layout import ObjectLayout, Unknown
from nxjax.backends.cpu.call_plan import CallPlan, Native, NoPlan
from nxjax.backends.cpu.engine import engine
from nxjax.backends.cpu.locks import COMPILING
from nxjax.backends.cpu.memory import CpuBuffer, constant
from nxjax.backends.cpu.native import installed, objects, objects_buffer, objects_call, objects_tree
from nxjax.backends.cpu.native.runtime import out_of_memory, runtime
from nxjax.backends.cpu.native.tables import LinkedTape
from nxjax.backends.cpu.running import TapeExecutable
from nxjax.config import current_settings
from nxjax.kernels.cpu import isa
from nxjax.kernels.cpu.ir import LlvmModule
from nxjax.trace import axes, core, mesh
from nxjax.trace.array import UNCHANGING, DeviceArray
from nxjax.trace.types import ArrayType
from nxjax.transforms.jit_stages import Repeated

NDArray = np.ndarray[Any, Any]
_SYMBOLS: Final = (
    objects.TABLE, objects_call.CALL, objects_buffer.NEW, objects_buffer.DEALLOC, objects_buffer.GETBUFFER,
    objects_buffer.ARRAY_DEALLOC,
    objects_buffer.TO_NUMPY,
)  # fmt: skip
_PLANS: Final = 8  # that one function keeps; the oldest goes
# Slots and flags of `PyType_FromSpec`, as CPython's typeslots.h and object.h number them for good.
_BF_GETBUFFER: Final = 1
_TP_DEALLOC: Final = 52
_TP_METHODS: Final = 64
_NO_ARGUMENTS: Final = 4
_NO_INSTANCES: Final = 1 << 7

_why: list[str] = []  # why there is no native call path: empty while nobody has asked; "" where there is one
_alive: list[Any] = []  # what the machine code's table names


def text(layout: ObjectLayout) -> str:
    """The code in LLVM's language."""
    module = LlvmModule()
    objects.table_function(module)
    objects_buffer.buffer_functions(module, layout)
    objects_tree.tree_functions(module, layout)
    objects_call.call_functions(module, layout)
    return module.text


def shortcut(made: TapeExecutable, tape: LinkedTape, jitted: Any, call: Repeated) -> None:
    """Let machine code answer the next call of ``jitted`` that is like ``call``, which ``made`` has run by ``tape``."""
    if install(type(jitted)):
        return
    try:
        plan = CallPlan(call, _native(made, tape))
    except NoPlan:
        return
    with COMPILING:
        known = [p for p in jitted._plans[1:] if p.key != plan.key] if jitted._plans else []
        plans = [plan, *known][:_PLANS]
        table = np.array([len(plans), *(p.address for p in plans)], np.uint64).tobytes()
        jitted._plans = (table, *plans)


def _native(made: TapeExecutable, tape: LinkedTape) -> Native:
    sources: list[tuple[int, int]] = []
    constants: list[NDArray] = []
    overwritten: dict[int, int] = {}  # which result has a donated argument's memory
    for i, (r, type_) in enumerate(zip(tape.results, made.out_types, strict=True)):
        match r.kind:
            case "new":
                sources.append((objects_call.NEW_MEMORY, 0))
            case "result":
                sources.append((objects_call.RESULT, r.index))
            case "const":
                constants.append(constant(tape.constants[r.index], type_))
                sources.append((objects_call.OBJECT, id(constants[-1])))
            case _ if r.index not in tape.overwritten:
                sources.append((objects_call.ARGUMENT, r.index))
            case _ if r.index not in overwritten:
                overwritten[r.index] = i
                sources.append((objects_call.OVERWRITTEN, r.index))
            case _:  # once more: the place that the first one has found for it
                sources.append((objects_call.RESULT, overwritten[r.index]))
    return Native(runtime().addresses.run, tape.address, sources, made.arena, (tape, constants))


def install(jitted: type) -> str:
    """Make calls of the class ``jitted`` native, once. Why that cannot be; empty where it can."""
    if not _why:
        with COMPILING:
            if not _why:
                try:
                    _install(jitted)
                    _why.append("")
                except Unknown as error:
                    _why.append(str(error))
    return _why[0]


def _addresses(layout: ObjectLayout) -> Sequence[int]:
    """Where the functions are: in code that the installation or an earlier process has left, or that is made now."""
    what = ("calls", repr(layout))
    found = installed.addresses(_SYMBOLS, *what) or earlier.module(_SYMBOLS, *what)
    if found is None:
        made, written = engine(isa.current()), text(layout)
        found = made.module(written, _SYMBOLS)
        earlier.write(made.module_file(written).encode(), *what)
    return found


def _install(jitted: type) -> None:
    layout = call_layout.find(jitted)
    slot, general = call_layout.call_slot(jitted)
    end_slot = call_layout.dealloc_slot()
    addresses: dict[str, int] = dict(zip(_SYMBOLS, _addresses(layout), strict=True))
    buffer = _buffer_class(addresses)
    named: dict[str, Any] = {
        "None": None,
        "True": True,
        "tuple": tuple,
        "list": list,
        "dict": dict,
        "float": float,
        "int": int,
        "bool": bool,
        "ndarray": np.ndarray,
        "DeviceArray": DeviceArray,
        "ArrayType": ArrayType,
        "Buffer": buffer,
        "CpuBuffer": CpuBuffer,
        "EVAL": core.EVAL,
        # A context variable's `get` says whose it is.
        "trace": core.current_trace.__self__,
        "axes": axes.axes_in_scope.__self__,
        "mesh": mesh.current_mesh.__self__,
        "settings": current_settings.__self__,
        "no_memory": _no_memory,
        "slow_numpy": _to_numpy,
    }
    _alive.append(named)
    native = runtime().addresses
    known = {name: id(x) for name, x in named.items()}
    known |= {"slow": general, "acquire": native.acquire, "release": native.release, **call_layout.numpy_functions()}
    table: Any = ctypes.CFUNCTYPE(ctypes.c_void_p)(addresses[objects.TABLE])()
    objects.fill(table, known)
    ctypes.c_uint64.from_address(end_slot).value = addresses[objects_buffer.ARRAY_DEALLOC]
    # From here on every call of a jitted function begins in machine code.
    ctypes.c_uint64.from_address(slot).value = addresses[objects_call.CALL]


def _no_memory(nbytes: int) -> None:
    raise out_of_memory(nbytes)


# --- the class of buffers ---


class _Slot(ctypes.Structure):
    _fields_ = (("slot", ctypes.c_int), ("function", ctypes.c_void_p))


class _Spec(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("basicsize", ctypes.c_int),
        ("itemsize", ctypes.c_int),
        ("flags", ctypes.c_uint),
        ("slots", ctypes.POINTER(_Slot)),
    )


class _Method(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


def _buffer_class(addresses: Mapping[str, int]) -> Any:
    """The class of memory that results lie in; its instances are made by machine code."""
    to_numpy = _Method(b"to_numpy", addresses[objects_buffer.TO_NUMPY], _NO_ARGUMENTS, b"The elements, not copied.")
    methods = (_Method * 2)(to_numpy, _Method(None, None, 0, None))
    slots = (_Slot * 4)(
        _Slot(_TP_DEALLOC, addresses[objects_buffer.DEALLOC]),
        _Slot(_BF_GETBUFFER, addresses[objects_buffer.GETBUFFER]),
        _Slot(_TP_METHODS, ctypes.addressof(methods)),
        _Slot(0, None),
    )
    spec = _Spec(b"nxjax.backends.cpu.call.Buffer", objects_buffer.SIZE, 0, _NO_INSTANCES, slots)
    _alive.extend((methods, slots, spec))
    make = ctypes.pythonapi.PyType_FromSpec
    make.restype, make.argtypes = ctypes.py_object, (ctypes.POINTER(_Spec),)
    kind: Any = make(ctypes.byref(spec))
    UNCHANGING.add(kind)
    kind.__doc__ = "Memory of the CPU executor's results: aligned to 64 bytes, given back to its pool in the end."
    return kind


def _to_numpy(buffer: Any) -> NDArray:
    """The elements, without a copy; they keep the buffer alive. For types that the machine code leaves to NumPy."""
    type_: ArrayType = ctypes.py_object.from_address(id(buffer) + objects_buffer.TYPE).value
    if not type_.size or not type_.dtype.itemsize:
        empty = np.empty(type_.shape, type_.dtype)
        empty.flags.writeable = False
        return empty
    return np.frombuffer(buffer, type_.dtype).reshape(type_.shape)
