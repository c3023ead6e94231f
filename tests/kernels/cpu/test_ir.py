"""LLVM's text: constants keep every bit, loops carry values, branches join, and what has no meaning is refused."""

import re

import numpy as np
import pytest

from nxjax.errors import LoweringError
from nxjax.kernels.cpu.base import pointer
from nxjax.kernels.cpu.ir import Function, LlvmModule, bits_of, element, is_float, lanes_of, mangled, number, vector
from tests.kernels.cpu.running import ISAS, run
from tests.kernels.cpu.written import Written

SPECIAL = [0.0, -0.0, 1.0, np.inf, -np.inf, np.nan, 1e-45, 3.4e38, 0.1]


def test_types_are_taken_apart():
    assert vector("float", 8) == "<8 x float>"
    assert vector("float", 0) == "float"
    assert (element("<8 x float>"), lanes_of("<8 x float>")) == ("float", 8)
    assert (element("ptr"), lanes_of("ptr")) == ("ptr", 0)
    assert [bits_of(t) for t in ("half", "bfloat", "float", "double", "ptr", "i1", "i8")] == [16, 16, 32, 64, 64, 1, 8]
    assert is_float("<4 x half>")
    assert not is_float("<4 x i16>")
    assert mangled("<4 x float>") == "v4f32"


@pytest.mark.parametrize(("scalar", "dtype"), [("float", "f4"), ("double", "f8"), ("half", "f2")])
def test_constants_keep_every_bit(scalar, dtype):
    with np.errstate(over="ignore"):
        values = np.array(SPECIAL).astype(dtype)

    def body(f, isa, words, scratch, index):
        out = pointer(f, words, 0)
        for i, value in enumerate(values):
            f.store(f.constant(scalar, float(value)), f.at(out, i, values.itemsize))

    (got,) = run(Written(body, lambda: [values], about=dtype))
    word = f"u{values.itemsize}"
    np.testing.assert_array_equal(got.view(word)[values == values], values.view(word)[values == values])
    assert np.isnan(got[np.isnan(values)]).all()


def test_numbers_wrap_into_their_type():
    assert number("i8", 255) in ("-1", "255")
    assert number("i1", True) in ("1", "true")


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("count", [0, 1, 2, 9])
def test_loops_carry_values(isa, count):
    x = np.arange(1, count + 1, dtype=np.int64)

    def body(f, isa, words, scratch, index):
        x, out = pointer(f, words, 0), pointer(f, words, 1)
        with f.loop(0, count, carry=(f.constant("i64", 0), f.constant("i64", 1))) as loop:
            total, product = loop.carried
            one = f.load("i64", f.at(x, loop.index, 8))
            loop.next(total + one, product * one)
        for i, y in enumerate(loop.results):
            f.store(y, f.at(out, i, 8))

    kernel = Written(body, lambda x: [np.array([x.sum(), x.prod()])], about=count)
    np.testing.assert_array_equal(run(kernel, x, name=isa)[0], [x.sum(), x.prod()])


def test_llvm_gets_no_table_of_two_floats():
    """From a scalar choice between two floats LLVM makes a load, and ends the process beside other constants."""
    f = Function("some", ["i1"], "float")
    (c,) = f.arguments
    f.ret(f.select(c, f.constant("float", 2.0), -1.0) + c.convert("float"))
    assert "select i1 %a0, i32" in f.text
    assert "select i1 %a0, float" not in f.text
    assert "itofp" not in f.text


def test_branches_join_in_a_phi():
    x = np.array([-3, 4, 0, -1], np.int64)

    def body(f, isa, words, scratch, index):
        one = f.load("i64", f.at(pointer(f, words, 0), index, 8))
        before = f.block
        with f.if_(one.lt(0)):
            turned = f.constant("i64", 0) - one
            inside = f.block
        f.store(f.phi("i64", [(one, before), (turned, inside)]), f.at(pointer(f, words, 1), index, 8))

    np.testing.assert_array_equal(run(Written(body, lambda x: [abs(x)], items=4), x, cuts=[1, 3])[0], abs(x))


@pytest.mark.parametrize("isa", ISAS)
def test_masked_memory_is_not_touched_beyond_its_lanes(isa):
    x = np.arange(5, dtype=np.float32)

    def body(f, isa, words, scratch, index):
        lanes = isa.lanes(4)
        x, out = pointer(f, words, 0), pointer(f, words, 1)
        for start in range(0, 5, lanes):
            mask = f.lanes_below(f.constant("i64", min(5 - start, lanes)), lanes)
            y = f.load_masked(vector("float", lanes), f.at(x, start, 4), mask)
            f.store_masked(y + 1.0, f.at(out, start, 4), mask)

    np.testing.assert_array_equal(run(Written(body, lambda x: [x + 1]), x, name=isa)[0], x + 1)


