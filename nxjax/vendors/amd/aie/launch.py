"""Designs that aiecc has compiled, run on the chip: each dispatch as a program of XRT.

Knows dispatches, files by name, and AMD's runtime; not how a graph is walked (`execute`) nor how XRT works.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

from nxjax.backends.sensors import amdxdna
from nxjax.backends.sensors.reading import Roots
from nxjax.errors import NxError
from nxjax.kernels.aie.chip import AieArray
from nxjax.kernels.aie.spec import NDArray
from nxjax.lower.aie.lower import Dispatch
from nxjax.lower.npu.graph import Node
from nxjax.vendors.amd import xrt, xrt_runtime
from nxjax.vendors.amd.xrt_artifact import XrtArtifact, XrtBuffer

# What `pyxrt` calls the kernel of a design that aiecc made.
KERNEL: Final = "MLIR_AIE"


def artifact(one: Dispatch, stem: str, files: Mapping[str, bytes]) -> XrtArtifact:
    """A dispatch's program: ``stem.xclbin``, ``stem.insts.bin`` and the arguments of its design's sequence."""
    arguments = one.design.sequence.arguments
    result = arguments[-1][0]
    buffers = tuple(
        XrtBuffer(name, (t.size,), str(t.dtype), "out" if name == result else "in") for name, t in arguments
    )
    return XrtArtifact(files[f"{stem}.xclbin"], files[f"{stem}.insts.bin"], buffers, KERNEL)


@final
class Launcher:
    """Runs dispatches on this machine's NPU: called with a node and its host buffers, it fills the result's.

    Attributes:
        title: what runs them, for people.
    """

    def __init__(self, artifacts: Mapping[Node, XrtArtifact], npu: xrt.Npu) -> None:
        self.artifacts = artifacts
        self.npu = npu
        self.title = f"{npu.name} through XRT"

    def __call__(self, node: Node, buffers: dict[str, NDArray]) -> None:
        program = xrt_runtime.shared(self.npu).open(self.artifacts[node])
        rows = program.artifact
        results = program(*(buffers[b.name] for b in rows.inputs))
        buffers.update((b.name, y) for b, y in zip(rows.outputs, results, strict=True))


def missing(array: AieArray) -> str:
    """Why this machine's NPU, if it has one, cannot run designs for an array; empty if it can. Opens nothing."""
    reason = xrt.unavailable()
    names = [d.name for d in amdxdna.devices(Roots())]
    if reason or not names or any(xrt.compiler_name(xrt.chip_of(name)) == array.name for name in names):
        return reason
    return f"the NPU here is {', '.join(names)}, not {array.name}"


def launcher(
    dispatches: Mapping[Node, Dispatch], stems: Mapping[Node, str], files: Mapping[str, bytes], array: AieArray
) -> Launcher | str:
    """What runs compiled dispatches here, or why nothing does."""
    reason = xrt.unavailable()
    if reason:
        return reason
    try:
        found = xrt.devices()
    except NxError as error:
        return f"{error.what}: {error.got}"
    npu = next((n for n in found if n.device == array.name), None)
    if npu is None:
        return f"the NPU here is {', '.join(n.name for n in found) or 'none that is known'}, not {array.name}"
    # Equal designs are one program, so that they share their memory on the chip.
    known: dict[str, XrtArtifact] = {}
    made = {node: known.setdefault(stems[node], artifact(one, stems[node], files)) for node, one in dispatches.items()}
    return Launcher(made, npu)
