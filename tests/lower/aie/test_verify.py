"""Designs that are broken in one place are refused with what is wrong: when read, by the verifier, or by running."""

import re

import numpy as np
import pytest

from nxjax.errors import ProgramError
from nxjax.kernels.aie.chip import NPU1
from nxjax.lower.aie.build import matmul_design
from nxjax.lower.aie.parse import parse
from nxjax.lower.aie.plan import MatmulPlan, MatmulProblem
from nxjax.lower.aie.text import mlir
from nxjax.lower.aie.verify import verify
from nxjax.vendors.amd.aie.model import run

# Two columns of two cores, tiles 32 x 32 x 32, three steps.
GOOD = mlir(matmul_design(MatmulPlan(MatmulProblem(64, 96, 64), NPU1, 2, 2, 32, 32, 32)))

SPELLING = [
    ("aie.device(npu1_2col)", "aie.device npu1_2col", "should stand here"),
    ("%b = aie.objectfifo.subview", "%a = aie.objectfifo.subview", "second value"),
    ("%c1 = arith.constant 1 : index", "%c0 = arith.constant 1 : index", "second value"),
    ("%b_view = aie.objectfifo.acquire", "%a_view = aie.objectfifo.acquire", "second value"),
    ("dynamic_objfifo_lowering = true", "dynamic_objfifo_lowering = false", "'true'"),
    ("aie.tile(0, 0)", "aie.tile(0, x)", "a number"),
    ("aie.tile(0, 0)", "aie.tile(0 0)", "','"),
    ("%mem_tile_0_1 = aie.tile(0, 1)", "%mem_tile_0_1 = aie.tyle(0, 1)", "aie.tile"),
    (
        "%mem_tile_0_1 = aie.tile(0, 1)\n",
        "%mem_tile_0_1 = aie.tile(0, 1)\n %mem_tile_0_1 = aie.tile(0, 1)\n",
        "second tile",
    ),
    ("{%mem_tile_0_1}, 2 : i32)", "{%mem_tile_9_1}, 2 : i32)", "not declared"),
    ("acquire @a_0(Consume, 1)", "acquire @a_0(Consume, 2)", "one object at a time"),
    ("acquire @a_0(Consume, 1)", "acquire @nothing(Consume, 1)", "not declared"),
    ("memref<1024xi8>", "memref<?xi8>", "memref of fixed sizes"),
    ("func.call @nx_zero_i32_1024(%c)", "func.call @nx_zero_i32_1024(%d)", "takes memref<1024xi32>"),
    ("func.call @nx_zero_i32_1024(%c)", "func.call @nx_ones(%c)", "not declared"),
    ("scf.for %i0 = %c0 to", "scf.for %i0 = %c1 to", "from 0 in steps of 1"),
    ("[0, 32, 96, 1]", "[0, 32, 96]", "should stand here|four numbers"),
    ("metadata = @a_in_0", "metadata = @a_in_9", "not declared"),
    ("dma_memcpy_nd(%a[", "dma_memcpy_nd(%q[", "argument that the sequence has not"),
    ("aiex.npu.dma_wait", "aiex.npu.sync", "should stand here"),
    ("  }\n}\n", "  }\n}\n}\n", "nothing should follow"),
    ("      aie.end", "      aie.stop", "operation that cores here do not have"),
]

