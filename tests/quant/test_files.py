"""Parameter files: every element type there and back, written whole or not at all; damaged ones are refused."""

import json
import os
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.errors import DtypeError, InvalidFileError, MissingExtraError, TreeError
from nxjax.quant import QArray, load, loads, save
from nxjax.quant.files import TYPES

R = np.random.default_rng(0)
WEIGHTS = {"w": R.standard_normal((64, 128)).astype(np.float32), "b": np.zeros(128, np.float32)}
X = R.standard_normal((4, 64)).astype(np.float32)


def model(p: Any, x: Any) -> Any:
    return x @ p["w"] + p["b"]


def there_and_back(tmp_path: Path, tree: Any) -> Any:
    save(tmp_path / "w.safetensors", tree)
    return load(tmp_path / "w.safetensors")


def same(a: Any, b: Any) -> None:
    a, b = np.asarray(a), np.asarray(b)
    assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())


@pytest.mark.parametrize("name", [*TYPES.values(), "int4"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3, 5), (2, 0, 4)])
def test_every_element_type(name: str, shape: tuple[int, ...], tmp_path: Path):
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    x = (R.standard_normal(shape) * 5).astype(np.float32).astype(np.int8 if name == "int4" else dtype).astype(dtype)
    same(there_and_back(tmp_path, {"x": x})["x"], x)


