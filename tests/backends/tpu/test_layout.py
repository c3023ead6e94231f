"""Layouts read from HLO's text, and the bytes that tiles take: on texts and against the compiler's own figures."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nxjax.backends.tpu import compiler
from nxjax.backends.tpu.chips import parsed
from nxjax.backends.tpu.hlo import HloModule
from nxjax.backends.tpu.layout import Shape, bits_of, shapes


@pytest.mark.parametrize(
    ("text", "padded", "logical"),
    [
        ("f32[]", 4, 4),
        ("f32[]{:T(128)}", 512, 4),
        ("f32[70]{0:T(128)}", 512, 280),
        ("f32[1000,70]{0,1:T(8,128)}", 294912, 280000),
        ("f32[1000,70]{1,0:T(8,128)}", 512000, 280000),
        ("bf16[1000,300]{0,1:T(8,128)(2,1)S(3)}", 622592, 600000),
        ("s8[300,70]{1,0:T(8,128)(4,1)}", 38912, 21000),
        ("s4[10,129]{1,0:T(8,128)(8,1)E(4)}", 2048, 645),
        ("s4[10,129]{1,0:T(8,128)(4,1)}", 4096, 645),
        ("bf16[5000]{0:T(1024)(128)(2,1)}", 10240, 10000),
        ("pred[3,4]", 12, 12),
        ("f32[0,4]{1,0:T(8,128)}", 0, 0),
        ("c64[4,4]{1,0}", 128, 128),
    ],
)
def test_bytes_of_a_shape(text, padded, logical):
    (s,) = shapes(text)
    assert (s.padded, s.logical) == (padded, logical)


def test_tuples_and_memory_spaces_are_read():
    found = list(shapes("(bf16[8,128]{1,0:T(8,128)(2,1)S(1)}, (u32[]{:S(2)}, f8e4m3fn[4]{0}))"))
    assert [(s.type, s.space) for s in found] == [("bf16[8,128]", 1), ("u32[]", 2), ("f8e4m3fn[4]", 0)]
    assert [bits_of(t) for t in ("f64", "s2", "c128", "token")] == [64, 2, 128, 0]


@given(
    st.lists(st.integers(1, 300), min_size=2, max_size=4).flatmap(
        lambda dims: st.tuples(st.just(tuple(dims)), st.permutations(range(len(dims))))
    )
)
def test_only_the_last_two_dimensions_in_order_are_filled_up(case):
    dims, order = case
    s = Shape("f32", dims, tuple(order), ((8, 128),), bits=32)
    fast, next_ = dims[order[0]], dims[order[1]]
    whole = math.prod(dims) // (fast * next_) * (-(-fast // 128) * 128) * (-(-next_ // 8) * 8) * 4
    assert s.padded == whole >= s.logical and 0 <= s.waste < 1
    assert s.tile_of(order[0]) == 128 and s.tile_of(order[1]) == 8
    assert all(s.tile_of(d) == 1 for d in order[2:])


def module(dims, dtype):
    t = f"tensor<{'x'.join(map(str, (*dims, dtype)))}>"
    body = f"%0 = stablehlo.reverse %a, dims=[{len(dims) - 1 if dims else ''}] : {t}"
    return f"module @m {{ func.func public @main(%a: {t}) -> {t} {{ {body}\n return %0 : {t} }} }}"


@pytest.mark.usefixtures("libtpu")
@pytest.mark.parametrize("name", ["v3", "v4", "v5e", "v6e"])
def test_padded_sizes_are_the_compilers_own_on_any_shape(name):
    draw = random.Random(name)
    kinds = ("f32", "bf16", "i8", "i32", "i1", "f64", "ui8", "i4", "f16", "complex<f32>", "f8E4M3FN")
    sizes = (1, 2, 3, 5, 8, 10, 16, 33, 64, 100, 128, 129, 200)
    cases = [(tuple(draw.choice(sizes) for _ in range(draw.randint(0, 4))), k) for k in kinds for _ in range(3)]
    cases = [c for c in cases if math.prod(c[0]) < 10**7]
    made = compiler.compile_texts([module(*c) for c in cases], parsed(name))
    for case, found in zip(cases, made, strict=True):
        assert isinstance(found, compiler.CompiledModule), (case, found)
        m = HloModule(found.hlo)
        assert sum(s.padded for s in m.arguments) == found.memory.arguments, case
        assert sum(s.padded for s in m.results) == found.memory.results, case
