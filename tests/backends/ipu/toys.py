"""Small codelets, chips and programs for tests of the IPU model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import numpy as np

from nxjax.kernels.ipu.chip import IpuChip, IpuSystem
from nxjax.kernels.ipu.spec import Codelet, Field
from nxjax.lower.ipu.mapping import linear
from nxjax.lower.ipu.program import Boxes, Execute, FieldConnection, Group, Variable


def toy_system(tiles: int = 4, ipus: int = 1, memory: int = 4096, **figures: Any) -> IpuSystem:
    figures = {"sync_cycles": 100, **figures}
    return IpuSystem("toy", "a toy", IpuChip("toy", "a toy", "ipu2", tiles, memory, 1e9, **figures), ipus)


@final
class Add(Codelet):
    """y = x + c."""

    kind = "multi"

    def __init__(self, c: float = 1.0, dtype: str = "float32", kind: str = "multi") -> None:
        self.c = c
        self.dtype = dtype
        self.kind = kind  # type: ignore[assignment]

    @property
    def name(self):
        return f"toy::Add<{self.dtype},{self.c},{self.kind}>"

    @property
    def fields(self):
        return (Field("x", "in", self.dtype), Field("y", "out", self.dtype))

    @property
    def source(self):
        return ""

    def meaning(self, arrays: Mapping[str, Any], attributes: Mapping[str, Any]):
        return {"y": (arrays["x"] + self.c).astype(self.dtype)}

    def cycles(self, sizes: Mapping[str, tuple[int, ...]], attributes: Mapping[str, Any], chip: IpuChip) -> int:
        return 10 * int(np.prod(sizes["y"]))

    def flops(self, sizes, attributes):
        return int(np.prod(sizes["y"]))

    def code_bytes(self, chip: IpuChip) -> int:
        return 64


@final
class Sum(Codelet):
    """y = sum(x), of one worker."""

    kind = "worker"

    @property
    def name(self):
        return "toy::Sum"

    @property
    def fields(self):
        return (Field("x", "in", "float32"), Field("y", "out", "float32"))

    @property
    def source(self):
        return ""

    def meaning(self, arrays: Mapping[str, Any], attributes: Mapping[str, Any]):
        x = arrays["x"]
        return {"y": x.reshape(len(x), -1).sum(1).reshape(arrays["y"].shape)}

    def cycles(self, sizes, attributes, chip: IpuChip) -> int:
        return 6 * int(np.prod(sizes["x"]))

    def code_bytes(self, chip: IpuChip) -> int:
        return 32


@final
class Less(Codelet):
    """y = x < limit, one element; and x += 1."""

    kind = "worker"

    def __init__(self, limit: int) -> None:
        self.limit = limit

    @property
    def name(self):
        return f"toy::Less<{self.limit}>"

    @property
    def fields(self):
        return (Field("x", "inout", "int32"), Field("y", "out", "bool"))

    @property
    def source(self):
        return ""

    def meaning(self, arrays: Mapping[str, Any], attributes: Mapping[str, Any]):
        return {"x": arrays["x"] + np.int32(1), "y": arrays["x"] < self.limit}

    def cycles(self, sizes, attributes, chip: IpuChip) -> int:
        return 6

    def code_bytes(self, chip: IpuChip) -> int:
        return 16


def variable(name: str, shape, tiles: int = 4, role="temporary", dtype="float32", grain: int = 4, first=0, **more):
    d = np.dtype(dtype)
    pieces = linear(int(np.prod(shape)), d.itemsize, tiles, first, grain)
    return Variable(name, tuple(shape), d, pieces, role, **more)


def each(codelet: Codelet, x: Variable, y: Variable) -> list[Group]:
    """A vertex for every box of y, which reads the same elements of x."""
    return [
        Group(codelet, p.tiles, {"x": FieldConnection(x, p.boxes), "y": FieldConnection(y, p.boxes)}) for p in y.pieces
    ]


def add(x: Variable, y: Variable, c: float = 1.0, **more) -> Execute:
    return Execute("add", tuple(each(Add(c, x.dtype.name), x, y)), **more)


def boxes(offsets, sizes, strides) -> Boxes:
    return Boxes(np.asarray(offsets, np.int64), tuple(sizes), tuple(strides))


@final
class Plus(Codelet):
    """y = a + b."""

    @property
    def name(self):
        return "toy::Plus"

    @property
    def fields(self):
        return (Field("a", "in", "float32"), Field("b", "in", "float32"), Field("y", "out", "float32"))

    @property
    def source(self):
        return ""

    def meaning(self, arrays: Mapping[str, Any], attributes: Mapping[str, Any]):
        return {"y": arrays["a"] + arrays["b"]}

    def cycles(self, sizes, attributes, chip: IpuChip) -> int:
        return int(np.prod(sizes["y"]))


def plus(a: Variable, b: Variable, y: Variable, **more) -> Execute:
    groups = [
        Group(
            Plus(),
            p.tiles,
            {"a": FieldConnection(a, p.boxes), "b": FieldConnection(b, p.boxes), "y": FieldConnection(y, p.boxes)},
        )
        for p in y.pieces
    ]
    return Execute("plus", tuple(groups), **more)
