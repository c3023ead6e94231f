"""The bytes of an exported function: the FlatBuffer that JAX's `jax.export` reads and writes.

Knows the schema and plain data, no program and no StableHLO. Schema: jax/_src/export/serialization.fbs of JAX 0.10,
whose slots never change. Behind the FlatBuffer, where its readers do not look, stands a hash of it, so that damage is
found before anything is run.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

from nxjax.errors import InvalidFileError
from nxjax.lower.npu.formats import flatbuffer
from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType

Fields = dict[str, Any]

SCHEMA: Final = flatbuffer.Schema(
    """PyTreeDef: kind:i8 children:[PyTreeDef] children_names:[str] custom_name:str custom_auxdata:[u8]
AbstractDevice: device_kind:str num_cores:u32 platform:str
AbstractMesh: axis_sizes:[u32] axis_names:[str] axis_types:[i8] abstract_device:AbstractDevice
PartitionSpecOneAxis: axes:[str]
PartitionSpec: partitions:[PartitionSpecOneAxis] reduced:[str] unreduced:[str]
NamedSharding: mesh:AbstractMesh spec:PartitionSpec memory_kind:str abstract_mesh_idx:u32
AbstractValue: kind:i8 shape:[str] dtype:i8 memory_space:i8
Sharding: kind:i8 hlo_sharding_proto:[u8] named_sharding:NamedSharding
Effect: type_name:str
DisabledSafetyCheck: kind:i8 custom_call_target:str
Exported: serialization_version:u16 function_name:str in_tree:PyTreeDef in_avals:[AbstractValue] out_tree:PyTreeDef
  out_avals:[AbstractValue] nr_devices_short:i16 in_shardings:[Sharding] out_shardings:[Sharding] platforms:[str]
  ordered_effects:[Effect] unordered_effects:[Effect] disabled_checks:[DisabledSafetyCheck]
  mlir_module_serialized:bytes calling_convention_version:u16 module_kept_var_idx:[u16] uses_global_constants:bool
  vjp:Exported nr_devices:u32 unique_avals:[AbstractValue] unique_abstract_meshes:[AbstractMesh]
  unique_named_shardings:[NamedSharding] in_avals_idxs:[u32] out_avals_idxs:[u32] in_shardings_idxs:[u32]
  out_shardings_idxs:[u32]
""",
    {},
)

# Kinds of tree nodes.
LEAF, NONE, TUPLE, LIST, DICT, CUSTOM = range(6)
# What writers put there whatever the schema: older readers know versions 2 and 3 only.
VERSION: Final = 3
DEVICE_MEMORY: Final = 1
PLATFORM_CHECK, CUSTOM_CALL_CHECK, SHAPE_CHECK = range(3)
_MAGIC: Final = b"NXSHA256"

_NUMBERS: Final[dict[DType, int]] = {
    dtypes.bool_: 0, dtypes.int8: 1, dtypes.int16: 2, dtypes.int32: 3, dtypes.int64: 4, dtypes.uint8: 5,
    dtypes.uint16: 6, dtypes.uint32: 7, dtypes.uint64: 8, dtypes.float16: 9, dtypes.float32: 10, dtypes.float64: 11,
    dtypes.complex64: 12, dtypes.complex128: 13, dtypes.bfloat16: 14, dtypes.int4: 15, dtypes.uint4: 16,
    dtypes.float8_e4m3b11fnuz: 17, dtypes.float8_e4m3fn: 18, dtypes.float8_e4m3fnuz: 19, dtypes.float8_e5m2: 20,
    dtypes.float8_e5m2fnuz: 21, dtypes.float0: 22, dtypes.key: 27,
}  # fmt: skip
_DTYPES: Final = {number: dtype for dtype, number in _NUMBERS.items()}
_FOREIGN: Final = {23: "float8_e4m3", 24: "float8_e3m4", 25: "float8_e8m0fnu", 26: "float4_e2m1fn", 28: "key<rbg>",
                   29: "key<unsafe_rbg>"}  # fmt: skip


def number_of(dtype: DType) -> int:
    """A dtype's number in the format."""
    return _NUMBERS[dtype]


def dtype_of(number: int) -> DType:
    """The inverse of `number_of`.

    Raises:
        InvalidFileError: no dtype, or one that nxjax has not.
    """
    found = _DTYPES.get(number)
    if found is None:
        raise InvalidFileError(
            "exported function: an argument or result has a dtype that nxjax does not have",
            got=_FOREIGN.get(number, f"dtype number {number}"),
            expected=", ".join(dtypes.short_name(d) for d in _NUMBERS),
        )
    return found


def write(exported: Fields) -> bytes:
    """The bytes of an ``Exported`` table."""
    data = flatbuffer.write(SCHEMA, "Exported", exported, b"")
    return data + _MAGIC + hashlib.sha256(data).digest()


def read(data: bytes | bytearray | memoryview) -> Fields:
    """The ``Exported`` table of any bytes at all.

    Raises:
        InvalidFileError: they are none, or damaged.
    """
    try:
        whole = bytes(data)
    except TypeError:
        raise InvalidFileError("exported function: not bytes", got=type(data).__name__) from None
    if whole[-40:-32] == _MAGIC and hashlib.sha256(whole[:-40]).digest() != whole[-32:]:
        raise InvalidFileError(
            "exported function: the bytes are damaged", got="another hash than when they were written"
        )
    try:
        return flatbuffer.read(SCHEMA, "Exported", whole, b"", "exported function")
    except RecursionError:
        raise InvalidFileError("exported function: its parts are nested without end") from None
