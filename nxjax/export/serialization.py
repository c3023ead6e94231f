"""`Exported` to bytes and back: every field of the table in `format`, and checks of all of them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, Final

from nxjax.errors import GradientError, InvalidFileError, LoweringError, NxError
from nxjax.export import format as fb
from nxjax.export import trees
from nxjax.export.exported import (
    DisabledSafetyCheck,
    Exported,
    ExportedType,
    SymbolicType,
    maximum_supported_calling_convention_version,
    minimum_supported_calling_convention_version,
)
from nxjax.trace.mesh import AbstractMesh, AxisType
from nxjax.trace.partition import PartitionSpec
from nxjax.trace.sharding import NamedSharding
from nxjax.trace.types import ArrayType

_AXES: Final = {1: AxisType.Auto, 2: AxisType.Explicit, 3: AxisType.Manual}
_AXIS_NUMBERS: Final = {kind: number for number, kind in _AXES.items()}
# Elements of one argument; more is no array but damage.
_LARGEST: Final = 2**48


def serialize(exported: Exported, vjp_order: int = 0) -> bytes:
    """See `Exported.serialize`."""
    return fb.write(_table(exported, vjp_order))


def _table(e: Exported, vjp_order: int) -> fb.Fields:
    if vjp_order > 0 and not e.has_vjp():
        raise GradientError(
            f"export: {e.fun_name} has no derivative to write", got=f"vjp_order={vjp_order}", fix="lower vjp_order"
        )
    types = list(dict.fromkeys((*e.in_avals, *e.out_avals)))
    shardings = list(dict.fromkeys(s for s in (*e.in_shardings, *e.out_shardings) if s is not None))
    meshes = list(dict.fromkeys(s.mesh.abstract_mesh for s in shardings))
    named = {s: _sharding(s, meshes.index(s.mesh.abstract_mesh)) for s in shardings}
    values = {t: _value(t) for t in types}

    def sharding_table(s: Any) -> fb.Fields:
        return {} if s is None else {"named_sharding": named[s]}

    def places(given: Sequence[Any]) -> list[int]:
        return [0 if s is None else 1 + shardings.index(s) for s in given]

    return {
        "serialization_version": fb.VERSION,
        "function_name": e.fun_name,
        "in_tree": trees.written(e.in_tree, e.in_avals, "arguments"),
        "in_avals": [values[t] for t in e.in_avals],
        "out_tree": trees.written(e.out_tree, e.out_avals, "results"),
        "out_avals": [values[t] for t in e.out_avals],
        "nr_devices": e.nr_devices,
        "in_shardings": [sharding_table(s) for s in e.in_shardings],
        "out_shardings": [sharding_table(s) for s in e.out_shardings],
        "platforms": list(e.platforms),
        "ordered_effects": [{"type_name": n} for n in e.ordered_effects],
        "unordered_effects": [{"type_name": n} for n in e.unordered_effects],
        "disabled_checks": [_check(c) for c in e.disabled_safety_checks],
        "mlir_module_serialized": e.mlir_module_serialized,
        "calling_convention_version": e.calling_convention_version,
        "module_kept_var_idx": list(e.module_kept_var_idx),
        "uses_global_constants": e.uses_global_constants,
        "vjp": _table(e.vjp(), vjp_order - 1) if vjp_order > 0 else None,
        "unique_avals": [values[t] for t in types],
        "unique_abstract_meshes": [_mesh(m) for m in meshes],
        "unique_named_shardings": [named[s] for s in shardings],
        "in_avals_idxs": [types.index(t) for t in e.in_avals],
        "out_avals_idxs": [types.index(t) for t in e.out_avals],
        "in_shardings_idxs": places(e.in_shardings),
        "out_shardings_idxs": places(e.out_shardings),
    }


def _value(type: ExportedType) -> fb.Fields:
    shape = [str(n) for n in type.shape]
    return {"shape": shape, "dtype": fb.number_of(type.dtype), "memory_space": fb.DEVICE_MEMORY}


def _check(check: DisabledSafetyCheck) -> fb.Fields:
    target = check.is_custom_call()
    if target is None:
        return {"kind": fb.PLATFORM_CHECK}
    return {"kind": fb.CUSTOM_CALL_CHECK, "custom_call_target": target}


def _mesh(mesh: AbstractMesh) -> fb.Fields:
    return {
        "axis_sizes": list(mesh.axis_sizes),
        "axis_names": [str(n) for n in mesh.axis_names],
        "axis_types": [_AXIS_NUMBERS[t] for t in mesh.axis_types],
    }


def _sharding(s: NamedSharding, mesh: int) -> fb.Fields:
    entries = [
        () if p is None or p is PartitionSpec.UNCONSTRAINED else p if isinstance(p, tuple) else (p,) for p in s.spec
    ]
    return {
        "mesh": _mesh(s.mesh.abstract_mesh),
        "spec": {
            "partitions": [{"axes": list(axes)} for axes in entries],
            "reduced": sorted(s.spec.reduced),
            "unreduced": sorted(s.spec.unreduced),
        },
        "memory_kind": s.memory_kind,
        "abstract_mesh_idx": mesh,
    }


# --- reading ---


def deserialize(blob: bytes | bytearray | memoryview) -> Exported:
    """Read a function that `Exported.serialize` or JAX wrote.

    It accepts any bytes. The module inside is read on first use, first in a child process. *Calling* it runs its
    computation, so trust it like any program.

    Raises:
        InvalidFileError: not an exported function, damaged, or with nodes that are not registered.

    >>> blob = nx.export.export(nx.jit(lambda x: x + 1))(1.0).serialize()
    >>> float(deserialize(blob).call(2.0))
    3.0
    """
    return _checked(fb.read(blob))


def _checked(table: fb.Fields) -> Exported:
    """A table whose fields may be anything."""
    try:
        return _exported(table)
    except NxError:
        raise
    except (TypeError, ValueError, KeyError, IndexError, OverflowError, RecursionError, AttributeError) as error:
        raise InvalidFileError("exported function: the bytes are damaged", got=repr(error)[:200]) from None


def _exported(t: fb.Fields) -> Exported:
    shardings = [_read_sharding(s, t) for s in t["unique_named_shardings"] or ()]
    types = [_read_value(v) for v in t["unique_avals"] or ()]
    in_avals = _all_values(t, "in_avals", types)
    out_avals = _all_values(t, "out_avals", types)
    version = t["calling_convention_version"]
    low, high = minimum_supported_calling_convention_version, maximum_supported_calling_convention_version
    if not low <= version <= high:
        raise InvalidFileError(
            "exported function: of another calling convention", got=version, expected=f"{low} to {high}"
        )
    effects = [str(e["type_name"]) for e in t["ordered_effects"] or ()]
    if effects:
        raise InvalidFileError("exported function: it has effects in order, which nxjax does not read", got=effects)
    platforms = tuple(t["platforms"] or ())
    if not platforms:
        raise InvalidFileError("exported function: no platform")
    data = t["mlir_module_serialized"]
    if data is None:
        raise InvalidFileError("exported function: it has no module")
    kept_field = t["module_kept_var_idx"]
    kept = tuple(int(i) for i in (kept_field if kept_field is not None else ()))
    if list(kept) != sorted(set(kept)) or (kept and kept[-1] >= len(in_avals)):
        raise InvalidFileError("exported function: its module takes arguments that do not exist", got=kept[:8])
    inner = t["vjp"]

    def derivative(_: Exported) -> Exported:
        found = _checked(inner)
        if len(found.in_avals) != len(in_avals) + len(out_avals) or len(found.out_avals) != len(in_avals):
            raise InvalidFileError("exported function: its derivative has another signature")
        return found

    return Exported(
        fun_name=t["function_name"] or "function",
        in_tree=trees.read(t["in_tree"], in_avals, "arguments"),
        in_avals=in_avals,
        out_tree=trees.read(t["out_tree"], out_avals, "results"),
        out_avals=out_avals,
        platforms=platforms,
        mlir_module_serialized=bytes(data),
        module_kept_var_idx=kept,
        nr_devices=t["nr_devices"] or t["nr_devices_short"] or 1,
        in_shardings=_all_shardings(t, "in_shardings", shardings, len(in_avals)),
        out_shardings=_all_shardings(t, "out_shardings", shardings, len(out_avals)),
        calling_convention_version=version,
        uses_global_constants=bool(t["uses_global_constants"]),
        disabled_safety_checks=tuple(_read_check(c) for c in t["disabled_checks"] or ()),
        unordered_effects=tuple(str(e["type_name"]) for e in t["unordered_effects"] or ()),
        _get_vjp=None if inner is None else derivative,
    )


def _all_values(t: fb.Fields, name: str, types: Sequence[ExportedType]) -> tuple[ExportedType, ...]:
    """By index as files are written since April 2026, else one by one as before."""
    places = t[f"{name}_idxs"]
    if places is not None and len(places):
        return tuple(types[int(i)] for i in places)
    return tuple(_read_value(v) for v in t[name] or ())


def _read_value(v: fb.Fields) -> ExportedType:
    dtype = fb.dtype_of(v["dtype"])
    shape: list[int | str] = []
    for text in v["shape"] or ():
        if re.fullmatch(r"[0-9]{1,18}", text):
            shape.append(int(text))
        elif re.fullmatch(r"[-A-Za-z0-9_+*/%(), ]{1,200}", text):
            shape.append(text)
        else:
            raise InvalidFileError("exported function: a size is not valid", got=repr(text)[:60])
    sizes = tuple(n for n in shape if isinstance(n, int))
    if math.prod(sizes) > _LARGEST or len(shape) > 64:
        raise InvalidFileError("exported function: an argument or result beyond any memory", got=shape[:8])
    return ArrayType(sizes, dtype) if len(sizes) == len(shape) else SymbolicType(tuple(shape), dtype)


def _all_shardings(t: fb.Fields, name: str, known: Sequence[NamedSharding], count: int) -> tuple[Any, ...]:
    places = t[f"{name}_idxs"]
    if places is not None and len(places):
        found = tuple(known[int(i) - 1] if i else None for i in places)
    else:
        tables = [s["named_sharding"] for s in t[name] or ()]
        found = tuple(None if n is None else _read_sharding(n, t) for n in tables)
    if found and len(found) != count:
        raise InvalidFileError(
            "exported function: another number of shardings than values", got=len(found), expected=count
        )
    return found or (None,) * count


def _read_sharding(s: fb.Fields, t: fb.Fields) -> NamedSharding:
    meshes = t["unique_abstract_meshes"] or ()
    m = meshes[s["abstract_mesh_idx"]] if meshes else s["mesh"]
    sizes = tuple(int(n) for n in (m["axis_sizes"] if m["axis_sizes"] is not None else ()))
    kinds = tuple(_AXES[int(k)] for k in (m["axis_types"] if m["axis_types"] is not None else ()))
    mesh = AbstractMesh(sizes, tuple(m["axis_names"] or ()), axis_types=kinds)
    spec = s["spec"] or {}
    entries = [tuple(p["axes"] or ()) or None for p in spec.get("partitions") or ()]
    parted = PartitionSpec(
        *entries,
        reduced=frozenset(spec.get("reduced") or ()),
        unreduced=frozenset(spec.get("unreduced") or ()),
    )
    return NamedSharding(mesh, parted, memory_kind=s["memory_kind"])


def _read_check(c: fb.Fields) -> DisabledSafetyCheck:
    if c["kind"] == fb.CUSTOM_CALL_CHECK:
        return DisabledSafetyCheck.custom_call(str(c["custom_call_target"]))
    if c["kind"] == fb.PLATFORM_CHECK:
        return DisabledSafetyCheck.platform()
    if c["kind"] == fb.SHAPE_CHECK:
        return DisabledSafetyCheck("shape_assertions")
    raise LoweringError("exported function: it disables a check that nxjax does not know", got=c["kind"])
