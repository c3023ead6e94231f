"""One-node graphs with random grids, and LiteRT's reference kernels to run them on. Shared by the conformity tests."""

from typing import Any

import numpy as np
from hypothesis import strategies as st

from nxjax.lower.npu.formats import tflite
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.lower.npu.interpret import interpret
from nxjax.ops.quant_grid import Grid

I8, I16, I32, I64, F32 = (np.dtype(name) for name in ("int8", "int16", "int32", "int64", "float32"))


def litert(graph: NpuGraph, inputs: list[np.ndarray], reference: bool = True) -> list[np.ndarray]:
    """The results of LiteRT's reference kernels (or of its optimized ones, without XNNPACK)."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    kind = OpResolverType.BUILTIN_REF if reference else OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    runtime: Any = Interpreter(model_content=tflite.write(graph), experimental_op_resolver_type=kind)
    runtime.allocate_tensors()
    for place, x in zip(runtime.get_input_details(), inputs, strict=True):
        runtime.set_tensor(place["index"], x)
    runtime.invoke()
    return [runtime.get_tensor(place["index"]) for place in runtime.get_output_details()]


def conforms(graph: NpuGraph, inputs: list[np.ndarray], reference: bool = True) -> None:
    """Not one element differs between LiteRT and our meaning of the graph."""
    theirs, ours = litert(graph, inputs, reference), interpret(graph.check(), inputs)
    for t, want, got in zip(graph.outputs, theirs, ours, strict=True):
        assert want.dtype == got.dtype and want.shape == got.shape, t.name
        wrong = np.argwhere(want != got)
        assert not len(wrong), (
            f"{len(wrong)} of {want.size} differ in\n{graph}\n"
            f"first at {wrong[0]}: LiteRT {want[tuple(wrong[0])]}, ours {got[tuple(wrong[0])]}"
        )


class Random:
    """What an example draws: a seeded generator with the words of these tests."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.count = 0

    def __repr__(self) -> str:
        return "Random"

    def size(self, low: int = 1, high: int = 7) -> int:
        return int(self.rng.integers(low, high + 1))

    def choice(self, *values: Any) -> Any:
        return values[int(self.rng.integers(len(values)))]

    def scale(self, low: float = 1e-4, high: float = 10.0) -> float:
        return float(np.float32(np.exp(self.rng.uniform(np.log(low), np.log(high)))))

    def grid(self, dtype: np.dtype = I8, low: float = 1e-3, high: float = 10.0, zero: int | None = None) -> Grid:
        """Any scale; for int8 any zero point, its ends often."""
        if dtype == I16:
            return Grid(dtype, self.scale(low / 256, high / 256))
        point = self.choice(-128, 127, 0, self.size(-128, 127), self.size(-128, 127)) if zero is None else zero
        return Grid(dtype, self.scale(low, high), point)

    def stored(self, shape: tuple[int, ...], dtype: np.dtype = I8) -> np.ndarray:
        """Stored values: uniform, small, or only the ends, so that sums saturate."""
        info = np.iinfo(dtype)
        kind = self.choice("uniform", "uniform", "small", "ends")
        if kind == "ends":
            return self.rng.choice(np.array([info.min, info.max], dtype), shape)
        low, high = (-9, 9) if kind == "small" else (info.min, info.max)
        return self.rng.integers(low, high, shape, endpoint=True).astype(dtype)

    def tensor(self, shape: tuple[int, ...], kind: Grid | np.dtype, data: np.ndarray | None = None) -> Tensor:
        self.count += 1
        grid = kind if isinstance(kind, Grid) else None
        return Tensor(f"t{self.count}", shape, kind.dtype if isinstance(kind, Grid) else kind, grid, data)

    def node(self, op: str, operands: list[Tensor | None], *outs: Tensor, **attrs: Any) -> NpuGraph:
        """The graph of one node; its inputs are the operands that are not constant."""
        inputs = [t for t in operands if t is not None and not t.constant]
        return NpuGraph("one", inputs, list(outs), [Node(op, tuple(operands), outs, attrs)])

    def agree(self, op: str, grids: list[Grid], shapes: list[tuple[int, ...]], out: Tensor, **attrs: Any) -> None:
        """LiteRT and ours agree on a node with random operands of these grids and shapes."""
        operands = [self.tensor(shape, grid) for shape, grid in zip(shapes, grids, strict=True)]
        values = [self.stored(t.shape, t.dtype) for t in operands]
        conforms(self.node(op, list(operands), out, **attrs), values)


randoms = st.integers(0, 2**32 - 1).map(Random)
