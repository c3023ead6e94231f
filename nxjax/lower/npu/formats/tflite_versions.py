"""The version of a TFLite operator that a use of it needs: the least one whose runtime has that kernel.

Facts of the runtime's own rules (``op_version.cc``), said as one table. One difference: int16 activations with int8
weights get the version that brought 16-bit kernels, where the rules give 1, so that a runtime too old for them says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

from nxjax.lower.npu.formats.tflite_schema import BUILTINS
from nxjax.lower.npu.graph import Tensor
from nxjax.trace.dtypes import short_name


@final
@dataclass(frozen=True)
class _Use:
    """One use of an operator, and the short names of its tensors' dtypes, "" of those that are not there."""

    inputs: Sequence[Tensor | None]
    outputs: Sequence[Tensor]
    options: Mapping[str, Any]

    @property
    def dtypes(self) -> list[str]:
        return ["" if t is None else short_name(t.dtype) for t in self.inputs]

    @property
    def ends(self) -> set[str]:
        """The dtypes of the first operand and of the first result."""
        return {self.dtypes[0], short_name(self.outputs[0].dtype)}

    def operand(self, i: int = 0) -> Tensor:
        t = self.inputs[i]
        assert t is not None
        return t

    def rank(self, operands: int | None = None) -> int:
        return max(len(t.shape) for t in self.inputs[:operands] if t is not None)


# Dtypes of the first operand, or a question about the use.
_Question = Callable[[_Use], bool]
_Condition = str | _Question

_rank_over: Final[Callable[[int], _Question]] = lambda n: lambda u: u.rank(1) > n
_both: Final[Callable[[str, str], _Question]] = lambda x, y: lambda u: u.dtypes[0] in x.split() and u.dtypes[1] == y
_weights: Final[Callable[[str], _Question]] = lambda dtype: lambda u: u.dtypes[1] == dtype
_option: Final[Callable[[str], _Question]] = lambda name: lambda u: bool(u.options[name])
_on_grid: Final[Callable[[str], _Question]] = lambda x: lambda u: u.dtypes[0] == x and u.operand().grid is not None
_either: Final[Callable[..., _Question]] = lambda *names: lambda u: not set(names).isdisjoint(u.ends)
_per_axis: Final[Callable[[Tensor], bool]] = lambda t: t.grid is not None and t.grid.axis is not None
_broadcasts_wide: Final[_Question] = lambda u: u.operand(0).shape != u.operand(1).shape and u.rank() > 4
_compressed_per_axis: Final[_Question] = lambda u: u.dtypes[:2] == ["f32", "i8"] and _per_axis(u.operand(1))
_grouped: Final[_Question] = lambda u: u.operand(0).shape[-1] != u.operand(1).shape[-1]
_dilated: Final[_Question] = lambda u: u.options["dilation_w_factor"] != 1 or u.options["dilation_h_factor"] != 1
_no_bias: Final[_Question] = lambda u: len(u.inputs) == 2 or u.inputs[2] is None


def _coarse_result(u: _Use) -> bool:
    grids = [t.grid for t in (u.operand(0), u.operand(1), u.outputs[0]) if t.grid is not None]
    scales = [float(g.scales(0)) for g in grids] if len(grids) == 3 else [0, 0, 1]
    return scales[0] * scales[1] / scales[2] >= 1


_BOTH: Final[dict[_Condition, int]] = {"i8": 2, "i16": 3}
_EIGHT: Final[dict[_Condition, int]] = {"i8": 2}
_EITHER: Final[dict[_Condition, int]] = {"i8 i16": 2}
_PLACE: Final[dict[_Condition, int]] = {"i8": 2, "bool": 3}
_EXTREMUM: Final[dict[_Condition, int]] = {"i16": 4, _broadcasts_wide: 3, "i8": 2}
_PAD: Final[dict[_Condition, int]] = {"bool": 5, _rank_over(4): 4, **_BOTH}
_RESIZE: Final[dict[_Condition, int]] = {"i16": 4, _option("half_pixel_centers"): 3, "i8": 2}

