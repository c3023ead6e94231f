"""`quantized_psum`: a sum over devices of which every message is int8. Compositions over `lax` collectives.

The ring all-reduce in its two halves (Patarasuk and Yuan, 2009), each with numbers in blocks of int8: every device
sends each other one its part (all-to-all), adds up what it got, and sends the sum of its part to all (all-gather).
"""

from __future__ import annotations

from typing import Any

from nxjax import lax, random
from nxjax import numpy as jnp
from nxjax.distributed.blocks import BLOCK, checked, dequantize, filled, packing, padded, quantize
from nxjax.errors import ParameterError


def quantized_psum(x: Any, axis_name: Any, *, block: int = BLOCK, key: Any = None) -> Any:
    """`lax.psum` in about a quarter of float32's bytes; every device has the same bits.

    Args:
        x: pytree of float arrays. All leaves are sent as one vector. Its blocks may span two leaves.
        axis_name: name or names of axes of the enclosing `nx.shard_map` (or `vmap`).
        block: numbers that share a scale. A message has 4 bytes more for each.
        key: for random rounding, so that the sum is right on average; the same on all devices. Without it, to nearest.

    Returns:
        The sums, of the dtypes of ``x``. They are computed in float32 (float64 if a leaf has it). As results of
        `lax.all_gather` their type varies along the axis: use ``check_vma=False``, or name the axis in ``out_specs``.

    With ``a`` the largest magnitude that a device has in an element's block, the error is at most
    ``sum(a) / 254 * (2 + 1 / 254)`` over the devices, besides float32's rounding; with a ``key`` at most
    ``sum(a) / 127 * (2 + 1 / 127)``. Each device sends ``2 (n - 1) / n`` times ``1 + 4 / block`` bytes per number,
    where `lax.psum` sends ``2 (n - 1) / n`` times 4.

    Raises:
        DtypeError: a leaf is not of a real float dtype.
        ParameterError: ``block`` is not a whole number from 1.
        UnboundAxisError: no enclosing transform binds the name.

    >>> from nxjax.distributed import quantized_psum
    >>> x = jnp.array([[127.0, 2.0], [127.0, -4.0]])
    >>> nx.vmap(lambda x: quantized_psum(x, "i"), axis_name="i")(x)[0].tolist()
    [254.0, -2.0]
    """
    total, *_ = exchanged(packing("quantized_psum", x), x, axis_name, block, key, "quantized_psum")
    return total


def quantized_pmean(x: Any, axis_name: Any, *, block: int = BLOCK, key: Any = None) -> Any:
    """`quantized_psum` divided by the number of devices.

    >>> from nxjax.distributed import quantized_pmean
    >>> nx.vmap(lambda x: quantized_pmean(x, "i"), axis_name="i")(jnp.array([127.0, 1.0])).tolist()
    [64.0, 64.0]
    """
    p = packing("quantized_pmean", x)
    total, *_ = exchanged(p, x, axis_name, block, key, "quantized_pmean", mean=True)
    return total


def exchanged(
    p: Any, x: Any, axis_name: Any, block: int, key: Any, what: str, own: Any = None, server: Any = None,
    mean: bool = False,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """The sum or mean of ``x`` over devices, and what its two roundings left behind.

    Args:
        own: [padded size] is added to ``x`` before it is rounded.
        server: [padded size / n] is added to this device's part of the sums before these are.

    Returns:
        The tree; what of this device's numbers was not sent [padded size]; what of its part of the sums was not
        [padded size / n].
    """
    checked(f"{what}: block", block, 1)
    if key is not None and not hasattr(key, "dtype"):
        raise ParameterError(f"{what}: key", got=repr(key), expected="a key of nx.random")
    n = lax.axis_size(axis_name)
    size = padded(p.size, n, block)
    vector = filled(p.pack(x), size)
    if own is not None:
        vector = vector + own
    if not p.size:
        return x, vector, jnp.zeros(0, p.dtype)
    here = later = None
    if key is not None:
        # Roundings of different devices, and of the two halves, are independent of each other.
        place = lax.axis_index(axis_name)
        here, later = random.fold_in(key, 2 * place), random.fold_in(key, 2 * place + 1)
    rows = vector.reshape(n, -1, block)
    sent = quantize(rows, here)
    left = rows - dequantize(sent, p.dtype)
    came = lax.all_to_all(sent, axis_name, 0, 0, tiled=True)
    part = dequantize(came, p.dtype).sum(0)
    if server is not None:
        part = part + server.reshape(part.shape)
    answer = quantize(part, later)
    kept = part - dequantize(answer, p.dtype)
    total = dequantize(lax.all_gather(answer, axis_name), p.dtype).reshape(size)
    return p.unpack(total / n if mean else total), left.reshape(size), kept.reshape(size // n)
