"""How data becomes a value: no copy of what cannot change, a copy of what can, a clear no to the rest."""

import copy
import mmap
import pickle

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
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
    kept = from_numpy(source)
    source.flags.writeable = True
    source[0] = 2
    assert kept.numpy()[0] == 1
    unchanging = np.frombuffer(bytes(12), np.float32)
    assert from_numpy(unchanging).numpy() is unchanging


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


# --- memory of others ---


def _backed(tmp_path):
    """Read-only arrays, each with what writes to their memory all the same."""
    whole = np.ones((6, 4), np.float32)
    yield np.broadcast_to(whole, (2, 6, 4)), lambda: whole.fill(3)
    view = whole[::2]
    view.flags.writeable = False
    yield view[:2], lambda: whole.fill(4)
    owner = np.ones((3, 4), np.float32)
    owner.flags.writeable = False

    def opened():
        owner.flags.writeable = True
        owner.fill(3)

    yield owner, opened
    raw = bytearray(48)
    yield (
        np.frombuffer(memoryview(raw).toreadonly(), np.float32),
        lambda: raw.__setitem__(slice(None), b"\1" * 48),
    )
    file = tmp_path / "x.bin"
    np.ones(12, np.float32).tofile(file)
    with open(file, "rb") as f:
        mapped = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)

    def written():
        with open(file, "r+b") as f:
            f.write(b"\1" * 48)

    yield np.memmap(file, np.float32, "r"), written
    yield np.frombuffer(mapped, np.float32), written
    small = np.ones(3, np.int8)
    yield np.lib.stride_tricks.as_strided(small, (3,), writeable=False), lambda: small.fill(3)


ENTRANCES = {
    "asarray": jnp.asarray,
    "array": lambda a: jnp.array(a, copy=False),
    "device_put": nx.device_put,
    "device_put to a device": lambda a: nx.device_put(a, nx.devices()[0]),
    "from_dlpack": jnp.from_dlpack,
    "an argument of jit": lambda a: nx.jit(lambda x: x)(a),
    "a constant of jit": lambda a: nx.jit(lambda: jnp.asarray(a))(),
    "a callback": lambda a: nx.pure_callback(lambda: a, nx.ShapeDtypeStruct(a.shape, a.dtype)),
    "reshape": lambda a: jnp.reshape(a, -1),
}


@pytest.mark.parametrize("executor", [None, "reference"])
@pytest.mark.parametrize("entrance", ENTRANCES)
def test_arrays_do_not_follow_memory_of_others(entrance, executor, tmp_path):
    with nx.config.using(executor=executor):
        for source, write in _backed(tmp_path):
            x = ENTRANCES[entrance](source)
            before = np.array(x, copy=True)
            write()
            np.testing.assert_array_equal(x, before)


def test_what_is_handed_out_is_not_made_writable_again():
    f = nx.jit(lambda x: x * 2)
    for _ in range(4):
        f(jnp.ones(9))
    for x in (
        jnp.sin(jnp.ones((3, 4))), jnp.sin(jnp.ones((3, 4))).T, jnp.ones(3), f(jnp.ones(9)), f(jnp.ones(900)),
        jnp.asarray(2.5), jnp.ones(3, "bfloat16"), nx.device_put(jnp.ones(3), nx.devices()[0]), jnp.arange(9)[1:],
        next(iter(jnp.ones((3, 4)))),
    ):  # fmt: skip
        for view in (np.asarray(x), np.asarray(x).T, nx.device_get(x), np.asarray(x)[...]):
            assert not view.flags.writeable
            with pytest.raises(ValueError, match="WRITEABLE"):
                view.setflags(write=True)
        assert not x.numpy().flags.writeable
        buffers = []
        data = pickle.dumps(x, 5, buffer_callback=buffers.append)
        assert all(memoryview(b).readonly for b in buffers)
        memory = [bytearray(memoryview(b).cast("B")) for b in buffers]
        back = pickle.loads(data, buffers=memory)
        for m in memory:
            m[:] = bytes(len(m))
        np.testing.assert_array_equal(back, x)


def test_numbers_are_arrays_of_their_own():
    a, b = jnp.asarray(7.25), jnp.asarray(7.25)
    a.delete()
    assert float(b) == float(jnp.asarray(7.25)) == float(jnp.float32(0) + 7.25) == 7.25
    f = nx.jit(lambda x, y: x + y, donate_argnums=0)
    assert [float(f(1.0, 2.0)) for _ in range(5)] == [3.0] * 5
    assert float(jnp.sin(1.0) + 1.0) > 1


