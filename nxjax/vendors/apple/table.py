"""What is known of Apple's Neural Engine, in our own words: Apple publishes no table of its operations.

Sources: Apple's guidance (machinelearning.apple.com/research/neural-engine-transformers: images channels first, four
dimensions; coremltools' guides: float16 for the Neural Engine, int8 by int8 from A17 Pro and M4 on), published
MLComputePlan reports of Core ML models (gathers are placed on the CPU), and catalogues measured on the chips
(ane-guide.readthedocs.io, aneforge.readthedocs.io: no product reductions, integers are not computed, limits of sizes
and kernels). Core ML decides when it loads a model, on the machine itself; a row here is an expectation.
"""

from __future__ import annotations

from typing import Final

from nxjax.lower.npu.graph import Node, Tensor
from nxjax.lower.placement import YES, Verdict
from nxjax.trace import dtypes

MAX_RANK: Final = 5
# The largest float16.
HALF: Final = 65504.0
# Sizes of images and of contractions, up to the A15.
MAX_SIZE: Final = 16384
# Widest convolution kernel.
MAX_KERNEL: Final = 13
MOVES: Final = frozenset(("reshape", "transpose", "broadcast_to"))
REFUSED: Final[dict[str, tuple[str, str]]] = {
    "gather": ("Core ML places gathers on the CPU", "index on the host, or multiply by a one-hot matrix"),
    "table": ("a table is a gather, which Core ML places on the CPU", "use an activation that Core ML has"),
    "if": ("a choice by data is not the Neural Engine's", "choose with nx.numpy.where"),
    "while": ("a loop by data is not the Neural Engine's", "ask for more steps with unroll=, or loop outside"),
    "top_k": ("it is not among the operations known to be native", "take argmax, or sort on the host"),
    "conv_3d": ("convolutions of volumes are not known to be native", "convolve slices with 2-D kernels"),
    "transpose_conv_3d": ("convolutions of volumes are not known to be native", "convolve slices with 2-D kernels"),
    "reduce_prod": ("the Neural Engine has no product along an axis", "sum logarithms"),
    **{
        op: ("its result is an integer, which the Neural Engine does not compute", f"leave the last {op} to the host")
        for op in ("argmax", "argmin")
    },
    "one_hot": ("its operand is an integer, which the Neural Engine does not compute", "make one-hot rows on the host"),
    "cumsum": ("not among the operations known to be native", "multiply by a triangular matrix of ones"),
}


def supports(node: Node) -> Verdict:
    """What to expect of one node.

    >>> x, i = Tensor("x", (4, 8), dtypes.float32), Tensor("i", (2,), dtypes.int32)
    >>> supports(Node("gather", (x, i), (x,), {"axis": 0})).reason
    'Core ML places gathers on the CPU'
    """
    if node.op in REFUSED:
        return Verdict(False, *REFUSED[node.op])
    for t in (*node.operands, *node.outputs):
        found = holds(t, node)
        if not found.ok:
            return found
    if node.op in ("conv_2d", "depthwise_conv_2d", "transpose_conv"):
        w = node.inputs[1]
        assert w is not None
        if max(w.shape[1:-1]) > MAX_KERNEL:
            size = "x".join(map(str, w.shape[1:-1]))
            return Verdict(False, f"a kernel of {size} is wider than {MAX_KERNEL}", "use smaller kernels in a row")
    return YES


def holds(t: Tensor, node: Node) -> Verdict:
    """Whether the Neural Engine holds a tensor."""
    if len(t.shape) > MAX_RANK:
        reason = f"{t.name} has {len(t.shape)} dimensions; Core ML has up to {MAX_RANK}"
        return Verdict(False, reason, "merge dimensions with reshape")
    if t.grid is None and t.dtype in dtypes.INTEGER:
        return Verdict(False, f"{t.name} is an integer, which the Neural Engine does not compute", "cast to float16")
    if node.op not in MOVES and not t.constant and max(t.shape, default=1) > MAX_SIZE:
        reason = f"{t.name} has {max(t.shape)} elements along an axis; up to {MAX_SIZE} fit on all chips"
        return Verdict(False, reason, "split the axis")
    return YES


def remarks(node: Node) -> str:
    """What holds on some chips only, or is computed otherwise than the graph says; else an empty string."""
    if node.op in ("sin", "cos"):
        return "sin and cos run on the Neural Engine from the A15 and M2 on"
    tensors = (*node.operands, *node.outputs)
    grids = [t.grid for t in tensors if t.grid is not None and not t.constant]
    if any(t.reach > HALF for t in tensors):
        return "values beyond 65504 (masks of minus infinity?) overflow float16: use a mask of about -10000"
    if any(g.dtype in (dtypes.int8, dtypes.uint8) for g in grids):
        return "int8 activations are multiplied as int8 from the A17 Pro and M4 on; earlier chips compute in float16"
    return ""
