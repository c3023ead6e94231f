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


@pytest.mark.parametrize("order", ["=", "<", ">"])
@pytest.mark.parametrize("name", ["uint64", "float64", "int16"])
def test_dtypes_are_numpys_own(name, order):
    """Big-endian files give an equal dtype, not the same one, to whoever asks for this machine's order."""
    own = np.dtype(name).newbyteorder(order)
    source = np.arange(4, dtype=own)[::-1]
    with nx.config.using(enable_x64=True, executor="reference"):
        value = from_numpy(source)
        source[0] = 9
        assert value.dtype is np.dtype(name) and value.numpy().dtype is np.dtype(name)
        assert value.numpy().tolist() == [3, 2, 1, 0]
        assert nx.zeros(2, own).dtype is np.dtype(name)
        # Sorted as integers: float32 does not tell these apart.
        top = np.arange(4, dtype=np.uint64)[::-1] + np.uint64(2**63)
        np.testing.assert_array_equal(nx.jit(nx.sort)(top.astype(top.dtype.newbyteorder(order))), top[::-1])


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
