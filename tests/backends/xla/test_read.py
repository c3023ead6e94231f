"""Modules as plain trees: values, attributes, names, places, and what cannot be held."""

import sys

import numpy as np
import pytest

from nxjax.backends.xla.read import read
from nxjax.errors import DtypeError, InvalidFileError
from nxjax.lower.stablehlo.module import Splat
from nxjax.trace import dtypes
from nxjax.trace.types import ArrayType

TEXT = """
func.func public @main(%x: tensor<2x3xf32> loc("p['w']"), %y: tensor<3x2xf32>) -> tensor<2x2xbf16> {
  %c = stablehlo.constant dense<[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]> : tensor<2x3xf32>
  %s = stablehlo.constant dense<2.5> : tensor<1000x1000xf32>
  %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0], precision = [HIGH, DEFAULT]
    : (tensor<2x3xf32>, tensor<3x2xf32>) -> tensor<2x2xbf16> loc("jit(f)/encoder/dense/dot_general"("model.py":7:3))
  return %0 : tensor<2x2xbf16>
}"""


def test_a_module_is_a_tree():
    module = read(TEXT, trusted=True)
    main = module.functions["main"]
    assert main.public and main.names == ("p['w']", "")
    constant, splat, dot = main.body.operations
    np.testing.assert_array_equal(constant.attributes["value"], [[1, 2, 3], [4, 5, 6]])
    assert isinstance(splat.attributes["value"], Splat) and splat.attributes["value"].value == 2.5
    assert dot.name == "stablehlo.dot_general" and dot.operands == main.body.arguments
    assert dot.results == main.body.results and dot.out_types == (ArrayType((2, 2), dtypes.bfloat16),)
    assert dot.attributes["dot_dimension_numbers"]["lhs_contracting_dimensions"] == (1,)
    assert dot.attributes["precision_config"] == ("HIGH", "DEFAULT")
    assert dot.scope == "encoder/dense" and dot.location == "jit(f)/encoder/dense/dot_general at model.py:7"


def test_a_process_of_its_own_reads_the_same():
    ours, theirs = (read(TEXT, trusted=t).functions["main"] for t in (True, False))
    assert [o.name for o in ours.body.operations] == [o.name for o in theirs.body.operations]
    assert ours.names == theirs.names


def test_element_types_that_arrays_have_not():
    with pytest.raises(DtypeError, match="f8E3M4"):
        read("func.func public @main(%x: tensor<2xf8E3M4>) -> tensor<2xf8E3M4> { return %x : tensor<2xf8E3M4> }", True)


def test_what_does_not_verify_is_refused():
    text = """func.func public @main(%x: tensor<2xf32>) -> tensor<3xf32> {
      %0 = "stablehlo.add"(%x, %x) : (tensor<2xf32>, tensor<2xf32>) -> tensor<3xf32>
      return %0 : tensor<3xf32>
    }"""
    with pytest.raises(InvalidFileError, match=r"stablehlo\.add"):
        read(text, trusted=True)
    with pytest.raises(InvalidFileError, match=r"stablehlo\.add"):
        read(text)


@pytest.mark.skipif(sys.platform != "linux", reason="the system bounds no process's data")
def test_a_reader_that_asks_for_too_much_memory_gets_none():
    # A dimension number of 2^31 is a table of so many entries to MLIR.
    text = """
    func.func @main(%x: tensor<1x4x5x6xf32>, %w: tensor<2x4x2x3xf32>) -> tensor<1x2x4x4xf32> {
      %0 = "stablehlo.convolution"(%x, %w) {batch_group_count = 1 : i64, feature_group_count = 1 : i64,
        dimension_numbers = #stablehlo.conv<[b, f, 0, 2147483648]x[o, i, 0, 1]->[b, f, 0, 1]>}
        : (tensor<1x4x5x6xf32>, tensor<2x4x2x3xf32>) -> tensor<1x2x4x4xf32>
      return %0 : tensor<1x2x4x4xf32>
    }"""
    with pytest.raises(InvalidFileError, match="not a module"):
        read(text)
