"""`nx.export`: functions as versioned StableHLO with a signature, in `jax.export`'s format; names as there.

exported = nx.export.export(nx.jit(f), platforms=("cpu", "tpu"))(nx.ShapeDtypeStruct((8, 3), nx.float32))
nx.export.save("f.nxp", exported, vjp_order=1)
y = nx.export.load("f.nxp").call(x)
"""

from __future__ import annotations

from nxjax.export.exported import (
    DisabledSafetyCheck,
    Exported,
    SymbolicType,
    maximum_supported_calling_convention_version,
    minimum_supported_calling_convention_version,
)
from nxjax.export.files import load, save
from nxjax.export.lowering import default_export_platform, export
from nxjax.export.serialization import deserialize
from nxjax.export.symbolic import SymbolicScope, is_symbolic_dim, symbolic_args_specs, symbolic_shape
from nxjax.export.trees import register_namedtuple_serialization, register_pytree_node_serialization

__all__ = [
    "DisabledSafetyCheck", "Exported", "SymbolicScope", "SymbolicType", "default_export_platform", "deserialize",
    "export", "is_symbolic_dim", "load", "maximum_supported_calling_convention_version",
    "minimum_supported_calling_convention_version", "register_namedtuple_serialization",
    "register_pytree_node_serialization", "save", "symbolic_args_specs", "symbolic_shape",
]  # fmt: skip
