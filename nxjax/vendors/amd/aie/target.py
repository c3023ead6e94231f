"""AMD's XDNA arrays as targets of `nx.compile`: AIE MLIR text and C++ kernels, one design for every node they take.

The text is the artifact: it is read back, checked by our verifier and run by our model of the array. Where mlir-aie's
``aiecc`` is installed it compiles the designs, and the label is ``vendor-compiled``. Else it is ``own-model`` once the
model has run, and ``emitted`` before.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Final, final

from nxjax.backends.evidence import Label, digests
from nxjax.backends.target import Build, NpuTarget, Runner, Site, file_name, only, variant
from nxjax.backends.tools import CHECKED
from nxjax.errors import ExecutionError, LoweringError, ParameterError
from nxjax.kernels.aie.chip import LIMITS, NPU1, NPU2, AieArray
from nxjax.lower.aie.design import Design
from nxjax.lower.aie.lower import AieOptions, Dispatch, dispatch, verdict
from nxjax.lower.aie.parse import parse
from nxjax.lower.aie.text import mlir
from nxjax.lower.aie.verify import verify
from nxjax.lower.npu.chips import chip
from nxjax.lower.npu.graph import Node, NpuGraph
from nxjax.lower.npu.ops import op_of
from nxjax.lower.npu.placement import place
from nxjax.lower.placement import Placement, Verdict
from nxjax.ops.quant_grid import Rounding
from nxjax.vendors.amd.aie import aiecc
from nxjax.vendors.amd.aie.execute import ModelRunner
from nxjax.vendors.amd.aie.launch import KERNEL, launcher, missing
from nxjax.vendors.amd.aie.picture import filled, svg
from nxjax.vendors.probe import probe

OPTIONS: Final = ("columns", "tile", "legacy", "aiecc")
_EDGES: Final = ("quantize", "dequantize")


class Aie(NpuTarget):
    """One generation of AMD's array.

    Options of `build`: ``columns``: how many are used, 1 to all; ``tile``: (m, k, n) of products' tiles; both are the
    planner's unless given. ``legacy``: text for releases of mlir-aie that call the sequence ``aiex.runtime_sequence``.
    ``aiecc``: False leaves mlir-aie's compiler alone where it is installed.
    """

    array: ClassVar[AieArray]
    chip: ClassVar[str]
    format: ClassVar[str] = "aie-mlir"
    site: ClassVar[Site] = "edge"
    precision: ClassVar[tuple[str, ...]] = ("int8", "bfloat16")
    rules: ClassVar[str] = "what nxjax has designs for"

    def available(self) -> tuple[Label, str]:
        if aiecc.found() is not None:
            reason = missing(self.array)
            if not reason:
                return "hardware", ""
            return "vendor-compiled", f"aiecc compiles designs; nothing here runs them: {reason}"
        return "own-model", "mlir-aie's compiler (aiecc) is not on the PATH: our model of the array runs the designs"

    def supports(self, node: Node) -> Verdict:
        return self._supports(node, "double", AieOptions())

    def placed(self, subject: NpuGraph) -> list[Placement]:
        return place(subject, lambda n: self._supports(n, subject.rounding, AieOptions()))

    def _supports(self, node: Node, rounding: Rounding, settings: AieOptions) -> Verdict:
        if node.op == "reshape":
            return Verdict(True, "a view: nothing is computed")
        if node.op in _EDGES and (node.output.grid is None or node.operand().grid is None):
            return Verdict(False, "floats and integers are turned into each other where buffers are filled")
        return verdict(node, self.array, rounding, settings)

    def build(self, graph: NpuGraph, options: dict[str, object]) -> Build:
        """Write designs and kernels, check them, and compile them where aiecc is installed.

        Raises:
            ParameterError: an option that this target has not, or a value that it cannot have.
            ProgramError: the verifier refuses a design, which would be a mistake of the planner.
        """
        only(self.name, options, OPTIONS)
        settings = self._settings(options)
        legacy = _flag(self.name, options, "legacy", False)
        rows = place(graph, lambda n: self._supports(n, graph.rounding, settings))
        made: dict[Node, Dispatch] = {}
        for node, row in zip(graph.nodes, rows, strict=True):
            if row.device == "npu" and node.op != "reshape":
                made[node] = dispatch(node, self.array, graph.rounding, settings)
        base = file_name(graph.name, "").strip(".") or "graph"
        designs = _Designs(base, made, legacy)
        build = Build(designs.files, rows if made else [_left(r) for r in rows])
        build.files[f"{base}.json"] = json.dumps(self._manifest(graph, designs), indent=1).encode()
        if made:
            build.files["build.sh"] = aiecc.script(list(designs.texts), self.array.triple)
        _costs(build, made, self.array, chip(self.chip).launch or 0.0)
        build.notes += self._notes(graph, made)
        run = ModelRunner(graph, made, designs.parsed)
        title = f"nxjax array model of {self.array.name}" if made else "nxjax's NumPy kernels on the host"
        build.runner = Runner(run, title, "own-model" if made else "host", digests(designs.written))
        if not made:
            build.host = True
            build.record("loaded", "host", title)
        if made and _flag(self.name, options, "aiecc", True) and self._compile(build, designs):
            self._launch(build, run, designs)
        build.analysis = DesignAnalysis(designs, self.array)
        return build

    def _settings(self, options: dict[str, object]) -> AieOptions:
        columns, tile = options.get("columns"), options.get("tile")
        if columns is not None and (isinstance(columns, bool) or not isinstance(columns, int)):
            raise ParameterError(f"{self.name}: columns", got=repr(columns), expected=f"1 to {self.array.columns}")
        if isinstance(columns, int):
            self.array.device_name(columns)
        if tile is None:
            return AieOptions(columns)
        sizes: list[Any] = list(tile) if isinstance(tile, (tuple, list)) else []  # pyright: ignore[reportUnknownArgumentType]
        if len(sizes) != 3 or not all(isinstance(n, int) and n > 0 for n in sizes):
            raise ParameterError(f"{self.name}: tile", got=repr(tile), expected="(m, k, n), three positive integers")
        return AieOptions(columns, (sizes[0], sizes[1], sizes[2]))

    def _notes(self, graph: NpuGraph, made: dict[Node, Dispatch]) -> list[str]:
        found: list[str] = []
        if made:
            found.append(
                "cycles and times are those of a model, not measured: 'chip time' is the array's own, a latency has "
                f"{(chip(self.chip).launch or 0.0) * 1e6:.1f} us for each launch besides; the host's own work is not "
                "in them"
            )
        if any(n.output.grid is None for n in made):
            found.append("floats are computed in bfloat16, rounded after each tile of what is summed over")
        if len(made) > 1:
            found.append(f"{len(made)} launches: between them buffers go through the host's memory")
        if not made:
            found.append("the array takes no op of this graph: everything runs on the host")
        return found

    def _compile(self, build: Build, designs: _Designs) -> bool:
        """Whether aiecc compiled every design."""
        tools = aiecc.found()
        if tools is None:
            build.notes.append("aiecc is not on the PATH: build.sh compiles the designs on a machine that has it")
            return False
        graph, files = probe(quantized=True), dict[str, bytes]()
        other = {n: dispatch(n, self.array, graph.rounding, AieOptions()) for n in graph.nodes}
        another = _Designs("another", other, designs.legacy).files
        try:
            for stem in designs.texts:
                files.update(aiecc.compile_design(tools, stem, build.files, self.array.triple, another))
        except ExecutionError as error:
            build.blame(error, "vendor-compiler", Path(tools.aiecc).name, digests(designs.written))
            said = [f"{error.what}: {error.got or ''}".strip(": ")]
            build.notes.append(f"{tools.aiecc} did not compile the designs, which stay emitted text: {said[0]}")
            return False
        build.files.update(files)
        build.record(
            "compiled", "vendor-compiler", Path(tools.aiecc).name, took=digests(designs.written),
            gave=digests(files), status=0, answer=f"{len(designs.texts)} designs", checked=CHECKED,
        )  # fmt: skip
        build.notes.append(f"compiled by {tools.aiecc}")
        return True

    def _launch(self, build: Build, model: ModelRunner, designs: _Designs) -> None:
        """Run on this machine's NPU, if it has one of the generation."""
        found = launcher(designs.made, designs.stems, build.files, self.array)
        if isinstance(found, str):
            build.notes.append(f"the model runs the text, not the binaries: {found}")
            return
        binaries = [name for name in build.files if name.endswith((".xclbin", ".insts.bin"))]
        build.runner = Runner(replace(model, launch=found), found.title, "chip", digests(build.files, binaries))

    def _manifest(self, graph: NpuGraph, designs: _Designs) -> dict[str, Any]:
        """What a runtime needs: the steps in order, each with its files and the order of its buffers."""
        steps: list[dict[str, Any]] = []
        for node in graph.nodes:
            names = {"inputs": [t.name for t in node.operands], "output": node.output.name, "op": node.op}
            made = designs.made.get(node)
            if made is None:
                steps.append({"runs_on": "host", **names})
                continue
            stem = designs.stems[node]
            steps.append({
                "runs_on": "npu", **names, "design": f"{stem}.mlir", "kernels": f"{stem}.cc",
                "xclbin": f"{stem}.xclbin", "instructions": f"{stem}.insts.bin", "kernel": KERNEL,
                "buffers": [
                    {"name": name, "dtype": str(t.dtype), "elements": t.size, "bytes": t.nbytes,
                     "constant": f"{designs.numbers[node]}_{name}.bin" if name in made.constants else None,
                     "operand": made.operand(name),
                     "result": name == made.design.sequence.arguments[-1][0]}
                    for name, t in made.design.sequence.arguments
                ],
                "plan": list(made.plan.why),
            })  # fmt: skip
        tensor = lambda t: {"name": t.name, "dtype": str(t.dtype), "shape": list(t.shape)}
        return {
            "format": "nxjax aie", "version": 1, "device": self.array.name, "runs_on": self.array.device,
            "inputs": [tensor(t) for t in graph.inputs], "outputs": [tensor(t) for t in graph.outputs], "steps": steps,
        }  # fmt: skip


