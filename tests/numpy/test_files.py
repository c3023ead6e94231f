"""NumPy's files from elsewhere: what they ask for is known before any of it is given."""

import io
import os
import tracemalloc
import zipfile

import ml_dtypes
import numpy as np
import pytest

import nxjax.numpy as jnp
from nxjax.errors import InvalidFileError, MemoryLimitError


def saved(save, *args, **named):
    file = io.BytesIO()
    save(file, *args, **named)
    return file.getvalue()


def header(said, body=b""):
    text = said.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + body


def peak(action):
    """The most memory that an action takes, in bytes."""
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.fixture(scope="module")
def bomb():
    """300 MB in 292 kB, made in pieces."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("a.npy", "w") as member:
        member.write(header("{'descr': '|u1', 'fortran_order': False, 'shape': (300000000,), }"))
        for _ in range(300):
            member.write(bytes(10**6))
    return file.getvalue()


def test_a_small_archive_of_much(bomb, tmp_path):
    assert len(bomb) < 300_000
    (tmp_path / "b.npz").write_bytes(bomb)

    def refused():
        for given in (tmp_path / "b.npz", str(tmp_path / "b.npz"), io.BytesIO(bomb)):
            with pytest.raises(MemoryLimitError, match=r"300,000,128 bytes[\s\S]*memory_limit"):
                jnp.load(given)

    assert peak(refused) < 5e6
    with jnp.load(io.BytesIO(bomb), memory_limit=2**30) as trusted:
        assert trusted.files == ["a"]
    with pytest.raises(MemoryLimitError):
        jnp.load(io.BytesIO(saved(np.savez, a=np.ones(100))), memory_limit=100)


def test_an_archive_that_lies_about_its_sizes(bomb):
    """Sizes in the directory of an archive are anybody's; its own size is not."""
    data = bytearray(bomb)
    place = data.rindex(b"PK\x01\x02")
    data[place + 20 : place + 24] = (2**31).to_bytes(4, "little")  # packed
    with pytest.raises((MemoryLimitError, InvalidFileError)):
        jnp.load(io.BytesIO(data))
    data = bytearray(bomb)
    data[place + 24 : place + 28] = (1000).to_bytes(4, "little")  # unpacked

    def read():
        with jnp.load(io.BytesIO(data)) as found, pytest.raises(InvalidFileError, match="a in an archive"):
            found["a"]

    assert peak(read) < 5e6


@pytest.mark.parametrize("shape", ["(1000000000,)", "(1000000, 1000000, 1000000)", "(2,)", "(0,)"])
def test_a_header_that_promises_more_than_there_is(shape, tmp_path):
    data = header(f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}", bytes(7 if shape != "(0,)" else 0))
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.npy", data)
    (tmp_path / "x.npy").write_bytes(data)

    def read():
        for get in (
            lambda: jnp.load(tmp_path / "x.npy"),
            lambda: jnp.load(io.BytesIO(data)),
            lambda: jnp.load(io.BytesIO(file.getvalue()))["a"],
        ):
            if shape == "(0,)":
                assert get().shape == (0,)
            else:
                with pytest.raises(InvalidFileError, match="its header says"):
                    get()

    assert peak(read) < 5e6


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_packed_as_numpy_does_not(method):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.writestr("a.npy", saved(np.save, np.ones(3)))
    with pytest.raises(InvalidFileError, match="packed in a way"):
        jnp.load(io.BytesIO(file.getvalue()))


def test_objects_are_not_unpickled():
    for data in (saved(np.save, np.array([print], object), allow_pickle=True), b"cos\nsystem\n(S'false'\ntR."):
        with pytest.raises(InvalidFileError, match="pickle"):
            jnp.load(io.BytesIO(data))
    with (
        jnp.load(io.BytesIO(saved(np.savez, a=np.array([1, "x"], object)))) as found,
        pytest.raises(InvalidFileError, match="pickle"),
    ):
        found["a"]


def test_a_pipe_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "x.npy")
    with pytest.raises(InvalidFileError, match="not a file"):
        jnp.load(tmp_path / "x.npy")


def test_what_numpy_writes_is_read(tmp_path):
    arrays = {
        "f": np.asfortranarray(np.arange(6.0).reshape(2, 3)), "none": np.ones((0, 3)), "b": np.array([True, False]),
        "zero": np.float32(2), "wide": np.ones(3, ml_dtypes.bfloat16), "mixed": np.zeros(2, [("a", "f4"), ("b", "i8")]),
    }  # fmt: skip
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "x.npz", **arrays)
        with jnp.load(tmp_path / "x.npz") as found:
            for name, x in arrays.items():
                assert found[name].shape == np.shape(x) and found[name].tobytes() == np.asarray(x).tobytes()
    file = io.BytesIO(b"before" + saved(np.save, np.arange(4)) + saved(np.save, np.arange(5)))
    file.seek(6)
    assert jnp.load(file).tolist() == [0, 1, 2, 3] and jnp.load(file).tolist() == [0, 1, 2, 3, 4]
    np.save(tmp_path / "x.npy", np.arange(4))
    assert jnp.load(tmp_path / "x.npy", mmap_mode="r").tolist() == [0, 1, 2, 3]
    assert jnp.load(str(tmp_path / "x.npy")).tolist() == [0, 1, 2, 3]
    jnp.save(tmp_path / "narrow.npy", jnp.arange(3, dtype=jnp.bfloat16))
    narrow = jnp.load(tmp_path / "narrow.npy")
    assert narrow.dtype == ml_dtypes.bfloat16 and narrow.tolist() == [0, 1, 2]
    with open(tmp_path / "x.npy", "rb") as opened:
        assert jnp.load(opened).tolist() == [0, 1, 2, 3]


def test_members_are_found_without_a_search():
    """Each look at one took as long as there are members."""
    file = io.BytesIO()
    np.savez(file, **{"a": np.ones(1), "b.npy": np.zeros(1)})
    file.seek(0)
    found = jnp.load(file)
    found.files = None  # the list
    for name, value in (("a", 1), ("a.npy", 1), ("b.npy", 0), ("b.npy.npy", 0)):
        assert found[name].tolist() == [value]
