"""Convolutions of images ``[n, c, h, w]``: Conv2d and ConvTranspose2d."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, final

from nxjax import lax
from nxjax.errors import ParameterError
from nxjax.nn.modules.base import Module, keys, one, pair, per_image, positive, uniform
from nxjax.numpy.documented import shown
from nxjax.numpy.promotion import promote_inexact
from nxjax.ops.shape import broadcast_in_dim, rev
from nxjax.trace.annotations import ArrayLike, DTypeLike
from nxjax.trace.core import Array

LAYOUT = ("NCHW", "OIHW", "NCHW")


def add_channels(y: Array, bias: Any) -> Array:
    """``y`` ``[n, c, h, w]`` plus one number per channel."""
    v, b = promote_inexact("bias", y, bias)
    return v + broadcast_in_dim(b, shape=v.shape, broadcast_dimensions=(1,))


def conv2d(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: tuple[int, int] = (1, 1),
    padding: str | tuple[int, int] = (0, 0),
    dilation: tuple[int, int] = (1, 1),
    groups: int = 1,
) -> Array:
    """What `Conv2d` computes: ``x`` ``[n, i, h, w]`` and ``weight`` ``[o, i / groups, rows, columns]``."""
    v, w = promote_inexact("conv2d", x, weight)
    pairs = padding if isinstance(padding, str) else [(p, p) for p in padding]
    y = lax.conv_general_dilated(v, w, stride, pairs, None, dilation, LAYOUT, feature_group_count=groups)
    return y if bias is None else add_channels(y, bias)


def _drawn(layer: Any, shape: tuple[int, ...], bias: bool, key: Any, dtype: Any) -> tuple[Array, Array | None]:
    """Weight and bias."""
    fan_in = math.prod(shape[1:])
    first, second = keys(key, 2)
    weight = uniform(first, shape, fan_in, dtype)
    return weight, uniform(second, (layer.out_channels,), fan_in, dtype) if bias else None


def _shown(layer: Any, **window: int) -> str:
    """Sizes, and what is not as by default."""
    words = [f"{layer.in_channels}, {layer.out_channels}, kernel_size={one(layer.kernel_size)}"]
    for name, default in window.items():
        value = getattr(layer, name)
        if value != (default, default):
            words.append(f"{name}={value.lower()!r}" if isinstance(value, str) else f"{name}={one(value)}")
    if layer.groups != 1:
        words.append(f"groups={layer.groups}")
    return ", ".join([*words, *([] if layer.bias is not None else ["bias=False"])])


def _padding(module: str, padding: Any) -> Any:
    if isinstance(padding, str):
        if padding.upper() not in ("SAME", "VALID"):
            raise ParameterError(f"{module}: padding", got=repr(padding), expected="'same', 'valid', an int or two")
        return padding.upper()
    return pair(module, "padding", padding, 0)


def _groups(module: str, in_channels: int, out_channels: int, groups: int) -> None:
    positive(module, in_channels=in_channels, out_channels=out_channels, groups=groups)
    if in_channels % groups or out_channels % groups:
        raise ParameterError(
            f"{module}: groups", got=groups, expected=f"a divisor of {in_channels} and {out_channels} channels"
        )


@final
@shown("Conv2d(3, 16, kernel_size=3, stride=2, padding=1)(nx.ones((1, 3, 32, 32))).shape", "(1, 16, 16, 16)")
class Conv2d(Module):
    """Convolution (correlation) of ``[n, in_channels, h, w]``, or of one image ``[in_channels, h, w]``.

    Args:
        in_channels, out_channels: sizes.
        kernel_size, stride, dilation: an int, or one for rows and one for columns.
        padding: zeros on each side, an int or two; or ``"same"``, ``"valid"``.
        groups: groups of channels that do not mix; ``in_channels`` for a depthwise convolution.
        bias: whether to add one per output channel.
        key, dtype: as in `nxjax.nn.Linear`.

    Attributes:
        weight: ``[out_channels, in_channels / groups, rows, columns]``, uniform in +-1/sqrt(fan in), as is the bias.
        bias: ``[out_channels]`` or None.

    Raises:
        ShapeError: the input has another number of channels or dimensions.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: str | int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        bias: bool = True,
        *,
        key: ArrayLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        _groups("Conv2d", in_channels, out_channels, groups)
        self.in_channels = int(in_channels)
        self.out_channels = int(out_channels)
        self.kernel_size = pair("Conv2d", "kernel_size", kernel_size)
        self.stride = pair("Conv2d", "stride", stride)
        self.padding = _padding("Conv2d", padding)
        self.dilation = pair("Conv2d", "dilation", dilation)
        self.groups = int(groups)
        shape = (self.out_channels, self.in_channels // self.groups, *self.kernel_size)
        weight, offset = _drawn(self, shape, bias, key, dtype)
        self.weight: Any = weight
        self.bias: Any = offset

    def __call__(self, x: ArrayLike) -> Array:
        return per_image(self, x, self._convolved, self.in_channels)

    def _convolved(self, x: Array) -> Array:
        return conv2d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)

    def _settings(self) -> str:
        return _shown(self, stride=1, padding=0, dilation=1)