@final
class _Designs:
    """The texts of dispatches, equal designs once, each read back and checked.

    Attributes:
        files: all that the artifact has of them.
        written: the designs and the kernels, which are what aiecc compiles.
    """

    def __init__(self, base: str, made: dict[Node, Dispatch], legacy: bool) -> None:
        self.made = made
        self.legacy = legacy
        self.texts: dict[str, str] = {}
        self.files: dict[str, bytes] = {}
        self.written: dict[str, bytes] = {}
        self.stems: dict[Node, str] = {}
        self.numbers: dict[Node, str] = {}
        self.parsed: dict[Node, Design] = {}
        self.checked: dict[str, Design] = {}
        several = len({d.key for d in made.values()}) > 1
        known: dict[tuple[object, ...], str] = {}
        data: dict[str, bytes] = {}
        for i, (node, one) in enumerate(made.items()):
            stem = known.setdefault(one.key, f"{base}_{len(known)}" if several else base)
            self.stems[node], self.numbers[node] = stem, f"{base}_{i}" if len(made) > 1 else base
            if stem not in self.texts:
                functions = tuple(replace(f, object_file=f"{stem}.o") for f in one.design.functions)
                self.texts[stem] = mlir(replace(one.design, functions=functions), legacy=legacy)
                self.files[f"{stem}.mlir"] = self.texts[stem].encode()
                self.files[f"{stem}.cc"] = one.source.encode()
                self.checked[stem] = verify(parse(self.texts[stem]))
            self.parsed[node] = self.checked[stem]
            for name, x in one.constants.items():
                data[f"{self.numbers[node]}_{name}.bin"] = x.tobytes()
        self.written = dict(self.files)
        self.files.update(data)


