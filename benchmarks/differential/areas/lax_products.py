"""``lax``: products of matrices and tensors, of groups, scaled ones; convolutions and what is made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.differential.case import Case, Weak
from benchmarks.differential.inputs import NUMBERS, Inputs

ALL = ("call", "jit", "jvp", "vjp", "vmap")
FIXED = ("call", "jit", "vmap")
# Shapes of both operands and dimension numbers.
GENERAL: tuple[tuple[Any, ...], ...] = (
    ((2, 3), (3, 4), (((1,), (0,)), ((), ()))),
    ((2, 3), (4, 3), (((1,), (1,)), ((), ()))),
    ((2, 3, 4), (2, 4, 5), (((2,), (1,)), ((0,), (0,)))),
    ((3, 2, 4), (4, 5, 2), (((2,), (0,)), ((1,), (2,)))),
    ((2, 3, 4), (4, 3), (((1, 2), (1, 0)), ((), ()))),
    ((2, 3), (2, 3), (((0, 1), (0, 1)), ((), ()))),
    ((2, 3), (2, 3), (((), ()), ((0, 1), (0, 1)))),
    ((2,), (3,), (((), ()), ((), ()))),
    ((0, 3), (3, 2), (((1,), (0,)), ((), ()))),
    ((2, 0), (0, 3), (((1,), (0,)), ((), ()))),
    ((2, 3), (3,), (((-1,), (0,)), ((), ()))),
    ((2, 3), (4, 2), (((1,), (0,)), ((), ()))),
    ((2, 2, 3), (2, 3), (((2,), (1,)), ((0,), (0, 1)))),
)
PADDINGS: tuple[Any, ...] = ("SAME", "VALID", "SAME_LOWER", ((1, 1), (0, 2)), [(0, 0), (1, -1)], "same")


def cases(inputs: Inputs) -> Iterator[Case]:
    yield from _dots(inputs)
    yield from _generals(inputs)
    yield from _groups(inputs)
    yield from _convolutions(inputs)
    yield from _transposed(inputs)
    yield from _patches(inputs)
    yield from _shapes(inputs)


def _dots(inputs: Inputs) -> Iterator[Case]:
    for kind in NUMBERS:
        first, second = inputs.choice((((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((2, 3), (3, 2))))
        yield Case("lax.dot", (inputs.array(first, kind), inputs.array(second, kind)))
        yield Case("lax.dot", (inputs.array((2, 3), kind), inputs.array((3, 2))))
        out = inputs.choice(("float32", "int32", "complex64", "bfloat16"))
        yield Case("lax.dot", (inputs.array((3,), kind), inputs.array((3,), kind)), {"preferred_element_type": out})
        yield Case("lax.batch_matmul", (inputs.array((2, 2, 3), kind), inputs.array((2, 3, 2), kind)))
    x, y = inputs.array((2, 3), "float32"), inputs.array((3, 2), "float32")
    for precision in ("highest", "high", "default", "bfloat16_3x", "float32", ("highest", "default"), "nothing"):
        yield Case("lax.dot", (x, y), {"precision": precision})
    for name in ("HIGHEST", "HIGH", "DEFAULT"):
        made = _precision(name)
        yield Case(f"lax.dot {name}", (x, y), make=made)
    for first, second in (
        ((2, 3), (2,)),
        ((), ()),
        ((0,), (0,)),
        ((2, 0), (0, 3)),
        ((2, 2, 3), (3, 2)),
        ((0, 3), (3, 2)),
    ):
        yield Case("lax.dot", (inputs.array(first, "float32"), inputs.array(second, "float32")))
    yield Case("lax.dot", (x, y), {"dimension_numbers": (((0,), (1,)), ((), ()))})
    yield Case("lax.dot", (Weak(2.0), Weak(3.0)))
    yield Case("lax.batch_matmul", (x, y))
    yield Case("lax.batch_matmul", (inputs.array((3, 2, 3), "float32"), inputs.array((2, 3, 2), "float32")))
    yield Case("lax.batch_matmul", (inputs.array((0, 2, 3), "float32"), inputs.array((0, 3, 2), "float32"), "highest"))


def _precision(name: str) -> Callable[[ModuleType], Any]:
    return lambda lib: lambda x, y: lib.lax.dot(x, y, precision=getattr(lib.lax.Precision, name))


def _generals(inputs: Inputs) -> Iterator[Case]:
    for first, second, numbers in GENERAL:
        for kind in (
            "float32",
            "float32",
            inputs.choice(("bfloat16", "float16")),
            inputs.choice(("int8", "int32")),
            "complex64",
        ):
            kwargs: dict[str, Any] = {}
            if inputs.chance(0.4):
                kwargs["preferred_element_type"] = (
                    "complex64" if kind == "complex64" else inputs.choice(("float32", "int32"))
                )
            if inputs.chance(0.2):
                kwargs["precision"] = "highest"
            yield Case("lax.dot_general", (inputs.array(first, kind), inputs.array(second, kind), numbers), kwargs)
    x, y = inputs.array((2, 3), "float32"), inputs.array((3, 2), "bfloat16")
    one = (((1,), (0,)), ((), ()))
    yield Case("lax.dot_general", (x, y, one))
    yield Case("lax.dot_general", (x, inputs.array((3, 2), "int8"), one), {"preferred_element_type": "float32"})
    yield Case("lax.dot_general", (inputs.array((2, 3), "bool"), inputs.array((3, 2), "bool"), one))
    for numbers in (
        (((1,), (0,)), ((1,), (0,))),
        (((1, 1), (0, 0)), ((), ())),
        ((1, 0), ((), ())),
        (([1], [0]), ([], [])),
    ):
        yield Case("lax.dot_general", (x, inputs.array((3, 2), "float32"), numbers), modes=FIXED)
    odd = inputs.array((2, 3), "float32", odd=0.4)
    yield Case("lax.dot_general", (odd, inputs.array((3, 2), "float32"), one))


def _ragged(fields: tuple[Any, ...], **kwargs: Any) -> Callable[[ModuleType], Any]:
    def made(lib: ModuleType) -> Any:
        numbers = lib.lax.RaggedDotDimensionNumbers(*fields)
        return lambda x, y, sizes: lib.lax.ragged_dot_general(x, y, sizes, numbers, **kwargs)

    return made


def _groups(inputs: Inputs) -> Iterator[Case]:
    for kind in ("float32", "bfloat16", "float16", "int32", "complex64"):
        for sizes in ([2, 1, 3], [0, 6, 0], [1, 1, 1]):
            x, y = inputs.array((6, 3), kind), inputs.array((3, 3, 2), kind)
            groups = np.asarray(sizes, inputs.choice(("int32", "int8", "uint32")))
            # Rows of no group are open where sizes do not add up.
            yield Case("lax.ragged_dot", (x, y, groups), modes=ALL if sum(sizes) == 6 else ("call", "jit"))
    x, y, sizes = inputs.array((6, 3), "float32"), inputs.array((3, 3, 2), "float32"), np.asarray([1, 2, 3], "int32")
    yield Case("lax.ragged_dot", (x, y, sizes), {"preferred_element_type": "bfloat16", "precision": "highest"})
    yield Case("lax.ragged_dot", (x, y, sizes.astype("float32")))
    yield Case("lax.ragged_dot", (x, y[:2], sizes))
    fields = (((1,), (1,)), ((), ())), [0], [0]
    yield Case("lax.ragged_dot_general rows", (x, y, sizes), make=_ragged(fields))
    fields = (((0,), (0,)), ((), ())), [0], []
    yield Case("lax.ragged_dot_general sums", (x, inputs.array((6, 2), "float32"), sizes), make=_ragged(fields))
    fields = (((2,), (1,)), ((0,), (0,))), [0], []
    batch = (inputs.array((6, 2, 3), "float32"), inputs.array((6, 3, 4), "float32"), sizes)
    yield Case("lax.ragged_dot_general batch", batch, make=_ragged(fields))
    for kind in ("float32", "bfloat16"):
        for out in (None, "float32", "bfloat16"):
            pair = (inputs.array((2, 4, 8), kind), inputs.array((2, 8, 3), kind))
            scales = {
                "lhs_scale": inputs.array((2, 4, 2), kind, low=0.5, high=2),
                "rhs_scale": inputs.array((2, 2, 3), kind, low=0.5, high=2),
            }
            keywords = {"preferred_element_type": out} if out else {}
            yield Case("lax.scaled_dot", pair, {**scales, **keywords}, modes=FIXED)
            yield Case("lax.scaled_dot", pair, keywords, modes=FIXED)


LAYOUTS = (None, ("NCHW", "OIHW", "NCHW"), ("NHWC", "HWIO", "NHWC"), ("NHWC", "OIHW", "NCHW"), ("NCHW", "HWIO", "CNHW"))


def _laid(inputs: Inputs, layout: Any, batch: int, groups: int, kind: str) -> tuple[Any, Any]:
    """An operand of 2 * groups features and a kernel that gives 4."""
    names = layout or ("NCHW", "OIHW", "NCHW")
    x = {"N": 2 * batch, "C": 2 * groups, "H": 5, "W": 4}
    k = {"O": 4, "I": 2, "H": inputs.choice((1, 2, 3)), "W": 2}
    return (inputs.array([x[c] for c in names[0]], kind), inputs.array([k[c] for c in names[1]], kind))


def _convolutions(inputs: Inputs) -> Iterator[Case]:
    for i in range(60):
        kind = inputs.choice(("float32",) * 8 + ("bfloat16", "float16", "complex64", "int8", "int32"))
        layout = LAYOUTS[i % len(LAYOUTS)]
        groups, batch = inputs.choice(((1, 1), (1, 1), (1, 1), (2, 1), (4, 1), (1, 2)))
        x, k = _laid(inputs, layout, batch, groups, kind)
        kwargs: dict[str, Any] = {"dimension_numbers": layout} if layout else {}
        if groups > 1:
            kwargs["feature_group_count"] = groups
        if batch > 1:
            kwargs["batch_group_count"] = batch
        if inputs.chance(0.3):
            kwargs["rhs_dilation"] = inputs.choice(((1, 2), (2, 1), (2, 2)))
        padding = inputs.choice(PADDINGS)
        if inputs.chance(0.3):
            kwargs["lhs_dilation"] = inputs.choice(((1, 2), (2, 1), (3, 2)))
        if inputs.chance(0.2):
            kwargs["preferred_element_type"] = "complex64" if kind == "complex64" else "float32"
        strides = inputs.choice(((1, 1), (1, 1), (2, 1), (1, 3)))
        yield Case("lax.conv_general_dilated", (x, k, strides, padding), kwargs)
    for kind in ("float32", "bfloat16", "int32"):
        x, k = inputs.array((2, 3, 5, 4), kind), inputs.array((2, 3, 2, 2), kind)
        for padding in ("SAME", "VALID"):
            yield Case("lax.conv", (x, k, (1, 2), padding))
        dilation = inputs.choice((None, (2, 1)))
        yield Case(
            "lax.conv_with_general_padding", (x, k, (2, 1), ((1, 0), (0, 1)), dilation, inputs.choice((None, (1, 2))))
        )
    line, row = inputs.array((2, 3, 6), "float32"), inputs.array((4, 3, 2), "float32")
    yield Case("lax.conv_general_dilated", (line, row, (2,), "SAME"))
    yield Case("lax.conv_general_dilated", (line, row, (1,), [(1, 1)]), {"dimension_numbers": ("NCW", "OIW", "NWC")})
    yield Case(
        "lax.conv_general_dilated", (inputs.array((2, 3), "float32"), inputs.array((4, 3), "float32"), (), "SAME")
    )
    deep = inputs.array((1, 2, 3, 3, 3), "float32"), inputs.array((2, 2, 2, 2, 2), "float32")
    yield Case("lax.conv_general_dilated", (*deep, (1, 1, 1), "SAME"))
    for shape, kernel in (
        ((0, 3, 6), (4, 3, 2)),
        ((2, 3, 1), (4, 3, 2)),
        ((2, 2, 6), (4, 3, 2)),
        ((2, 3, 6), (0, 3, 2)),
        ((2, 0, 6), (4, 0, 2)),
    ):
        yield Case(
            "lax.conv_general_dilated", (inputs.array(shape, "float32"), inputs.array(kernel, "float32"), (1,), "VALID")
        )
    for wrong in (
        (line, row, (1, 1), "SAME"),
        (line, row, (0,), "SAME"),
        (line, row, (1,), "OTHER"),
        (line, row[0], (1,), "SAME"),
    ):
        yield Case("lax.conv_general_dilated", wrong, modes=("call",))
    yield Case("lax.conv_general_dilated", (line, row.astype("bfloat16"), (1,), "SAME"))


def _transposed(inputs: Inputs) -> Iterator[Case]:
    for i in range(24):
        kind = inputs.choice(("float32",) * 5 + ("bfloat16", "complex64"))
        layout = LAYOUTS[i % 3]
        names = layout or ("NHWC", "HWIO", "NHWC")
        turned = inputs.chance(0.4)
        x = {"N": 2, "C": 3, "H": 4, "W": 3}
        k = {"O": 3, "I": 2} if turned else {"O": 2, "I": 3}
        k |= {"H": inputs.choice((1, 2, 3)), "W": inputs.choice((2, 3))}
        operands = (inputs.array([x[c] for c in names[0]], kind), inputs.array([k[c] for c in names[1]], kind))
        kwargs: dict[str, Any] = {"transpose_kernel": True} if turned else {}
        if layout:
            kwargs["dimension_numbers"] = layout
        if inputs.chance(0.4):
            kwargs["rhs_dilation"] = inputs.choice(((1, 2), (2, 1)))
        if inputs.chance(0.3):
            kwargs["use_consistent_padding"] = True
        padding = inputs.choice(("SAME", "VALID", ((1, 1), (0, 2)), ((0, 0), (0, 0))))
        yield Case("lax.conv_transpose", (*operands, inputs.choice(((1, 1), (2, 2), (3, 1), (1, 2))), padding), kwargs)
    line = inputs.array((2, 5, 3), "float32"), inputs.array((3, 3, 2), "float32")
    for padding in ("SAME", "VALID"):
        yield Case("lax.conv_transpose", (*line, (2,), padding))


def _patches(inputs: Inputs) -> Iterator[Case]:
    for i in range(12):
        layout = LAYOUTS[i % 3]
        names = layout or LAYOUTS[1]
        shape = [{"N": 2, "C": 2, "H": 5, "W": 4}[c] for c in names[0]]
        kwargs: dict[str, Any] = {"dimension_numbers": layout} if layout else {}
        if inputs.chance(0.3):
            kwargs["rhs_dilation"] = (1, 2)
        if inputs.chance(0.3):
            kwargs["lhs_dilation"] = (2, 1)
        strides, padding = inputs.choice(((1, 1), (2, 1))), inputs.choice(("SAME", "VALID", ((1, 0), (0, 1))))
        x = inputs.array(shape, inputs.choice(("float32", "float32", "bfloat16")))
        yield Case("lax.conv_general_dilated_patches", (x, (2, 3), strides, padding), kwargs)
    for layout in LAYOUTS[:3]:
        names = layout or LAYOUTS[1]
        shape = [{"N": 2, "C": 2, "H": 4, "W": 3}[c] for c in names[0]]
        kernel = [{"O": 3, "I": 2 * 2 * 2, "H": 3, "W": 2}[c] for c in names[1]]
        x, k = inputs.array(shape, "float32"), inputs.array(kernel, "float32")
        kwargs = {"dimension_numbers": layout} if layout else {}
        yield Case("lax.conv_general_dilated_local", (x, k, (1, 1), "VALID", (2, 2)), kwargs)
    x, k = inputs.array((1, 2, 5), "float32"), inputs.array((3, 4, 3), "float32")
    yield Case("lax.conv_general_dilated_local", (x, k, (2,), ((1, 1),), (2,)))


def _numbers(shapes: tuple[Any, ...], layout: Any) -> Callable[[ModuleType], Any]:
    return lambda lib: lambda: tuple(lib.lax.conv_dimension_numbers(*shapes, layout))


def _sized(name: str, *args: Any) -> Case:
    """Sizes as Python's integers, whether the library has NumPy's or not."""
    make = lambda lib: lambda: [int(n) for n in getattr(lib.lax, name)(*args)]
    return Case(f"lax.{name} {args}", (), make=make, modes=("call",))


def _shapes(inputs: Inputs) -> Iterator[Case]:
    once = ("call",)
    four = ((2, 3, 5, 4), (4, 3, 2, 2))
    for layout in (*LAYOUTS, ((0, 1, 2, 3),) * 3, ("NCHW", "OIHW"), ("NCHH", "OIHW", "NCHW")):
        yield Case(f"lax.conv_dimension_numbers {layout}", (), make=_numbers(four, layout), modes=once)
        if layout and isinstance(layout[0], str):
            yield Case("lax.conv_general_permutations", (layout,), modes=once)
    for padding in ("SAME", "VALID", ((1, 1), (0, 2))):
        layout = ("NCHW", "OIHW", "NCHW")
        yield _sized("conv_general_shape_tuple", *four, (2, 1), padding, layout)
        turned = ("NHWC", "HWIO", "NHWC")
        yield _sized("conv_transpose_shape_tuple", (2, 5, 4, 3), (2, 2, 3, 4), (2, 1), padding, turned)
    yield _sized("conv_shape_tuple", *four, (2, 1), ((1, 1), (0, 2)))
    yield _sized("conv_shape_tuple", *four, (2, 1), "SAME")
    yield _sized("conv_shape_tuple", (4, 3, 5), (4, 3, 2), (1,), ((0, 0),), 2)
    for padding in ("SAME", "VALID", "SAME_LOWER", "OTHER"):
        for strides in ((1, 1), (2, 3)):
            yield Case("lax.padtype_to_pads", ((5, 4), (2, 3), strides, padding), modes=once)