@pytest.mark.parametrize("dtype", ["int8", "int4", "float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize(
    ("shape", "scales"), [((4, 6), (1, 6)), ((4, 6), (2, 1)), ((3, 5), (1, 1)), ((3, 2, 7), (3, 1, 7))]
)
def test_quantized_leaves(dtype: str, shape: tuple[int, ...], scales: tuple[int, ...], tmp_path: Path):
    stored = np.dtype(getattr(ml_dtypes, dtype, dtype))
    values = R.integers(-7, 8, shape).astype(np.int8).astype(stored)
    q = QArray(values, R.uniform(0.1, 2, scales).astype(np.float32))
    found = there_and_back(tmp_path, [q, {"q": (q,)}])
    for f in (found[0], found[1]["q"][0]):
        same(f.values, values)
        same(f.scale, q.scale)
        same(f.dequantize(), np.asarray(q))


def test_trees_of_every_kind(tmp_path: Path):
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    tree = {"a": [x, (x.T, None)], "": {"": x[:, ::-1]}, 'ü"\n.': {}, "l": [], "t": (), "big": x.astype(">f4")}
    found = there_and_back(tmp_path, tree)
    assert nx.tree.structure(found) == nx.tree.structure(tree)
    for a, b in zip(nx.tree.leaves(found), nx.tree.leaves(tree), strict=True):
        np.testing.assert_array_equal(np.asarray(a), b)
    for root in (x, None, QArray(x.astype(np.int8), np.ones((1, 1), np.float32))):
        assert nx.tree.structure(there_and_back(tmp_path, root)) == nx.tree.structure(root)


def test_numbers_are_what_they_are_in_programs(tmp_path: Path):
    found = there_and_back(tmp_path, {"i": 3, "f": 2.5, "b": True, "d": np.float64(0.1)})
    assert {k: v.dtype.name for k, v in found.items()} == {"i": "int32", "f": "float32", "b": "bool", "d": "float64"}


@pytest.mark.parametrize(
    ("policy", "least"), [("int8", 3.7), ("int8-weights", 3.7), ("int4-weights", 6.0), ("fp8", 3.7)]
)
def test_quantized_parameters_are_small_and_give_the_same_bits(policy: str, least: float, tmp_path: Path):
    f = nx.quantize(model, policy, calibrate=[(WEIGHTS, X)])
    stored = f.quantize_params(WEIGHTS, X)
    assert isinstance(stored["w"], QArray) and stored["b"].dtype == np.float32
    assert WEIGHTS["w"].nbytes / stored["w"].nbytes > least
    save(tmp_path / "float", WEIGHTS)
    save(tmp_path / "small", stored)
    ratio = (tmp_path / "float").stat().st_size / (tmp_path / "small").stat().st_size
    assert ratio > 0.9 * least
    found = load(tmp_path / "small")
    same(found["w"].values, stored["w"].values)
    same(f(found, X), f(stored, X))
    if policy == "int8":
        same(f(found, X), f(WEIGHTS, X))


def test_other_libraries_read_it_and_are_read(tmp_path: Path):
    library = pytest.importorskip("safetensors.numpy")
    q = QArray(np.array([[1, -7, 3]], ml_dtypes.int4), np.ones((1, 1), np.float32))
    save(tmp_path / "a", {"m": {"w": X, "q": q}})
    read = library.load_file(tmp_path / "a")
    same(read["m.w"], X)
    assert read["m.q.values"].tolist() == [0x91, 0x03] and read["m.q.scale"].shape == (1, 1)
    library.save_file({"layer.0.weight": X}, tmp_path / "b")
    same(load(tmp_path / "b")["layer.0.weight"], X)
    data = (tmp_path / "b").read_bytes()
    for form in (bytes, bytearray, memoryview):
        same(loads(form(data))["layer.0.weight"], X)


def test_what_files_do_not_hold(tmp_path: Path):
    path = tmp_path / "w"
    q = QArray(np.ones((1, 2), np.int8), np.ones((1, 1), np.float32))
    deep: Any = X
    for _ in range(200):
        deep = [deep]
    for tree, error, said in (
        ({"a": "text"}, TreeError, "a cannot be saved"),
        ({1: X}, TreeError, "keys of dicts are strings"),
        ({"a": {"b": X}, "a.b": X}, TreeError, "two leaves have one path"),
        ({"w.values": X, "w": q}, TreeError, "two leaves have one path"),
        ({"__metadata__": X}, TreeError, "__metadata__"),
        (deep, TreeError, "too deep"),
        ({"a": np.ones(2, np.complex64)}, DtypeError, "complex64"),
        ({"a": nx.random.key(0)}, DtypeError, "key_data"),
        ({"a": QArray(np.ones((1, 3), np.int8), np.ones((1, 2), np.float32))}, ValueError, "do not divide"),
        ({"a": nx.nn.Linear(2, 2)}, TreeError, "module.parameters"),
    ):
        with pytest.raises(error, match=said):
            save(path, tree)
        assert not list(tmp_path.iterdir())
    with pytest.raises(TreeError, match="filled"):
        save(tmp_path / "w", {"w": np.ma.array([1.0, 2.0], mask=[True, False])})


def test_a_traced_tree_is_no_file(tmp_path: Path):
    with pytest.raises(nx.errors.TracerArrayConversionError):
        nx.jit(lambda x: save(tmp_path / "w", {"x": x}))(X)


def test_a_file_is_replaced_whole_or_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "w.safetensors"
    save(path, {"x": X})
    before = path.read_bytes()
    plain = tmp_path / "plain"
    plain.write_bytes(b"")
    assert path.stat().st_mode == plain.stat().st_mode
    plain.unlink()

    def full(*_: Any) -> None:
        raise OSError("no space left on device")

    for name in ("fsync", "replace"):
        with monkeypatch.context() as m:
            m.setattr(os, name, full)
            with pytest.raises(OSError, match="no space left"):
                save(path, {"x": 2 * X})
        assert path.read_bytes() == before and os.listdir(tmp_path) == [path.name]
    with pytest.raises(FileNotFoundError):
        save(tmp_path / "nowhere" / "w", {"x": X})
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nothing")


def test_without_the_package(monkeypatch: pytest.MonkeyPatch):
    import importlib

    def missing(module: str) -> Any:
        raise ImportError(module)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(MissingExtraError, match=r"pip install 'nxjax\[quant\]'"):
        loads(b"")


# --- damaged and hostile ---


def crafted(header: Any, data: bytes = b"", size: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text + data


def tensor(shape: list[int], begin: int, end: int, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def described(tree: Any, *tensors: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    text = tree if isinstance(tree, str) else json.dumps(tree)
    return {"__metadata__": {"nxjax.tree": text}, **dict(tensors)}


ONE = {"a": tensor([2], 0, 8)}
Q = (("a.values", tensor([4], 0, 4, "U8")), ("a.scale", tensor([1], 4, 8)))
ONE_F = b"\0\0\x80\x3f"
HOSTILE = {
    "nothing": b"",
    "short": b"\x01\x02\x03",
    "a header of 2^63 bytes": crafted(ONE, b"\0" * 8, 2**63),
    "a header of 2^40 bytes": crafted(ONE, b"\0" * 8, 2**40),
    "a header of 99 MB": crafted(ONE, b"\0" * 8, 99_000_000),
    "cut header": crafted(ONE, b"\0" * 8)[:30],
    "cut data": crafted(ONE, b"\0" * 4),
    "more data": crafted(ONE, b"\0" * 12),
    "overlapping tensors": crafted({**ONE, "b": tensor([2], 4, 12)}, b"\0" * 12),
    "a gap": crafted({**ONE, "b": tensor([1], 12, 16)}, b"\0" * 16),
    "offsets backwards": crafted({"a": tensor([2], 8, 0)}, b"\0" * 8),
    "wrong shape": crafted({"a": tensor([3], 0, 8)}, b"\0" * 8),
    "enormous shape": crafted({"a": tensor([2**40, 2**40], 0, 8)}, b"\0" * 8),
    "negative shape": crafted({"a": tensor([-2], 0, 8)}, b"\0" * 8),
    "unknown type": crafted({"a": tensor([2], 0, 8, "F99")}, b"\0" * 8),
    "a type we have not": crafted({"a": tensor([8], 0, 8, "F8_E8M0")}, b"\0" * 8),
    "no text": crafted(b"\xff\xfe{}"),
    "no JSON": crafted(b"{nope"),
    "no object": crafted([1]),
    "no metadata": crafted({"__metadata__": 3}),
    "deep JSON": crafted(b'{"a":' + b"[" * 100_000),
    "deep description": crafted(described("[" * 100_000)),
    "deep tree": crafted(described('{"l":[' * 300 + "]}" * 300)),
    "no such tensor": crafted(described({"a": "zz"}, *ONE.items()), b"\0" * 8),
    "no such node": crafted(described({"z": ["a"]}, *ONE.items()), b"\0" * 8),
    "two kinds": crafted(described({"a": "a", "n": 0}, *ONE.items()), b"\0" * 8),
    "no list": crafted(described({"d": 3}, *ONE.items()), b"\0" * 8),
    "no pairs": crafted(described({"d": ["ab"]}, *ONE.items()), b"\0" * 8),
    "a list as a name": crafted(described({"a": ["a"]}, *ONE.items()), b"\0" * 8),
    "no quantized parts": crafted(described({"q": ["b", "int4", [7]]}, *Q), b"\0" * 4 + ONE_F),
    "int4 of another size": crafted(described({"q": ["a", "int4", [9]]}, *Q), b"\0" * 4 + ONE_F),
    "int4 of negative size": crafted(described({"q": ["a", "int4", [-1]]}, *Q), b"\0" * 4 + ONE_F),
    "int4 of enormous size": crafted(described({"q": ["a", "int4", [2**40, 2**40]]}, *Q), b"\0" * 4 + ONE_F),
    "int4 of a text": crafted(described({"q": ["a", "int4", ["7"]]}, *Q), b"\0" * 4 + ONE_F),
    "another dtype": crafted(described({"q": ["a", "int8", [4]]}, *Q), b"\0" * 4 + ONE_F),
    "scales of no number": crafted(described({"q": ["a", "int4", [7]]}, *Q), b"\0" * 4 + b"\xff" * 4),
    "scales of zero": crafted(described({"q": ["a", "int4", [7]]}, *Q), b"\0" * 8),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files(name: str, tmp_path: Path):
    path = tmp_path / "evil.safetensors"
    path.write_bytes(HOSTILE[name])
    tracemalloc.start()
    with pytest.raises(InvalidFileError, match=r"evil\.safetensors"):
        load(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50_000_000


def test_bytes_that_are_no_bool():
    found = loads(crafted({"a": tensor([3], 0, 3, "BOOL")}, b"\x02\x00\xff"))["a"]
    same(found, np.array([True, False, True]))


def _good(tmp: Path) -> bytes:
    q = QArray(np.array([[1, -7, 3]], ml_dtypes.int4), np.ones((1, 1), np.float32))
    save(tmp / "good", {"w": X[:1, :4], "q": q, "l": [1, None]})
    return (tmp / "good").read_bytes()


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return _good(tmp_path_factory.mktemp("files"))


def survives(data: bytes) -> None:
    """Damage is named, or it lay in the numbers, and a tree of arrays comes out."""
    try:
        found = loads(data)
    except InvalidFileError:
        return
    assert all(isinstance(x, nx.Array) for x in nx.tree.leaves(found))


@settings(max_examples=300, deadline=2000)
@given(flips=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 7)), min_size=1, max_size=6))
def test_flipped_bits(flips: list[tuple[int, int]], good: bytes):
    data = bytearray(good)
    for place, bit in flips:
        data[place % len(data)] ^= 1 << bit
    survives(bytes(data))


@settings(max_examples=100, deadline=2000)
@given(end=st.integers(0, 10**6), rest=st.binary(max_size=40))
def test_cut_and_continued(end: int, rest: bytes, good: bytes):
    data = good[: end % len(good)]
    with pytest.raises(InvalidFileError):
        loads(data)
    survives(data + rest)


@settings(max_examples=200, deadline=2000)
@given(st.recursive(st.none() | st.integers() | st.text(max_size=3), lambda t: st.lists(t) | st.dictionaries(
    st.sampled_from(["a", "d", "l", "t", "n", "q", "i"]), t, max_size=2
), max_leaves=12))  # fmt: skip
def test_any_description(tree: Any):
    survives(crafted(described(tree, *ONE.items()), b"\0" * 8))


def test_the_quantized_function_takes_loaded_trees_everywhere(tmp_path: Path):
    f = nx.quantize(model, "int8", calibrate=[(WEIGHTS, X)])
    found = there_and_back(tmp_path, f.quantize_params(WEIGHTS, X))
    same(nx.jit(f)(found, X), f(WEIGHTS, X))
    same(nx.vmap(f, in_axes=(None, 0))(found, X[:, None])[:, 0], f(WEIGHTS, X))
    assert jnp.isfinite(nx.grad(lambda x: f(found, x).sum())(nx.asarray(X))).all()


def test_a_description_that_asks_for_many_copies_of_a_tensor():
    """A hundred bytes for each of a megabyte would take any amount of memory."""
    from safetensors.numpy import save as plain

    packed = {"w": np.zeros(500_000, np.uint8)}
    trees = [
        {"t": [{"i": ["w", [1_000_000]]}] * 300},
        {"l": [{"a": "w"}] * 2},
        {"d": [["a", {"a": "w"}], ["b", {"a": "w"}]]},
    ]
    for tree in trees:
        data = plain(packed, {"nxjax.tree": json.dumps(tree)})
        tracemalloc.start()
        try:
            with pytest.raises(InvalidFileError, match="description of the tree"):
                loads(data)
            assert tracemalloc.get_traced_memory()[1] < 2e7
        finally:
            tracemalloc.stop()
