"""What a builder writes for communication between the devices of a mesh: Shardy's manual computations, collectives.

Knows meshes, axis names and text, no op. Every collective is written with the partitions that take part, as rows of
`replica_groups`; several of one module share a channel, as in JAX.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, final

import numpy as np

from nxjax.errors import ShardingError
from nxjax.lower.stablehlo import types as mlir
from nxjax.lower.stablehlo.sharding import Partitioning, axis_text
from nxjax.trace import dtypes
from nxjax.trace.mesh import BaseMesh
from nxjax.trace.sharding import NamedSharding, PartitionSpec
from nxjax.trace.types import ArrayType

_CHANNEL = "channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>"
_GLOBAL = f"{_CHANNEL}, use_global_device_ids"
Groups = Sequence[Sequence[int]] | None


@final
class Manual:
    """Inside a manual computation: its mesh, and the axes that the program itself handles, of enclosing ones too."""

    def __init__(self, mesh: BaseMesh, axes: Iterable[Any]) -> None:
        self.mesh = mesh
        self.axes = frozenset(axes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Manual) and (self.mesh, self.axes) == (other.mesh, other.axes)

    def __hash__(self) -> int:
        return hash((self.mesh, self.axes))


class CommunicationBuilder(ABC):
    """The part of `Builder` that several devices need."""

    manual: Manual | None
    indent: str
    lines: list[str]
    module: Any

    @abstractmethod
    def fresh(self) -> str: ...

    @abstractmethod
    def line(self, text: str) -> None: ...

    @abstractmethod
    def inner(self, manual: Manual | None = None) -> Any: ...

    @abstractmethod
    def op(self, name: str, xs: Any, out: Any, attrs: str = "", regions: Any = ()) -> Any: ...

    @abstractmethod
    def simple(self, name: str, xs: Any, out: ArrayType) -> Any: ...

    @abstractmethod
    def constant(self, value: Any, type: ArrayType) -> Any: ...

    @property
    def partitioning(self) -> Partitioning:
        return self.module.partitioning

    def constrain(self, x: Any, sharding: Any) -> Any:
        """``x`` laid out as a `NamedSharding` says; itself in a module for one device."""
        spread = self.partitioning
        if spread.size == 1 or (self.manual is not None and self.manual.axes >= frozenset(sharding.mesh.axis_names)):
            return x
        name = self.fresh()
        text = spread.sharding(sharding, x.type.ndim)
        self.line(f"{name} = sdy.sharding_constraint {x} {text} : {mlir.tensor(x.type)}")
        return type(x)(name, x.type)

    def communicates(self, names: Iterable[Any]) -> bool:
        """Whether ``names`` are axes that this code handles itself."""
        return self.manual is not None and self.manual.axes >= frozenset(names)

    # --- manual computations ---

    def manual_computation(
        self,
        mesh: BaseMesh,
        axes: Sequence[Any],
        xs: Sequence[Any],
        in_specs: Sequence[PartitionSpec],
        out_types: Sequence[ArrayType],
        out_specs: Sequence[PartitionSpec],
        in_types: Sequence[ArrayType],
        body: Callable[..., Sequence[Any]],
    ) -> tuple[Any, ...]:
        """``body(builder, *shards)`` on every device, along ``axes`` of the mesh; ``in_types`` are those of shards."""
        spread = self.partitioning
        around = self.manual.axes if self.manual is not None else frozenset[Any]()
        manual = Manual(mesh, around | frozenset(axes))
        partly = len(manual.axes) < len(mesh.axis_names)

        def shardings(specs: Sequence[PartitionSpec], types: Sequence[ArrayType]) -> str:
            named = [
                spread.sharding(NamedSharding(mesh, s), t.ndim, open=partly) for s, t in zip(specs, types, strict=True)
            ]
            return f"[{', '.join(named)}]"

        ref = self.fresh()
        left = f"{ref}:{len(out_types)} = " if len(out_types) > 1 else f"{ref} = " if out_types else ""
        inner = self.inner(manual)
        kind: Any = type(xs[0]) if xs else None
        args = [kind(self.fresh(), t) for t in in_types]
        head = ", ".join(f"{a}: {mlir.tensor(a.type)}" for a in args)
        self.line(
            f"{left}sdy.manual_computation({', '.join(x.name for x in xs)}) "
            f"in_shardings={shardings(in_specs, [x.type for x in xs])} "
            f"out_shardings={shardings(out_specs, out_types)} "
            f"manual_axes={{{', '.join(axis_text(mesh, n) for n in mesh.axis_names if n in axes)}}} ({head}) {{"
        )
        results = body(inner, *args)
        self.lines += inner.lines
        outs = ", ".join(mlir.tensor(r.type) for r in results)
        self.line(f"  sdy.return {', '.join(r.name for r in results)} : {outs}" if results else "  sdy.return")
        sources = ", ".join(mlir.tensor(x.type) for x in xs)
        targets = ", ".join(mlir.tensor(t) for t in out_types)
        self.line(f"}} : ({sources}) -> ({targets})")
        made: Any = kind if xs else type(results[0]) if results else None
        return tuple(made(f"{ref}#{i}" if len(out_types) > 1 else ref, t) for i, t in enumerate(out_types))

    # --- collectives ---

    def _here(self) -> Manual:
        assert self.manual is not None
        return self.manual

    def partition_groups(self, names: Sequence[Any], groups: Groups = None) -> list[list[int]]:
        """The partitions that communicate: one row per group, its members in the order of ``names``."""
        mesh = self._here().mesh
        grid = np.array(self.partitioning.places(mesh)).reshape(mesh.axis_sizes)
        last = [mesh.axis_names.index(n) for n in names]
        rest = [i for i in range(grid.ndim) if i not in last]
        members = int(np.prod([grid.shape[i] for i in last], dtype=int))
        found = grid.transpose(*rest, *last).reshape(-1, members).tolist()
        return found if groups is None else [[row[i] for i in group] for row in found for group in groups]

    def _groups_text(self, names: Sequence[Any], groups: Groups) -> str:
        rows = self.partition_groups(names, groups)
        width = max(map(len, rows))
        # Groups of unequal length are filled up with -1.
        filled = [[*row, *(-1,) * (width - len(row))] for row in rows]
        return f"replica_groups = dense<{filled}> : tensor<{len(filled)}x{width}xi64>"

    def _reducer(self, hlo: str, dtype: dtypes.DType) -> Any:
        scalar = ArrayType((), dtype)
        return [((scalar, scalar), lambda b, x, y: b.simple(hlo, (x, y), scalar))]

    def all_reduce(self, hlo: str, x: Any, names: Sequence[Any], groups: Groups = None) -> Any:
        """``x`` of all devices along the axes, combined by one binary operation."""
        attrs = f"{self._groups_text(names, groups)}, {_GLOBAL}"
        return self.op("stablehlo.all_reduce", (x,), x.type, attrs, regions=self._reducer(hlo, x.type.dtype))

    def all_gather(self, x: Any, out: ArrayType, dim: int, names: Sequence[Any], groups: Groups = None) -> Any:
        """``x`` of all devices along the axes, joined in dimension ``dim``."""
        attrs = f"all_gather_dim = {dim} : i64, {self._groups_text(names, groups)}, {_GLOBAL}"
        return self.op("stablehlo.all_gather", (x,), out, attrs)

    def reduce_scatter(self, x: Any, out: ArrayType, dim: int, names: Sequence[Any], groups: Groups = None) -> Any:
        """The sum of ``x`` over the axes, of which each device has its block of dimension ``dim``."""
        attrs = f"scatter_dimension = {dim} : i64, {self._groups_text(names, groups)}, {_GLOBAL}"
        return self.op("stablehlo.reduce_scatter", (x,), out, attrs, regions=self._reducer("add", x.type.dtype))

    def all_to_all(self, x: Any, dim: int, count: int, names: Sequence[Any], groups: Groups = None) -> Any:
        """Entry i of dimension ``dim`` goes to the device at i, and what arrives takes its place."""
        if count == 1:
            return x
        attrs = (
            f"split_dimension = {dim} : i64, concat_dimension = {dim} : i64, split_count = {count} : i64, "
            f"{self._groups_text(names, groups)}, {_CHANNEL}"
        )
        return self.op("stablehlo.all_to_all", (x,), x.type, attrs)

    def collective_permute(self, x: Any, perm: Sequence[tuple[int, int]], names: Sequence[Any]) -> Any:
        """``x`` of the device at the source, on the device at the target; zeros where nothing arrives."""
        pairs = [[row[s], row[t]] for row in self.partition_groups(names) for s, t in perm]
        if not pairs:
            return self.constant(0, x.type)
        attrs = f"source_target_pairs = dense<{pairs}> : tensor<{len(pairs)}x2xi64>, {_CHANNEL}"
        return self.op("stablehlo.collective_permute", (x,), x.type, attrs)

    def axis_index(self, name: Any) -> Any:
        """Where this device stands along the axis: int32."""
        here = self._here()
        mesh = here.mesh
        index = ArrayType((), dtypes.int32)
        at = mesh.axis_names.index(name)
        if mesh.axis_sizes[at] == 1:
            return self.constant(0, index)
        rest = [n for n in mesh.axis_names if n not in here.axes]
        if rest:
            # Which partition this is has a meaning only where all axes are manual.
            none = PartitionSpec()

            def body(b: Any) -> list[Any]:
                return [b.axis_index(name)]

            return self.manual_computation(mesh, rest, (), (), (index,), (none,), (), body)[0]
        places = self.partitioning.places(mesh)
        if sorted(places) != list(range(len(places))):
            raise ShardingError("axis_index: the mesh is not over all devices of the program", got=mesh)
        along = np.indices(mesh.axis_sizes)[at].ravel()
        table = np.zeros(len(places), np.int32)
        table[list(places)] = along
        known = self.constant(table, ArrayType((len(places),), dtypes.int32))
        own = self.op("stablehlo.partition_id", (), ArrayType((), dtypes.uint32))
        one = ArrayType((1,), dtypes.int32)
        found = self.op("stablehlo.dynamic_slice", (known, own), one, f"slice_sizes = {mlir.ints((1,))}")
        return self.simple("reshape", (found,), index)
