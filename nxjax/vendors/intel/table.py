"""What Intel's NPU compiler takes, in our own words: the table for machines that do not have it.

Sources: the operations that the open compiler's importer lists (github.com/openvinotoolkit/npu_compiler,
``frontend/IE.cpp``), OpenVINO's page on the NPU device (static shapes; int8 and float16), and compilations of
every op of the vocabulary for the platforms 3720, 4000, 5010 and 5020 with the compiler of OpenVINO 2026.4. Every op of
the vocabulary has a form that it takes; what it refuses is a matter of ranks and element types. Where the compiler is
present its answer decides.
"""

from __future__ import annotations

from typing import Final

from nxjax.lower.npu.graph import Node, Tensor, held_graphs
from nxjax.lower.npu.ops import those
from nxjax.lower.npu.placement import Rule
from nxjax.lower.placement import YES, Verdict
from nxjax.trace import dtypes
from nxjax.trace.dtypes import short_name

# Generations of the NPU by their platform numbers, and the processors that have them.
PLATFORMS: Final[dict[str, str]] = {
    "3720": "Meteor Lake, Arrow Lake",
    "4000": "Lunar Lake",
    "5010": "Panther Lake",
    "5020": "",
}
DEFAULT_PLATFORM: Final = "4000"
# The largest float16.
HALF: Final = 65504.0
# Memory layouts end at this rank.
MAX_RANK: Final = 5
# Element types that its importer knows; those of a cast's result are fewer.
TYPES: Final = frozenset(
    (
        dtypes.bool_, dtypes.int4, dtypes.uint4, dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16, dtypes.int32,
        dtypes.uint32, dtypes.int64, dtypes.uint64, dtypes.float16, dtypes.float32, dtypes.float64,
    )
)  # fmt: skip
CASTS: Final = TYPES - {dtypes.int4, dtypes.uint4, dtypes.int16, dtypes.uint16, dtypes.uint32, dtypes.uint64}
# Sums of plain integers of these types have no kernel; quantized ones are another matter.
NO_SUMS: Final = frozenset((dtypes.int8, dtypes.int16))
# Layers that are one operation.
RECURRENT: Final = frozenset(("lstm", "gru", "rnn"))
PRODUCTS: Final = frozenset(those(lambda op: op.weighted)) | {"batch_matmul"}


def rule(platform: str = DEFAULT_PLATFORM) -> Rule:
    """The table of one generation.

    >>> x = Tensor("x", (1,) * 6, dtypes.float32)
    >>> rule()(Node("relu", (x,), (x,))).reason
    'x has 6 dimensions; the NPU addresses up to 5'
    """

    def verdict(node: Node) -> Verdict:
        tensors = [*node.operands, *node.outputs]
        return next((v for t in tensors if not (v := tensor_verdict(t)).ok), op_verdict(node, platform))

    return verdict


def tensor_verdict(t: Tensor) -> Verdict:
    """Whether the NPU can hold a tensor."""
    if len(t.shape) > MAX_RANK:
        return Verdict(
            False,
            f"{t.name} has {len(t.shape)} dimensions; the NPU addresses up to {MAX_RANK}",
            "merge dimensions with reshape before this op",
        )
    if t.dtype not in TYPES:
        return Verdict(False, f"{t.name} is {short_name(t.dtype)}, which its compiler does not know", "cast to float16")
    return YES


def op_verdict(node: Node, platform: str) -> Verdict:
    """Refusals that depend on the op."""
    y = node.output
    if held_graphs(node):
        return Verdict(
            False, f"{node.op} was not seen to be compiled", "choose with nx.numpy.where, or unroll the loop"
        )
    if node.op in ("add", "sub") and y.grid is None and y.dtype in NO_SUMS:
        return Verdict(False, f"{node.op} of plain {short_name(y.dtype)} has no kernel", "cast to int32 before it")
    if node.op == "cast" and y.dtype not in CASTS:
        return Verdict(False, f"a cast to {short_name(y.dtype)} is not compiled", "cast to int32")
    if node.op == "cast" and y.dtype == dtypes.float64 and platform == "3720":
        return Verdict(False, "a cast to f64 is not compiled for platform 3720", "cast to float32")
    if node.op == "pad" and platform == "3720":
        padded = sum(any(p) for p in node.attrs["padding"])
        if padded > 2 and y.shape[0] > 1:
            return Verdict(False, f"padding {padded} axes of a batch exceeds its strides", "pad axis by axis")
    return YES


def remarks(node: Node) -> str:
    """What the NPU computes otherwise than the graph says, or an empty string."""
    tensors = [*node.operands, *node.outputs]
    grids = [t.grid for t in tensors if t.grid is not None]
    # Products of 8-bit integers add their bias in 32 bits.
    eight = node.op in PRODUCTS and all(t.grid is not None and t.dtype.itemsize == 1 for t in node.operands[:2])
    bias = node.inputs[2] if eight and len(node.inputs) > 2 else None
    if any(t.reach > HALF for t in tensors if t is not bias):
        return "values beyond 65504 (masks of minus infinity?) overflow float16: use a mask of about -10000"
    if any(g.dtype == dtypes.int16 for g in grids) and (node.op in PRODUCTS or len(grids) > 1):
        return "16-bit activations are computed in float16, which has 11 significant bits"
    return ""