def test_copies_outlive_what_they_are_copies_of():
    for copied in (
        jnp.copy, jnp.array, copy.copy, copy.deepcopy, lambda x: x.copy(), lambda x: jnp.asarray(x, copy=True),
        lambda x: x.astype(x.dtype, copy=True), lambda x: nx.device_put(x, may_alias=False), lambda x: +x, jnp.real,
        jnp.conj, jnp.squeeze, jnp.clip, jnp.atleast_1d, lambda x: jnp.broadcast_arrays(x)[0],
    ):  # fmt: skip
        x = jnp.arange(4.0)
        y = copied(x)
        x.delete()
        assert y.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("put", [lambda x: x, lambda x: nx.device_put(x, nx.devices()[0])], ids=["nowhere", "placed"])
def test_a_deleted_array_is_on_no_device(put):
    donated = put(jnp.arange(4.0))
    nx.jit(lambda x: x + 1, donate_argnums=0)(donated)
    deleted = put(jnp.arange(4.0))
    deleted.delete()
    gone = [donated, deleted]
    for x in gone:
        for ask in (lambda x: x.devices(), lambda x: x.device, lambda x: x.is_ready(), lambda x: x.addressable_shards):
            with pytest.raises(RuntimeError, match="Array has been deleted"):
                ask(x)
        assert (x.shape, x.nbytes, x.sharding.num_devices) == ((4,), 16, 1), "what JAX says of it, too"
    nx.live_arrays("cpu")  # does not ask them


def test_a_masked_array_is_refused():
    """Its mask would be lost without a word. Machine code that knows plain arrays lets none through either."""
    x = np.ones(3, np.float32)
    masked = np.ma.array(x, mask=[False, True, False])
    known = nx.jit(lambda x: x + 1)
    for _ in range(4):
        known(x)
    added = lambda m: nx.ones(3) + m
    for f in (jnp.asarray, jnp.array, nx.sin, known, nx.grad(lambda x: x.sum()), nx.device_put, added):
        with pytest.raises(ValueError, match="arrays have no masks"):
            f(masked)


class Masked:
    """What gives a masked array when it is asked for one."""

    def __array__(self, *args, **kwargs):
        return np.ma.array([1.0, 2.0], mask=[False, True])


@pytest.mark.parametrize(
    "x", [np.ma.array([1.0, 2.0], mask=[False, True]), np.ma.masked, Masked()], ids=["array", "element", "object"]
)
def test_a_masked_array_is_refused_by_every_entrance(x, tmp_path):
    ones, plain = jnp.ones(2), np.ones(2, np.float32)
    data = np.asanyarray(x)
    entrances = [
        lambda: jnp.asarray(x, dtype="float32"), lambda: jnp.array(x, dtype=int), lambda: jnp.float32(x),
        lambda: jnp.array([x, x], dtype="float32"), lambda: jnp.array([[x, x]]), lambda: jnp.array([ones, x]),
        lambda: jnp.full((2,), x, dtype="float32"), lambda: jnp.full_like(ones, x), lambda: nx.sin(x),
        lambda: nx.make_array_from_callback(data.shape, ones.sharding, lambda _: x),
        lambda: nx.make_array_from_callback(data.shape, ones.sharding, lambda _: x, dtype=np.float32),
        lambda: nx.pure_callback(lambda _: x, nx.ShapeDtypeStruct(data.shape, "float32"), ones),
        lambda: jnp.save(tmp_path / "x", x), lambda: jnp.savez(tmp_path / "x", x),
        lambda: jnp.savez(tmp_path / "x", a=x),
        lambda: jnp.from_dlpack(data), lambda: jnp.repeat(plain, x), lambda: jnp.pad(plain, 1, constant_values=x),
    ]  # fmt: skip
    for entrance in entrances:
        with pytest.raises(ValueError, match="arrays have no masks"):
            entrance()
    assert not any(tmp_path.iterdir())


def test_where_an_array_lies_is_no_part_of_its_class():
    x = jnp.ones(2)
    placed = [nx.device_put(x, nx.devices()[0]), nx.pmap(lambda x: x)(x[None]), nx.jit(jnp.sin)(nx.device_put(x))]
    assert {type(y) for y in (*placed, x.addressable_shards[0].data)} == {type(x)}
    assert placed[0].committed and not x.committed
    assert (placed[0] + 1).committed and (1 + placed[0]).committed and (x * placed[0]).committed
    assert jnp.sin(placed[0]).committed and placed[0].sum().committed and (x @ placed[0]).committed
    assert placed[0][0].committed and next(iter(placed[0])).committed and jnp.where(x > 0, x, placed[0]).committed


def test_a_jitted_call_tells_where_its_arguments_lie():
    x = jnp.ones(2)
    there = nx.device_put(x, nx.devices()[0])
    double = nx.jit(lambda x: 2 * x)
    for _ in range(20):  # a call that is known is answered by a shortcut
        assert not double(x).committed
    for y in (there, x, there):
        assert double(y).committed == y.committed
