"""Elementwise operations on values where they differ from one another."""

import numpy as np
import pytest

from nxjax.interop import from_stablehlo
from tests.stablehlo.modules import T, agree, floats, ints, main


def test_integer_powers():
    t = T(8, e="i32")
    text = main(f"%0 = stablehlo.power %arg0, %arg1 : {t}\n return %0 : {t}", [t, t], [t])
    x = np.array([2, -3, 0, 1, -1, 5, -1, 7], np.int32)
    agree(text, x, np.array([10, 3, 0, -2, -3, -1, 4, 11], np.int32))


@pytest.mark.parametrize("kind", ["FLOAT", "TOTALORDER"])
@pytest.mark.parametrize("direction", ["EQ", "NE", "LT", "LE", "GT", "GE"])
def test_comparisons(direction: str, kind: str):
    t, out = T(6, 6), T(6, 6, e="i1")
    text = main(
        f"%0 = stablehlo.compare {direction}, %arg0, %arg1, {kind} : ({t}, {t}) -> {out}\n return %0 : {out}",
        [t, t],
        [out],
    )
    x = np.array([0.0, -0.0, 1.0, np.inf, -np.inf, np.nan], np.float32)
    agree(text, *map(np.ascontiguousarray, np.meshgrid(x, x)))


@pytest.mark.parametrize("e", ["i8", "ui8", "i32", "ui32", "i64", "ui64"])
def test_high_halves_of_products(e: str):
    t = T(6, 6, e=e)
    text = main(f'%0 = "chlo.mulhi"(%arg0, %arg1) : ({t}, {t}) -> {t}\n return %0 : {t}', [t, t], [t])
    dtype = np.dtype(e.replace("ui", "uint") if "u" in e else e.replace("i", "int"))
    info = np.iinfo(dtype)
    values = np.array([0, 1, 3, info.max, info.min, info.max // 3], dtype)
    x, y = (np.ascontiguousarray(v) for v in np.meshgrid(values, values))
    expected = [int(a) * int(b) >> info.bits for a, b in zip(x.flat, y.flat, strict=True)]
    assert from_stablehlo(text, trusted=True)(x, y).numpy().reshape(-1).tolist() == expected


def test_broadcasting_forms():
    text = main(
        f"""
        %0 = chlo.broadcast_add %arg0, %arg1 : ({T(3, 1)}, {T(4)}) -> {T(3, 4)}
        %1 = chlo.is_inf %0 : {T(3, 4)} -> {T(3, 4, e="i1")}
        %2 = chlo.erf_inv %0 : {T(3, 4)} -> {T(3, 4)}
        %3 = chlo.broadcast_compare %arg0, %arg1 {{comparison_direction = #chlo<comparison_direction LT>}} :
          ({T(3, 1)}, {T(4)}) -> {T(3, 4, e="i1")}
        return %0, %1, %2, %3 : {T(3, 4)}, {T(3, 4, e="i1")}, {T(3, 4)}, {T(3, 4, e="i1")}""",
        [T(3, 1), T(4)],
        [T(3, 4), T(3, 4, e="i1"), T(3, 4), T(3, 4, e="i1")],
    )
    agree(text, floats(3, 1) * 0.1, floats(4) * 0.1)


def test_map_and_clamp():
    t = T(3, 4)
    text = main(
        f"""
        %0 = "stablehlo.map"(%arg0, %arg1) <{{dimensions = array<i64: 0, 1>}}> ({{
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %x = stablehlo.atan2 %a, %b : tensor<f32>
          stablehlo.return %x : tensor<f32>
        }}) : ({t}, {t}) -> {t}
        %1 = stablehlo.clamp %arg2, %0, %arg3 : ({T()}, {t}, {T()}) -> {t}
        return %1 : {t}""",
        [t, t, T(), T()],
        [t],
    )
    agree(text, floats(3, 4), floats(3, 4, seed=1), np.float32(-1), np.float32(0.5))


def test_conversions():
    ins, out = T(7), T(7, e="i8")
    text = main(f"%0 = stablehlo.convert %arg0 : ({ins}) -> {out}\n return %0 : {out}", [ins], [out])
    agree(text, np.array([0.5, -1.5, 300, -300, np.inf, 127.9, 3], np.float32))
    ins, out = T(7, e="i32"), T(7, e="ui8")
    text = main(f"%0 = stablehlo.convert %arg0 : ({ins}) -> {out}\n return %0 : {out}", [ins], [out])
    agree(text, ints(-500, 500, 7))