LIMITS = [
    ("aie.device(npu1_2col)", "aie.device(npu1_9col)", "not known"),
    ("aie.device(npu1_2col)", "aie.device(npu1_1col)", "not on npu1_1col"),
    ("%tile_0_2 = aie.tile(0, 2)", "%tile_0_2 = aie.tile(0, 3)", "are one tile"),
    ("%tile_0_2 = aie.tile(0, 2)", "%tile_0_2 = aie.tile(0, 6)", "not on npu1"),
    (
        "{%mem_tile_0_1}, 2 : i32) : !aie.objectfifo<memref<1024xi8>>",
        "{%mem_tile_0_1}, 300 : i32) : !aie.objectfifo<memref<1024xi8>>",
        "too few",
    ),
    ("{%tile_0_2, %tile_1_2}, 2", "{%tile_0_2, %tile_1_2}, 20", "too few buffer descriptors|too few bytes"),
    ("<size = 8, stride = 128>", "<size = 9, stride = 128>", "do not go through an object once"),
    ("<size = 8, stride = 1>]", "<size = 8, stride = 2>]", "once|words"),
    ("stride = 32>, <size = 8, stride = 1>]", "stride = 33>, <size = 8, stride = 1>]", "once|words"),
    ("stack_size = 3328 : i32}", "stack_size = 3 : i32}", "too small a stack"),
    ("stack_size = 3328 : i32}", "stack_size = 65000 : i32}", "too few bytes of memory"),
    ("([0, 1024] [])", "([0, 1000] [])", "overlap or leave a gap"),
    ("([0, 1024] [])", "([0] [])", "an offset for each part"),
    ("aie.objectfifo.link [@b_in_0] -> [@b_0]", "aie.objectfifo.link [@b_in_0] -> [@b_1]", "not through one tile"),
    ("aie.objectfifo.release @b_0(Consume, 1)", "", "does not give back"),
    (
        "aie.objectfifo.release @b_0(Consume, 1)",
        "aie.objectfifo.release @c_0_0(Produce, 1)",
        "holds|give back|does not hold",
    ),
    ("@a_0(Consume, 1)", "@a_1(Consume, 1)", "is not where"),
    (
        "%c_view = aie.objectfifo.acquire @c_0_0(Produce, 1)",
        "%c_view = aie.objectfifo.acquire @c_0_0(Consume, 1)",
        "is not where",
    ),
    ("@nx_zero_i32_1024", "@nx_zero_i32_2048", "other arguments"),
    ("@nx_zero_i32_1024", "@my_zero", "no kernel that is known"),
    ("{id = 1 : i64, metadata = @a_in_0}", "{id = 16 : i64, metadata = @a_in_0}", "BD that a shim has not"),
    ("(%a[0, 0, 0, 0][1, 3, 32, 32]", "(%a[0, 0, 0, 2][1, 3, 32, 32]", "not aligned|bounds"),
    ("(%a[0, 0, 0, 0][1, 3, 32, 32]", "(%a[0, 0, 0, 0][1, 3, 33, 32]", "part of an object"),
    ("(%a[0, 0, 0, 0][1, 3, 32, 32]", "(%a[0, 0, 0, 0][65, 3, 32, 32]", "too many iterations"),
    ("(%a[0, 0, 0, 0][1, 3, 32, 32]", "(%a[0, 0, 0, 4096][1, 3, 32, 32]", "out of the buffer's bounds"),
    ("[1, 3, 32, 32][0, 32, 96, 1]", "[1, 3, 32, 32][0, 0, 96, 1]", "only the outermost stride"),
    ("[1, 3, 32, 32][0, 32, 96, 1]", "[1, 3, 32, 32][0, 32, 96, 3]", "side by side"),
    ("[1, 3, 32, 32][0, 32, 96, 1]", "[1, 0, 32, 32][0, 32, 96, 1]", "not positive"),
    ("aiex.npu.dma_wait {symbol = @c_out_1}", "", "ends without waiting"),
    ("aiex.npu.dma_wait {symbol = @c_out_1}", "aiex.npu.dma_wait {symbol = @a_in_0}", "no copy has a token"),
    ("metadata = @a_in_0}", "metadata = @a_0}", "does not end at a shim"),
    (
        "{%mem_tile_1_1}, 2 : i32) : !aie.objectfifo<memref<1024xi8>>",
        "{%mem_tile_0_1}, 2 : i32) : !aie.objectfifo<memref<1024xi8>>",
        "not through one tile|channels",
    ),
]

RUNS = [
    # Too few objects come: the cores wait for ever.
    ("[1, 3, 32, 32][0, 32, 96, 1]", "[1, 2, 32, 32][0, 32, 96, 1]", "a deadlock"),
    # Too many come: what is left over is never taken.
    ("(%a[0, 0, 0, 0][1, 3, 32, 32]", "(%a[0, 0, 0, 0][2, 3, 32, 32]", "left over|never finished"),
    # A loop that goes round less often than tiles are sent.
    ("scf.for %i1 = %c0 to %c3", "scf.for %i1 = %c0 to %c1", "deadlock|left over|never finished"),
    ("{id = 1 : i64, metadata = @a_in_0}", "{id = 0 : i64, metadata = @a_in_0}", "is given out while"),
]


def changed(old: str, new: str) -> str:
    assert old in GOOD, old
    return GOOD.replace(old, new) if old.startswith(("aie.objectfifo.release", "@nx")) else GOOD.replace(old, new, 1)


def everything(text: str) -> None:
    design = verify(parse(text))
    run(design, {name: np.zeros(t.size, t.dtype) for name, t in design.sequence.arguments}, values=False)


def test_the_design_that_is_broken_below_is_good():
    everything(GOOD)


@pytest.mark.parametrize(("old", "new", "words"), SPELLING, ids=range(len(SPELLING)))
def test_spelling_is_refused_with_its_line(old: str, new: str, words: str):
    with pytest.raises(ProgramError, match=words) as caught:
        parse(changed(old, new))
    line = int(re.search(r"line (\d+)", str(caught.value))[1])
    assert 1 <= line <= GOOD.count("\n") + 2


@pytest.mark.parametrize(("old", "new", "words"), LIMITS, ids=range(len(LIMITS)))
def test_limits_are_refused(old: str, new: str, words: str):
    with pytest.raises((ProgramError, ValueError), match=words):
        everything(changed(old, new))


@pytest.mark.parametrize(("old", "new", "words"), RUNS, ids=range(len(RUNS)))
def test_what_only_running_shows_is_refused(old: str, new: str, words: str):
    text = changed(old, new)
    verify(parse(text))
    with pytest.raises(ProgramError, match=words):
        everything(text)


def test_too_many_streams_are_refused():
    line = next(row for row in GOOD.splitlines() if "@a_in_0(" in row)
    more = "".join(line.replace("@a_in_0", f"@more_{i}") + "\n" for i in range(2))
    with pytest.raises(ProgramError, match=r"channels|nothing takes"):
        verify(parse(GOOD.replace(line + "\n", line + "\n" + more, 1)))
