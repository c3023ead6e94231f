"""Shardings as Shardy text: meshes of the module, attributes of values, and which devices a module is for.

Knows shardings and text, no op. Shardy's own propagation and XLA's partitioner do the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from nxjax.errors import ShardingError
from nxjax.trace.layouts import program_layouts
from nxjax.trace.mesh import BaseMesh, Mesh
from nxjax.trace.program import Program
from nxjax.trace.sharding import UNCONSTRAINED, NamedSharding, Sharding

Shardings = Sequence[Sharding | None]


@final
class Partitioning:
    """How many partitions a module has, on which devices, and the meshes that its text names.

    Attributes:
        size: number of partitions.
        devices: one per partition, in order; None where only their number is known.
    """

    def __init__(self, size: int, devices: tuple[Any, ...] | None) -> None:
        self.size = size
        self.devices = devices
        self._symbols: dict[Any, str] = {}
        self._lines: list[str] = []

    def mesh(self, mesh: BaseMesh) -> str:
        """The symbol of ``mesh``, written into the module once."""
        ids = self._order(mesh)
        key = (mesh.shape_tuple, ids)
        found = self._symbols.get(key)
        if found is None:
            found = self._symbols[key] = f"@mesh_{len(self._symbols)}" if self._symbols else "@mesh"
            axes = ", ".join(f"{axis_text(mesh, n)}={size}" for n, size in mesh.shape_tuple)
            order = f", device_ids=[{', '.join(map(str, ids))}]" if ids is not None else ""
            self._lines.append(f"  sdy.mesh {found} = <[{axes}]{order}>")
        return found

    def _order(self, mesh: BaseMesh) -> tuple[int, ...] | None:
        """Which partition each device of the mesh is; None where they stand in order."""
        if self.devices is None or not isinstance(mesh, Mesh):
            return None
        place = {d: i for i, d in enumerate(self.devices)}
        ids = tuple(place[d] for d in mesh.device_list)
        return None if ids == tuple(range(len(ids))) else ids

    def places(self, mesh: BaseMesh) -> tuple[int, ...]:
        """Which partition each device of the mesh is."""
        return self._order(mesh) or tuple(range(mesh.size))

    def sharding(self, sharding: Sharding, ndim: int, open: bool = False) -> str:
        """``<@mesh, [{"x"}, {}]>`` for a value of rank ``ndim``; ``open`` lets the compiler add axes."""
        if not isinstance(sharding, NamedSharding):
            raise ShardingError(
                "jit: a value on a single device cannot take part in a computation over several",
                got=sharding,
                expected=f"shardings over {self.size} devices",
                fix="nx.device_put(x, NamedSharding(mesh, P())) puts a copy on each device of a mesh",
            )
        dims: list[str] = []
        for dim in range(ndim):
            spec = sharding.spec
            if dim < len(spec) and spec.partitions[dim] is UNCONSTRAINED:
                dims.append("{?}")
            else:
                names = [axis_text(sharding.mesh, n) for n in spec.axes(dim)]
                dims.append("{" + ", ".join([*names, "?"] if open else names) + "}")
        return f"<{self.mesh(sharding.mesh)}, [{', '.join(dims)}]>"

    def attribute(self, sharding: Sharding | None, ndim: int) -> str:
        """``sdy.sharding = ...`` for an argument or a result; empty where nothing is said."""
        return "" if sharding is None else f"sdy.sharding = #sdy.sharding{self.sharding(sharding, ndim)}"

    def on_first(self, count: int) -> str:
        """``sdy.sharding = ...`` for an operation with ``count`` results that runs on the first partition alone."""
        symbol = "@first_alone"
        if symbol not in self._symbols:
            self._symbols[symbol] = symbol
            self._lines.append(f"  sdy.mesh {symbol} = <[], device_ids=[0]>")
        each = ", ".join([f"<{symbol}, []>"] * max(count, 1))
        return f"sdy.sharding = #sdy.sharding_per_value<[{each}]>"

    def lines(self) -> list[str]:
        """The module's meshes."""
        return list(self._lines)


def axis_text(mesh: BaseMesh, name: Any) -> str:
    """An axis name as a quoted string; names that are no strings, or would read the same, are told apart by place."""
    text = str(name)
    if not isinstance(name, str) or sum(str(n) == text for n in mesh.axis_names) > 1:
        text = f"{text}_{mesh.axis_names.index(name)}"
    text = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def partitioning(
    program: Program,
    in_shardings: Shardings = (),
    out_shardings: Shardings = (),
) -> Partitioning:
    """The devices that a program with these shardings of its arguments and results is for.

    Raises:
        ShardingError: they are not the same devices.
    """
    given = [s for s in (*in_shardings, *out_shardings) if s is not None]
    found: list[tuple[tuple[Any, ...] | None, int, Any]] = []
    for layout in (*given, *program_layouts(program)):
        mesh = layout.mesh if isinstance(layout, NamedSharding) else layout
        if isinstance(mesh, BaseMesh):
            devices = mesh.device_list if isinstance(mesh, Mesh) else None
            found.append((devices, mesh.size, layout))
        else:
            assert isinstance(mesh, Sharding)
            found.append((mesh.device_list, mesh.num_devices, layout))
    if not found:
        return Partitioning(1, None)
    known = [f for f in found if f[0] is not None]
    devices, size, first = known[0] if known else found[0]
    for other, other_size, layout in found:
        if other_size != size or (other is not None and devices is not None and set(other) != set(devices)):
            raise ShardingError(
                "jit: arguments, results and constraints lie on different devices",
                got=f"{first} and {layout}",
                expected="one set of devices for the whole program",
                fix="move arrays with nx.device_put(x, NamedSharding(mesh, spec)) to one mesh",
            )
    return Partitioning(size, devices)
