"""How data becomes a value: no copy of what cannot change, a copy of what can, a clear no to the rest."""

import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import DtypeError
from nxjax.trace.array import as_value, from_numpy, scalar, type_of


def test_python_scalars_are_weak():
    assert repr(as_value(1).type) == "i32[]*"
    assert repr(as_value(1.0).type) == "f32[]*"
    assert repr(as_value(1j).type) == "c64[]*"
    assert repr(as_value(True).type) == "bool[]"
    assert repr(as_value(np.float64(1)).type) == "f32[]"


def test_signed_zero_and_equal_numbers_are_told_apart():
    assert np.signbit(scalar(-0.0).numpy())
    assert not np.signbit(scalar(0.0).numpy())
    assert scalar(True).dtype == np.bool_
    assert scalar(1).dtype == np.int32


def test_arrays_do_not_follow_their_source():
    source = np.zeros(3, np.float32)
    value = from_numpy(source)
    source[0] = 1
    assert value.numpy()[0] == 0
    source.flags.writeable = False
    assert from_numpy(source).numpy() is source


def test_what_is_no_array_is_refused():
    with pytest.raises(DtypeError, match=r"nx\.array"):
        as_value([1, 2], "sin")
    with pytest.raises(DtypeError, match="not an array"):
        as_value("text", "sin")
    with pytest.raises(DtypeError, match="cannot hold"):
        as_value(np.array(["a"]), "sin")
    with pytest.raises(OverflowError, match="does not fit"):
        as_value(2**40)


def test_types_without_values():
    assert repr(type_of(nx.ShapeDtypeStruct((2,), "bfloat16"))) == "bf16[2]"
    assert repr(type_of(np.zeros((2, 3)))) == "f32[2,3]"