@final
@shown("ConvTranspose2d(8, 4, kernel_size=2, stride=2)(nx.ones((1, 8, 5, 5))).shape", "(1, 4, 10, 10)")
class ConvTranspose2d(Module):
    """The transpose of a convolution in its input, to enlarge images (PyTorch's layout and sizes).

    The result has ``(h - 1) * stride - 2 * padding + dilation * (kernel_size - 1) + output_padding + 1`` rows.

    Args:
        output_padding: rows and columns added at the end, fewer than ``stride`` or ``dilation``.
        others: as in `Conv2d`; ``padding`` is that of the convolution, and not a word.

    Attributes:
        weight: ``[in_channels, out_channels / groups, rows, columns]``.
        bias: ``[out_channels]`` or None.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: str | int | Sequence[int] = 0,
        output_padding: int | Sequence[int] = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: int | Sequence[int] = 1,
        *,
        key: ArrayLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        _groups("ConvTranspose2d", in_channels, out_channels, groups)
        self.in_channels = int(in_channels)
        self.out_channels = int(out_channels)
        self.kernel_size = pair("ConvTranspose2d", "kernel_size", kernel_size)
        self.stride = pair("ConvTranspose2d", "stride", stride)
        self.padding = pair("ConvTranspose2d", "padding", padding, 0)
        self.output_padding = pair("ConvTranspose2d", "output_padding", output_padding, 0)
        self.dilation = pair("ConvTranspose2d", "dilation", dilation)
        self.groups = int(groups)
        if any(o >= max(s, d) for o, s, d in zip(self.output_padding, self.stride, self.dilation, strict=True)):
            raise ParameterError("ConvTranspose2d: output_padding", got=output_padding, expected="less than the stride")
        shape = (self.in_channels, self.out_channels // self.groups, *self.kernel_size)
        weight, offset = _drawn(self, shape, bias, key, dtype)
        self.weight: Any = weight
        self.bias: Any = offset

    def __call__(self, x: ArrayLike) -> Array:
        return per_image(self, x, self._convolved, self.in_channels)

    def _convolved(self, x: Array) -> Array:
        v, w = promote_inexact("ConvTranspose2d", x, self.weight)
        # [in, out / groups, ...] as a kernel [out, in / groups, ...] of the fractionally strided convolution, mirrored.
        i, o = w.shape[0] // self.groups, w.shape[1]
        w = w.reshape((self.groups, i, o, *self.kernel_size)).transpose((0, 2, 1, 3, 4))
        w = rev(w.reshape((self.groups * o, i, *self.kernel_size)), dimensions=(2, 3))
        padding: list[tuple[int, int]] = []
        for k, d, p, extra in zip(self.kernel_size, self.dilation, self.padding, self.output_padding, strict=True):
            full = d * (k - 1) - p
            padding.append((full, full + extra))
        y = lax.conv_general_dilated(
            v, w, (1, 1), padding, self.stride, self.dilation, LAYOUT, feature_group_count=self.groups
        )
        return y if self.bias is None else add_channels(y, self.bias)

    def _settings(self) -> str:
        return _shown(self, stride=1, padding=0, output_padding=0, dilation=1)