# Operator -> version of the first condition that holds; 1 where none does.
_RULES: Final[dict[str, dict[_Condition, int]]] = {
    **dict.fromkeys(("AVERAGE_POOL_2D", "MAX_POOL_2D", "TANH", "LOGISTIC", "MEAN", "RSQRT", "RELU6"), _BOTH),
    **dict.fromkeys(("REDUCE_MAX", "REDUCE_MIN", "LESS", "GREATER_EQUAL", "BATCH_MATMUL"), _BOTH),
    **dict.fromkeys(("SUM", "LOG_SOFTMAX", "GREATER", "LESS_EQUAL", "SQUARED_DIFFERENCE", "SPLIT_V"), _EIGHT),
    **dict.fromkeys(("EXP", "LOG", "SQRT", "REDUCE_PROD"), _EITHER),
    **dict.fromkeys(("ARG_MAX", "ARG_MIN"), _PLACE),
    "RELU": {"i8 u8": 2, "i16": 3},
    "GELU": {"i8 u8": 2, "f16": 3},
    "SOFTMAX": {**_BOTH, "f16": 4},
    "CONCATENATION": {**_BOTH, "u32": 4, "i4": 5, "f16": 6},
    "GATHER": {"i8": 2, "bool": 3, "i16": 4, "i4": 7},
    "SPLIT": {"i8": 2, "i32": 3, "i16": 4},
    "EQUAL": {"i8": 2, "i16": 5},
    "NOT_EQUAL": {"i8": 2, "i16": 4},
    "LEAKY_RELU": {"i16": 2},
    "TOPK_V2": {"i16": 3, "i8": 2},
    "TILE": {"i8": 3},
    "REVERSE_V2": {"bool": 2, "i8": 3},
    "SIGN": {"i32": 2},
    "SIN": {"f16": 2},
    "COS": {"f16": 2},
    "SELECT_V2": {"u32": 2},
    "CONV_2D": {
        _grouped: 6, "i16": 4, _weights("i4"): 7, _compressed_per_axis: 5, _both("f32", "i8"): 2, "i8": 3,
    },
    "DEPTHWISE_CONV_2D": {
        "i16": 5, _weights("i4"): 7, _compressed_per_axis: 6, _both("f32", "i8"): 4, "i8": 3, _dilated: 2,
    },
    "FULLY_CONNECTED": {
        _both("i16", "i4"): 13, "i16": 7, _compressed_per_axis: 12, _weights("i4"): 10, _no_bias: 6,
        _option("keep_num_dims"): 5, "i8": 4, _weights("i8"): 3,
    },
    "TRANSPOSE_CONV": {
        _option("fused_activation_function"): 4, lambda u: len(u.inputs) == 4: 3, _weights("i8"): 2,
    },
    "ADD": {_on_grid("i16"): 3, "i16": 5, "f16": 6, "i64": 4, "i8": 2},
    "SUB": {"i16": 5, "i64": 4, _broadcasts_wide: 3, "i8": 2},
    "MUL": {_on_grid("i16"): 4, "i16 u32": 7, "f16": 8, "i64": 5, _coarse_result: 3, "i8": 2},
    "DIV": {_broadcasts_wide: 2},
    "MAXIMUM": _EXTREMUM,
    "MINIMUM": _EXTREMUM,
    "PAD": _PAD,
    "PADV2": _PAD,
    "TRANSPOSE": {
        "f16": 9, "bf16": 8, _rank_over(6): 8, "i4": 7, _rank_over(5): 6, "i16": 5, _rank_over(4): 4, "bool": 3,
        "i8": 2,
    },
    "SLICE": {"f16": 8, "i4": 7, "u32": 6, _rank_over(4): 5, "i16": 4, "i8": 2},
    "STRIDED_SLICE": {"u32": 7, _rank_over(4): 4, "bool": 3, "i8": 2},
    "RESIZE_BILINEAR": _RESIZE,
    "RESIZE_NEAREST_NEIGHBOR": {"i16": 4, _option("align_corners"): 3, **_RESIZE},
    "DEQUANTIZE": {
        lambda u: u.dtypes[0] == "i8" and _per_axis(u.operand()): 5, "i8": 2, "u4": 8, "i4": 6, "i16 f16": 3,
    },
    "QUANTIZE": {
        _either("i4"): 4, lambda u: _per_axis(u.outputs[0]): 3, lambda u: short_name(u.outputs[0].dtype) == "i16": 2,
    },
    "ABS": {_on_grid("i16"): 3, "i16": 4, "i32": 5, "i8 u8": 2},
    "BROADCAST_TO": {"i8 i16": 3, lambda _: True: 2},
    "CAST": {
        _either("u4"): 8, _either("bf16"): 7, _either("i4"): 6, _either("f64", "f16"): 5, _either("u16"): 4,
        _either("i8"): 3, _either("u32"): 2,
    },
}  # fmt: skip


def version(name: str, inputs: Sequence[Tensor | None], outputs: Sequence[Tensor], options: Mapping[str, Any]) -> int:
    """The version to write for one use of operator ``name``.

    Args:
        name: TFLite's name, e.g. "CONV_2D".
        inputs: operands in the file's order, None for absent ones.
        outputs: results.
        options: the fields of the operator's options.

    >>> x = Tensor("x", (1, 4), "int8")
    >>> version("TANH", [x], [x], {})
    2
    """
    # The data of SPLIT is its second operand.
    use = _Use(inputs[1:] if name == "SPLIT" else inputs, outputs, options)
    held = (
        number
        for condition, number in _RULES.get(name, {}).items()
        if (use.dtypes[0] in condition.split() if isinstance(condition, str) else condition(use))
    )
    return next(held, 1)


def runtime(name: str, number: int) -> str:
    """The first runtime that has version ``number`` of operator ``name``, e.g. "2.3.0"."""
    return BUILTINS[name].runtimes[number - 1]
