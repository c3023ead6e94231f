"""LLVM knows every intrinsic of the table by that symbol with that signature."""

import llvmlite.binding as llvm
import pytest

from nxjax.errors import LoweringError
from nxjax.kernels.cpu.intrinsics import _NEEDS, _SIGNATURES, needed, signature
from nxjax.kernels.cpu.ir import Function, LlvmModule, is_float, vector

FLOATS = ("fabs", "sqrt", "trunc", "floor", "ceil", "rint", "roundeven", "sin", "cos", "copysign", "fmuladd")


def called(name, over):
    """A module with one call of an intrinsic."""
    _, result, parameters = signature(name, over)
    f = Function("f", parameters, result)
    # Alignments and switches are constants.
    xs = [
        f.constant(t, 4 if name.startswith("masked") or "scalef" in name else 0)
        if t in ("i32", "i1") or (t == "i8" and "x86.t" in name)
        else x
        for t, x in zip(parameters, f.arguments, strict=True)
    ]
    if name == "prefetch":
        xs[2:] = f.constant("i32", 3), f.constant("i32", 1)
    y = f.intrinsic(name, result, *xs, over=over)
    f.ret(None if result == "void" else y)
    module = LlvmModule()
    module.add(f)
    return module


@pytest.mark.parametrize("name", _SIGNATURES)
def test_llvm_knows_it(name):
    scalars = ("float", "double") if name in FLOATS or name.endswith("fadd") else ("i1",)
    if name.startswith("masked"):
        scalars = ("i8", "half", "float", "i64")
    elif scalars == ("i1",) and not name.endswith(".or"):
        scalars = ("i8", "i32", "i64")
    for scalar in scalars:
        for lanes in (4, 16) if name.startswith(("masked", "vector")) else (0, 8):
            over = vector(scalar, lanes)
            assert is_float(over) == (scalar in ("half", "float", "double"))
            module = llvm.parse_assembly(called(name, over).text)
            module.verify()
            assert "attributes #0" in str(module), "LLVM takes it for any function"


def test_what_only_some_processors_have_is_said():
    assert set(_NEEDS) <= set(_SIGNATURES)
    assert {n for n in _SIGNATURES if n.startswith(("x86.avx", "x86.t", "x86.ldtile", "aarch64.neon"))} == set(_NEEDS)
    assert needed("llvm.x86.avx512.vpdpbusd.512") == "avx512vnni"
    assert needed("llvm.sqrt.f64") == ""


def test_others_are_refused():
    with pytest.raises(LoweringError, match="no emitter may call"):
        signature("trap", "")
