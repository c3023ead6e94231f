"""What every compressor answers, and the one that compresses nothing. Knows no method of compression."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, final

from nxjax import lax
from nxjax import numpy as jnp
from nxjax.distributed.blocks import checked
from nxjax.errors import ParameterError, ShapeError
from nxjax.trace import tree
from nxjax.trace.partition import PartitionSpec


class Memory(NamedTuple):
    """The state of a compressor between steps: a tree of arrays. Save it in checkpoints.

    Attributes:
        own: each device's part; leaves with a first dimension of devices, in `nx.shard_map` of size 1.
        shared: the part that is the same on all.
    """

    own: Any
    shared: Any


class Compressor(ABC):
    """A mean over devices that sends fewer bytes than `lax.pmean`.

    Attributes:
        axis_name: name, or tuple of names, of the mesh axes whose devices share gradients.
        specs: `Memory` of partition specs, for ``in_specs`` and ``out_specs`` of `nx.shard_map`.
    """

    def __init__(self, axis_name: Any) -> None:
        self.axis_name = tuple(axis_name) if isinstance(axis_name, list) else axis_name  # pyright: ignore[reportUnknownArgumentType]

    @property
    def specs(self) -> Memory:
        return Memory(PartitionSpec(self.axis_name), PartitionSpec())

    @abstractmethod
    def start(self, grads: Any, devices: int) -> tuple[Any, Any]:
        """The initial `Memory`: ``own`` for one device, without the first dimension; ``shared``."""

    @abstractmethod
    def mean(self, grads: Any, own: Any, shared: Any) -> tuple[Any, Any, Any]:
        """The mean, and the new memory."""

    def init(self, grads: Any, devices: int | None = None) -> Memory:
        """The memory before the first step: empty.

        Args:
            grads: pytree of float arrays as the gradients are (such as the parameters), or of their shapes and dtypes.
            devices: how many share gradients. Leave it out inside `nx.shard_map`.

        Raises:
            DtypeError: a leaf is not of a real float dtype.
            ParameterError: ``devices`` is not a whole number from 1.
            UnboundAxisError: it is left out, and no enclosing transform binds the axis.
        """
        rows = 1
        if devices is None:
            devices = lax.axis_size(self.axis_name)
        else:
            rows = checked(f"{self}: devices", devices, 1)
        own, shared = self.start(grads, devices)
        return Memory(tree.map(lambda x: jnp.broadcast_to(x, (rows, *x.shape)), own), shared)

    def __call__(self, grads: Any, memory: Memory) -> tuple[Any, Memory]:
        """The mean of the devices' gradients, the same bits on all, and what to remember.

        Args:
            grads: this device's gradients. With ``check_vma=True`` of `nx.shard_map`, those of shared parameters are
                sums over the devices already: use ``check_vma=False``.
            memory: of `init`, or of the call before.

        Raises:
            DtypeError: a leaf is not of a real float dtype.
            ShapeError: ``memory`` is not that of one device, or of other gradients.
            UnboundAxisError: nothing around binds the axis.
        """
        for x in tree.leaves(memory.own):
            if x.shape[:1] != (1,):
                raise ShapeError(
                    f"{self}: memory.own is not that of one device",
                    got=x.type,
                    expected="a first dimension of size 1",
                    fix="call it inside nx.shard_map, with compressor.specs for the memory",
                )
        mean, own, shared = self.mean(grads, tree.map(lambda x: x[0], memory.own), memory.shared)
        return mean, Memory(tree.map(lambda x: x[None], own), shared)

    def resize(self, memory: Memory, grads: Any, devices: int) -> Memory:
        """``memory`` for another number of devices. The unsent sum stays the same.

        Args:
            memory: of all former devices, outside `nx.shard_map`.
            grads: as for `init`.
            devices: their new number.

        Raises:
            ParameterError: ``devices`` is not a whole number from 1.
        """
        return self.moved(memory, grads, checked(f"{self}: devices", devices, 1))

    def moved(self, memory: Memory, grads: Any, devices: int) -> Memory:
        """`resize`, if the shapes of a device's memory do not depend on the number of devices."""
        own = tree.map(lambda x: jnp.broadcast_to(jnp.asarray(x).mean(0), (devices, *x.shape[1:])), memory.own)
        return Memory(own, memory.shared)

    def __repr__(self) -> str:
        return f"compress.{type(self).__name__.lower()}({self.axis_name!r})"


def check_memory(what: str, kept: Any, shape: tuple[int, ...]) -> None:
    """Raise if what is remembered has another shape than it should.

    Raises:
        ShapeError: so it is.
    """
    if kept is None or tuple(kept.shape) != shape:
        raise ShapeError(
            f"{what}: the memory is of other gradients",
            got="nothing" if kept is None else kept.type,
            expected=f"shape {shape}",
            fix="make it by compressor.init(grads); after a change of devices, by compressor.resize",
        )


@final
class Uncompressed(Compressor):
    """See `none`."""

    def start(self, grads: Any, devices: int) -> tuple[Any, Any]:
        return (), ()

    def mean(self, grads: Any, own: Any, shared: Any) -> tuple[Any, Any, Any]:
        return lax.pmean(grads, self.axis_name), own, shared

    def __repr__(self) -> str:
        return f"compress.none({self.axis_name!r})"


def none(axis_name: Any) -> Compressor:
    """`lax.pmean` as a compressor, for comparison.

    >>> compressor = nx.distributed.compress.none("i")
    >>> nx.vmap(lambda g: compressor(g, compressor.init(g))[0], axis_name="i")(jnp.array([1.0, 3.0])).tolist()
    [2.0, 2.0]
    """
    if axis_name is None:
        raise ParameterError("compress.none: axis_name", got=None, expected="the name of an axis")
    return Uncompressed(axis_name)
