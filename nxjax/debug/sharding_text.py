"""Shardings as pictures in text: `nx.debug.visualize_sharding` and its like."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nxjax.errors import ShardingError
from nxjax.trace.array import as_value
from nxjax.trace.boundary import entry
from nxjax.trace.core import Array, Tracer
from nxjax.trace.sharding import Sharding


def sharding_text(shape: Sequence[int], sharding: Sharding) -> str:
    """A box per block of an array of rank 1 or 2, with the devices that have it.

    Raises:
        ShardingError: another rank, or a shape that cannot be cut so.
    """
    sizes = tuple(shape)
    if len(sizes) not in (1, 2):
        raise ShardingError("visualize_sharding: only arrays of rank 1 and 2 have a picture", got=sizes)
    sharding.check(sizes, "visualize_sharding")
    tiles = sharding.tiles(len(sizes))
    rows, columns = tiles if len(sizes) == 2 else (1, tiles[0])
    held: dict[tuple[int, int], list[int]] = {}
    for device, block in zip(sharding.device_list, sharding.blocks(len(sizes)).tolist(), strict=True):
        held.setdefault((block[0], block[1]) if len(sizes) == 2 else (0, block[0]), []).append(device.id)
    platform = sharding.device_list[0].platform.upper()
    grid = [[f" {platform} {','.join(map(str, sorted(held[r, c])))} " for c in range(columns)] for r in range(rows)]
    width = max(len(cell) for row in grid for cell in row)

    def rule(left: str, middle: str, right: str) -> str:
        return left + middle.join(["─" * width] * columns) + right

    body = [f"│{'│'.join(cell.center(width) for cell in row)}│" for row in grid]
    between = f"\n{rule('├', '┼', '┤')}\n"
    return "\n".join([rule("┌", "┬", "┐"), between.join(body), rule("└", "┴", "┘")])


@entry
def visualize_sharding(
    shape: Sequence[int],
    sharding: Sharding,
    *,
    use_color: bool = True,
    scale: float = 1.0,
    min_width: int = 9,
    max_width: int = 80,
    color_map: Any = None,
) -> None:
    """Print which device has which part of an array of ``shape``.

    Args:
        shape: of rank 1 or 2.
        sharding: of an array of this shape.
        use_color, scale, min_width, max_width, color_map: accepted for JAX programs; the picture is text.

    Raises:
        ShardingError: a shape of another rank.

    >>> s = nx.NamedSharding(nx.make_mesh((1,), ("x",)), nx.P("x"))
    >>> visualize_sharding((4, 2), s)
    ┌───────┐
    │ CPU 0 │
    └───────┘
    """
    print(sharding_text(shape, sharding))


def visualize_array_sharding(x: Any, **_: Any) -> None:
    """Print which device has which part of an array. As `visualize_sharding`.

    Raises:
        ShardingError: inside `nx.jit`, or an array of another rank than 1 and 2.

    >>> visualize_array_sharding(nx.ones(3))
    ┌───────┐
    │ CPU 0 │
    └───────┘
    """
    value = _concrete(x, "visualize_array_sharding")
    print(sharding_text(value.shape, _sharding(value)))


def inspect_array_sharding(x: Any, *, callback: Callable[[Sharding], Any]) -> None:
    """Call ``callback`` with the sharding of an array.

    Raises:
        ShardingError: inside `nx.jit`, because the compiler has not chosen yet.

    >>> x = nx.device_put(nx.ones(3), nx.devices("cpu")[0])
    >>> inspect_array_sharding(x, callback=lambda s: print(s.device_list))
    (cpu:0,)
    """
    callback(_sharding(_concrete(x, "inspect_array_sharding")))


def _concrete(x: Any, where: str) -> Array:
    value = as_value(x, where)
    if isinstance(value, Tracer):
        raise ShardingError(
            f"{where}: inside a traced function no device has been chosen",
            got=value.type,
            fix="return the value and look at its .sharding, or set it with nx.lax.with_sharding_constraint",
        )
    return value


def _sharding(x: Any) -> Sharding:
    from nxjax import runtime

    return runtime.sharding_of(x)
