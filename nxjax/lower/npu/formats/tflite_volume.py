"""Convolutions of volumes in TFLite's operators: floats by those of three dimensions, integers by those of images.

TFLite has no integer kernel of three dimensions. See `nxjax.lower.npu.volume` for the form that has the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from nxjax.lower.npu.formats.tflite_build import TFLiteWriter, same_padding
from nxjax.lower.npu.formats.tflite_file import OperatorUse, TFLiteReader, bad
from nxjax.lower.npu.formats.tflite_schema import ACTIVATIONS, SAME, VALID
from nxjax.lower.npu.graph import Node, Tensor
from nxjax.lower.npu.layout import transposed_constant
from nxjax.lower.npu.volume import by_images

# Writes a node of images.
Write = Callable[[TFLiteWriter, Node], None]
# How TFLite has weights [o,kd,kh,kw,c]: of convolutions [kd,kh,kw,c,o], of transposed ones [kd,kh,kw,o,c].
_DIRECT: Final = (1, 2, 3, 4, 0)
_SPREAD: Final = (1, 2, 3, 0, 4)
_NONE: Final = ((0, 0),) * 3


def _options(node: Node, padding: int) -> dict[str, Any]:
    options: dict[str, Any] = {"padding": padding}
    options["fused_activation_function"] = ACTIVATIONS.index(node.attrs["activation"])
    options |= dict(zip(("stride_d", "stride_h", "stride_w"), node.attrs["strides"], strict=True))
    names = ("dilation_d_factor", "dilation_h_factor", "dilation_w_factor")
    return options | dict(zip(names, node.attrs.get("dilations", (1, 1, 1)), strict=True))


def write_volume(w: TFLiteWriter, node: Node, write: Write) -> None:
    """A convolution of three dimensions; ``write`` writes those of images that take its place in integers."""
    if node.operand().grid is not None or node.operand(1).grid is not None:
        for part in by_images(node):
            write(w, part)
    elif node.op == "conv_3d":
        _direct(w, node)
    else:
        _spread(w, node)


def _weights(w: TFLiteWriter, weights: Tensor, order: Sequence[int]) -> Tensor:
    """The weights as TFLite has them; what is computed is moved by an operator."""
    if weights.data is not None:
        return transposed_constant(weights, order)
    moved = w.between(weights, tuple(weights.shape[i] for i in order), "moved")
    w.emit("TRANSPOSE", [weights, w.constant(order)], [moved])
    return moved


def _direct(w: TFLiteWriter, node: Node) -> None:
    x, weights = node.operand(), node.operand(1)
    pads, sizes = node.attrs["padding"], zip(x.shape[1:4], weights.shape[1:4], strict=True)
    moves = zip(node.attrs["strides"], node.attrs["dilations"], strict=True)
    word = VALID if pads == _NONE else None
    if word is None and pads == tuple(same_padding(*size, *move) for size, move in zip(sizes, moves, strict=True)):
        word = SAME
    if word is None:
        x, word = w.pad(x, ((0, 0), *pads, (0, 0)), None), VALID
    operands = [x, _weights(w, weights, _DIRECT), w.bias(node, x, weights)]
    w.emit("CONV_3D", operands, node.outputs, **_options(node, word))


def _spread(w: TFLiteWriter, node: Node) -> None:
    x, weights, out, cuts = node.operand(), node.operand(1), node.output, node.attrs["padding"]
    if min(n for cut in cuts for n in cut) < 0:
        raise w.refuse(node, f"padding {cuts}", "cut the result with a slice of its own")
    rows = zip(x.shape[1:4], node.attrs["strides"], weights.shape[1:4], strict=True)
    full = (x.shape[0], *((n - 1) * s + k for n, s, k in rows), out.shape[4])
    made = out if full == out.shape else w.between(out, full, "full")
    operands = [w.constant(full), _weights(w, weights, _SPREAD), x, w.bias(node, x, weights)]
    w.emit("CONV_3D_TRANSPOSE", operands, [made], **_options(node, VALID))
    if made is not out:
        begin = (0, *(low for low, _ in cuts), 0)
        w.emit("SLICE", [made, w.constant(begin), w.constant(out.shape)], [out])


def read_volume(r: TFLiteReader, u: OperatorUse) -> None:
    direct = u.name == "CONV_3D"
    x, weights = u.operand(0 if direct else 2), u.operand(1)
    if weights.data is None or len(weights.shape) != 5 or len(x.shape) != 5 or weights.grid is not None:
        raise bad(f"a {u.name} of {x.shape} with weights {weights.shape} that are not constant floats")
    o = u.options
    kept = transposed_constant(weights, [(_DIRECT if direct else _SPREAD).index(i) for i in range(5)])
    attrs: dict[str, Any] = {"activation": u.activation()}
    attrs["strides"], dilations = (
        tuple(int(o[f"{what}_{axis}{end}"]) for axis in "dhw")
        for what, end in (("stride", ""), ("dilation", "_factor"))
    )
    if direct:
        sizes: Sequence[Any] = [x.shape[1:4], weights.shape[:3], attrs["strides"], dilations]
        attrs["padding"] = _NONE if o["padding"] == VALID else tuple(map(same_padding, *sizes))
        attrs |= {"dilations": dilations, "groups": x.shape[4] // max(kept.shape[4], 1)}
        r.node("conv_3d", [x, kept, u.maybe(2)], u.outputs, **attrs)
        return
    if dilations != (1, 1, 1) or u.ints(0) != u.output.shape or len(u.output.shape) != 5:
        raise bad("a CONV_3D_TRANSPOSE with dilations, or of another shape than it asks for", u.output.shape)
    cuts: list[tuple[int, int]] = []
    for n, k, s, m in zip(u.output.shape[1:4], weights.shape[:3], attrs["strides"], x.shape[1:4], strict=True):
        low = same_padding(n, k, s)[0] if o["padding"] == SAME else 0
        cuts.append((low, (m - 1) * s + k - n - low))
    r.node("transpose_conv_3d", [x, kept, u.maybe(3)], u.outputs, **attrs, padding=tuple(cuts))