@final
class DesignAnalysis:
    """What a report says of the designs: `nxjax.backends.target.Analysis`."""

    def __init__(self, designs: _Designs, array: AieArray) -> None:
        self._designs = designs
        self._array = array

    @property
    def hlo(self) -> str:
        """The designs' text."""
        return "\n".join(self._designs.texts.values())

    @property
    def memory(self) -> dict[str, int]:
        """Bytes that the fullest tile of each kind holds."""
        found = {"core": 0, "mem": 0}
        for d in self._designs.checked.values():
            for t in d.tiles:
                if t.kind != "shim":
                    found[t.kind] = max(found[t.kind], filled(d, t))
        return found

    def named(self, arguments: Sequence[str], results: Sequence[str]) -> None:
        """Nothing: designs have their own names for buffers."""

    def lines(self) -> list[str]:
        found: list[str] = []
        for node, one in self._designs.made.items():
            found.append(f"{node.name or node.op} ({self._designs.stems[node]}.mlir): {one.plan.why[0]}")
            found += [f"  {line}" for line in one.plan.why[1:]]
        return found

    def to_dict(self) -> dict[str, Any]:
        memory = {kind: {"used": n, "there": LIMITS[kind].memory} for kind, n in self.memory.items()}  # pyright: ignore[reportArgumentType]
        return {"device": self._array.name, "memory": memory, "plans": self.lines()}

    def svg(self) -> str:
        """The design with the most cores."""
        designs = self._designs.checked
        if not designs:
            raise LoweringError("report: the array takes no op of this graph: there is nothing to draw")
        stem = max(designs, key=lambda s: len(designs[s].cores))
        return svg(designs[stem], f"{stem}.mlir on {designs[stem].device}")

    def _repr_html_(self) -> str:
        return self.svg()


