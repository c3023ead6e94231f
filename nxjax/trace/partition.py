"""`PartitionSpec`: which mesh axes cut which dimension of an array. Names only: knows no mesh and no array."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Final, final

from nxjax.errors import ShardingError
from nxjax.trace.boundary import entry
from nxjax.trace.params import Printed, param_class


@final
@param_class
class Unconstrained(Printed):
    """The one value `PartitionSpec.UNCONSTRAINED`: the compiler may cut this dimension as it likes."""

    __slots__ = ()
    param_name: ClassVar[str] = "Unconstrained"
    _one: ClassVar[Unconstrained | None] = None

    def __new__(cls) -> Unconstrained:
        if cls._one is None:
            cls._one = super().__new__(cls)
        return cls._one

    def param_fields(self, canonical: bool) -> dict[str, Any]:
        return {}

    def __repr__(self) -> str:
        return "UNCONSTRAINED"

    def __copy__(self) -> Unconstrained:
        return self

    def __deepcopy__(self, memo: Any) -> Unconstrained:
        return self


UNCONSTRAINED: Final = Unconstrained()

# None: not cut; a name; names from major to minor; UNCONSTRAINED.
Partition = Any


def _entry(partition: Any) -> Partition:
    """One entry in the only form it is kept in: one name stands alone, no name is None."""
    if isinstance(partition, (tuple, list)):
        names: tuple[Any, ...] = tuple(partition)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        for name in names:
            if name is None or name is UNCONSTRAINED or isinstance(name, (tuple, list)):
                raise ShardingError(
                    "PartitionSpec: a tuple in a spec holds axis names only",
                    got=repr(partition),  # pyright: ignore[reportUnknownArgumentType]
                    expected="one entry per dimension: None, a name, a tuple of names or UNCONSTRAINED",
                )
        return None if not names else names[0] if len(names) == 1 else names
    return partition


@final
@param_class
class PartitionSpec(Printed):
    """How the dimensions of an array are split over the axes of a mesh. `P` is short for it.

    Entry i is for dimension i: None (whole on every device), a mesh axis, a tuple of axes (the first the slowest), or
    `P.UNCONSTRAINED` (left to the compiler). Dimensions beyond the entries are whole.

    A leaf, not a container, to `nx.tree`.

    >>> P = PartitionSpec
    >>> P("data", None, ("x", "y")), P(("data",)), P()
    (P('data', None, ('x', 'y')), P('data',), P())
    """

    __slots__ = ("_hash", "_partitions")

    UNCONSTRAINED: ClassVar[Unconstrained] = UNCONSTRAINED
    param_name: ClassVar[str] = "PartitionSpec"

    @entry
    def __init__(
        self,
        *entries: Partition,
        unreduced: Iterable[Any] = (),
        reduced: Iterable[Any] = (),
        partitions: Iterable[Partition] | None = None,
    ) -> None:
        if frozenset(unreduced) or frozenset(reduced):
            raise ShardingError(
                "PartitionSpec: unreduced and reduced axes exist in types that hold shardings, which nxjax has not",
                got=f"unreduced={set(unreduced)}, reduced={set(reduced)}",
                fix="use nx.shard_map with nx.lax.psum to say where a sum is taken",
            )
        self._partitions: tuple[Partition, ...] = tuple(
            _entry(p) for p in (entries if partitions is None else partitions)
        )
        self._hash = hash(("PartitionSpec", self._partitions))

    def param_fields(self, canonical: bool) -> dict[str, Any]:
        return {"partitions": self._partitions}

    @property
    def partitions(self) -> tuple[Partition, ...]:
        return self._partitions

    @property
    def unreduced(self) -> frozenset[Any]:
        return frozenset()

    @property
    def reduced(self) -> frozenset[Any]:
        return frozenset()

    def axes(self, dim: int) -> tuple[Any, ...]:
        """The names that split dimension ``dim``, the slowest first; none if it is whole or unconstrained."""
        entry = self._partitions[dim] if dim < len(self._partitions) else None
        if entry is None or entry is UNCONSTRAINED:
            return ()
        return entry if isinstance(entry, tuple) else (entry,)  # pyright: ignore[reportUnknownVariableType]

    @property
    def names(self) -> tuple[Any, ...]:
        """All names, in the order of dimensions."""
        return tuple(name for dim in range(len(self._partitions)) for name in self.axes(dim))

    @property
    def open(self) -> bool:
        """Whether some dimension is unconstrained."""
        return any(p is UNCONSTRAINED for p in self._partitions)

    def update(self, partitions: Iterable[Partition] | None = None, **_: Any) -> PartitionSpec:
        return self if partitions is None else PartitionSpec(*partitions)

    def index(self, value: Partition) -> int:
        return self._partitions.index(_entry(value))

    def count(self, value: Partition) -> int:
        return self._partitions.count(_entry(value))

    def __getitem__(self, i: Any) -> Any:
        return self._partitions[i]

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._partitions)

    def __len__(self) -> int:
        return len(self._partitions)

    def __add__(self, other: Any) -> PartitionSpec:
        if isinstance(other, (PartitionSpec, tuple)):
            return PartitionSpec(*self._partitions, *other)  # pyright: ignore[reportUnknownArgumentType]
        return NotImplemented

    def __radd__(self, other: Any) -> PartitionSpec:
        if isinstance(other, tuple):
            return PartitionSpec(*other, *self._partitions)  # pyright: ignore[reportUnknownArgumentType]
        return NotImplemented

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartitionSpec) and self._partitions == other._partitions

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> Any:
        return PartitionSpec, self._partitions

    def __repr__(self) -> str:
        return f"P({repr(self._partitions)[1:-1]})"


P = PartitionSpec
