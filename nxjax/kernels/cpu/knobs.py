"""Choices of the CPU compiler that a user's machine may want otherwise: sizes of blocks, layouts, what is fused.

A knob has the value that was measured to be good on one machine; inside `using` it has another. What is compiled
there may be faster or slower, and means the same; only the order in which floats are summed may change. Knobs are read
where kernels are planned, never where they run. Knows no kernel and no program.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, final

from nxjax.config.dataclass import dataclass
from nxjax.errors import ParameterError

_set: Final[ContextVar[Mapping[str, int]]] = ContextVar("nxjax_cpu_knobs")
_NONE: Final[Mapping[str, int]] = {}


@final
@dataclass(frozen=True, slots=True)
class Knob:
    """One choice; call it for its value.

    Attributes:
        name: as in ``using({name: value})``.
        default: what it is where nobody says otherwise.
        options: values worth trying, the default among them.
        what: what it decides.
    """

    name: str
    default: int
    options: tuple[int, ...]
    what: str

    def __call__(self) -> int:
        return _set.get(_NONE).get(self.name, self.default)


_KIB: Final = 1 << 10
_MIB: Final = 1 << 20
NEVER: Final = 1 << 40

GEMM_DEPTH: Final = Knob(
    "gemm.depth", 0, (0, 192, 256, 384, 768, 1536), "units of a block of depth, at most; 0: as vectors are wide"
)
GEMM_SECOND: Final = Knob(
    "gemm.second", 512 * _KIB, (128 * _KIB, 256 * _KIB, 512 * _KIB, _MIB), "bytes of the right operand in the cache"
)
GEMM_ROWS: Final = Knob("gemm.rows", 128, (32, 64, 128, 256, 512), "rows of an item, about")
GEMM_ITEMS: Final = Knob("gemm.items", 16, (4, 8, 16, 32, 64), "items that are wanted")
GEMM_WORK: Final = Knob("gemm.work", _MIB // 8, (_MIB // 8, _MIB // 2, 4 * _MIB), "products of an item, at least")
GEMM_OWN: Final = Knob(
    "gemm.own", 192 * _KIB, (48 * _KIB, 96 * _KIB, 192 * _KIB, 384 * _KIB), "bytes of panels an item makes"
)
GEMM_WHOLE: Final = Knob(
    "gemm.whole", 256 * _KIB, (0, 64 * _KIB, 256 * _KIB, 2 * _MIB, NEVER), "bytes up to which all is packed at once"
)
GEMM_VECTORS: Final = Knob("gemm.vectors", 0, (0, 1, 2, 3, 4), "vectors along a tile; 0: as registers allow")
GEMM_DIRECT: Final = Knob("gemm.direct", 1, (0, 1), "whether a right operand may be read as it lies")
CONV_RUN: Final = Knob("conv.run", 192 * _KIB, (48 * _KIB, 96 * _KIB, 192 * _KIB, 384 * _KIB), "bytes of a run's input")
CONV_ITEMS: Final = Knob("conv.items", 8, (2, 4, 8, 16, 32), "items that are worth having")
CONV_PACK: Final = Knob("conv.pack", 64 * _KIB, (16 * _KIB, 64 * _KIB, NEVER), "bytes of weights laid together first")
CONV_WINOGRAD: Final = Knob(
    "conv.winograd", 1, (0, 1, 2), "3x3 by fewer products: never, where it pays, wherever it can"
)
WINOGRAD_ROOM: Final = Knob("conv.winograd_room", 384 * _KIB, (192 * _KIB, 384 * _KIB, 768 * _KIB), "bytes of an item")
NEST_ITEM: Final = Knob("nest.item", 1 << 14, (1 << 12, 1 << 14, 1 << 16, 1 << 18), "points of an item, at least")
NEST_STREAM: Final = Knob("nest.stream", 16 * _MIB, (_MIB, 4 * _MIB, 16 * _MIB, NEVER), "bytes stored past the caches")
NEST_TRANSPOSE: Final = Knob(
    "nest.transpose", 4096, (256, 4096, 1 << 16, NEVER), "elements of an input in another order that is copied first"
)
NEST_CUT: Final = Knob("nest.cut", 1 << 15, (1 << 13, 1 << 15, 1 << 17), "elements of a block of a reduction")
FUSE_AGAIN: Final = Knob("fuse.again", 8, (2, 8, 32, 128), "weight of a value up to which it is made twice")
FUSE_CHEAP: Final = Knob("fuse.cheap", 4, (0, 4, 16), "weight of a value that is made again rather than stored")
FUSE_ROW: Final = Knob("fuse.row", 1 << 16, (1 << 12, 1 << 16, 1 << 20), "elements of a reduction inside of passes")
FUSE_MOST: Final = Knob("fuse.most", 160, (24, 64, 160, 320), "nodes of a kernel")
ATTENTION: Final = Knob(
    "attention.least", 4 * _MIB, (_MIB // 2, 4 * _MIB, NEVER), "bytes of scores that are not stored"
)

KNOBS: Final = {k.name: k for k in tuple(globals().values()) if isinstance(k, Knob)}


@contextmanager
def using(values: Mapping[str, int]) -> Generator[None]:
    """Inside, in this thread, the knobs named have these values, and all others their defaults.

    Raises:
        ParameterError: there is no such knob, or a value is negative.

    >>> with using({"gemm.depth": 768}):
    ...     GEMM_DEPTH()
    768
    >>> GEMM_DEPTH()
    0
    """
    wrong = [name for name in values if name not in KNOBS]
    if wrong:
        raise ParameterError("tune: no such choice", got=", ".join(wrong), expected=", ".join(KNOBS))
    if any(v < 0 for v in values.values()):
        raise ParameterError("tune: choices are not negative", got=dict(values))
    token = _set.set(dict(values))
    try:
        yield
    finally:
        _set.reset(token)


def changed() -> dict[str, int]:
    """The knobs that are not at their defaults now."""
    return {name: v for name, v in sorted(_set.get(_NONE).items()) if v != KNOBS[name].default}