def test_lanes_are_shuffled_taken_and_put():
    x = np.arange(4, dtype=np.int32)

    def body(f, isa, words, scratch, index):
        v = f.load("<4 x i32>", pointer(f, words, 0), 4)
        v = f.insert(f.shuffle(v, None, [3, 2, 1, 0]), f.extract(v, 2) * 10, 1)
        f.store(v, pointer(f, words, 1), 4)

    np.testing.assert_array_equal(run(Written(body, lambda x: [x]), x)[0], [3, 20, 1, 0])


def test_comparisons_of_floats_are_false_for_nan():
    f = Function("some", ("float", "float"))
    x, y = f.arguments
    assert "fcmp olt" in (f.text, x.lt(y), f.text)[2]
    x.is_nan()
    x.eq(y)
    assert "fcmp uno" in f.text
    assert "fcmp oeq" in f.text
    assert "fast" not in f.text


def test_a_module_has_each_function_once_and_declares_what_is_called():
    module = LlvmModule()
    for _ in range(2):
        f = Function("same", ("double",), "double")
        f.ret(f.intrinsic("sqrt", "double", f.arguments[0]))
        module.add(f)
    assert module.text.count("define ") == 1
    assert module.text.count("declare double @llvm.sqrt.f64") == 1


def test_one_name_has_one_meaning_in_a_module():
    def function(name, *parameters, helper="double"):
        f = Function(name, parameters)
        f.call("helper", helper, *f.arguments)
        f.ret()
        return f

    f = function("one", "double")
    with pytest.raises(LoweringError, match="helper is declared twice"):
        f.call("helper", "double")
    for other in (function("other", "float"), function("other", "double", helper="float")):
        module = LlvmModule()
        module.add(function("one", "double"))
        module.add(other)
        with pytest.raises(LoweringError, match="helper is declared twice"):
            assert module.text
    module.functions.pop("other")
    module.add(Function("helper", ["i64"], "double"))
    with pytest.raises(LoweringError, match="helper is declared twice"):
        assert module.text
    module = LlvmModule()
    module.add(function("one", "double"))
    module.add(function("one", "float"))
    with pytest.raises(LoweringError, match="one is declared twice"):
        assert module.text
    module = LlvmModule()
    module.globals["@x"] = "@x = internal global i64 0"
    module.add(function("one", "double"))
    module.functions["one"].globals["@x"] = "@x = internal global i64 1"
    with pytest.raises(LoweringError, match="@x is declared twice"):
        assert module.text


def test_intrinsics_are_called_as_the_table_says():
    f = Function("some", ("double", "i32"))
    x, n = f.arguments
    for call in (
        lambda: f.intrinsic("sqrt", "float", x),
        lambda: f.intrinsic("sqrt", "double", x, x),
        lambda: f.intrinsic("ctlz", "i32", n, n),
        lambda: f.intrinsic("no.such", "i32", n),
        lambda: f.call("llvm.sqrt.f64", "double", x),
    ):
        with pytest.raises(LoweringError, match="cpu: "):
            call()
    assert f.declarations == {}


@pytest.mark.parametrize("given", [None, 0, 1, 3])
def test_a_loop_says_what_it_carries_on(given):
    f = Function("f", [], "void")

    def loops():
        with f.loop(0, 3, carry=(f.constant("i64", 0), f.constant("i64", 1))) as loop:
            if given is not None:
                loop.next(*[f.constant("i64", 0)] * given)

    with pytest.raises(AssertionError, match=r"f: a loop carries 2 values; next\(\) says which follow"):
        loops()


@pytest.mark.parametrize("lanes", [1, 2, 4, 8, 16, 32, 64])
@pytest.mark.parametrize("type", ["i8", "i16", "i32", "i64"])
def test_masks_come_from_whole_registers(lanes, type):
    """What AVX-512 compares has no lanes that a mask hasn't: their bits would have to be cleared."""
    f = Function("f", ["i64"], "void")
    f.lanes_below(f.arguments[0], lanes, type)
    f.ret()
    (compared,) = re.findall(r"icmp ult <(\d+) x i(\d+)>", f.text)
    assert int(compared[0]) == lanes and int(compared[0]) * int(compared[1]) >= min(128, 64 * lanes)