def _left(row: Placement) -> Placement:
    """A row of a graph of which nothing runs on the array: neither do its views."""
    return replace(row, device="host")


def _flag(target: str, options: dict[str, object], name: str, default: bool) -> bool:
    value = options.get(name, default)
    if not isinstance(value, bool):
        raise ParameterError(f"{target}: {name}", got=repr(value), expected="True or False")
    return value


def _costs(build: Build, made: dict[Node, Dispatch], array: AieArray, launch: float) -> None:
    if not made:
        return
    cycles = [d.cycles for d in made.values()]
    seconds, total = sum(c.seconds for c in cycles), sum(c.total for c in cycles)
    work = sum(op_of(n).macs(n) for n in made)
    whole = all(row.device == "npu" for row in build.placements)
    build.cost.add("latency" if whole else "npu latency", seconds + launch * len(made), "s", "model")
    build.cost.add("chip time", seconds, "s", "model")
    build.cost.add("cycles", total, "cycles", "model")
    build.cost.add("launches", len(made), "", "model")
    if work:
        build.cost.add("share of int8 peak", work / (total * array.macs), "of 1", "model")
    weights = sum(x.nbytes for d in made.values() for x in d.constants.values())
    build.cost.add("weights", weights, "bytes", "model")


# npu2 is npu4, npu5 and npu6 of AMD's driver.
AieNpu1: Final = variant(
    Aie, "aie-npu1", "AMD XDNA array (Phoenix, Hawk Point), AIE MLIR",
    aliases=("aie-phoenix", "xdna1"), array=NPU1, chip="xdna1",
)  # fmt: skip
AieNpu2: Final = variant(
    Aie, "aie-npu2", "AMD XDNA 2 array (Strix, Strix Halo, Krackan), AIE MLIR",
    aliases=("aie-npu4", "aie-strix", "xdna2"), array=NPU2, chip="xdna2",
)  # fmt: skip
TARGETS: Final[tuple[type[NpuTarget], ...]] = (AieNpu1, AieNpu2)
