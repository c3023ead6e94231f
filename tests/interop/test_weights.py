"""Files of weights: what other projects wrote is read, damaged and hostile files are one clear error."""

import contextlib
import io
import json
import pickle
import random
import struct
import sys
import types
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

import nxjax as nx
from nxjax.display import progress
from nxjax.errors import InvalidFileError, NxError, ParameterError
from nxjax.interop.ggml import BLOCKS, dequantized
from nxjax.interop.graphs.mapped import HeldFile

W = np.arange(12, dtype=np.float32).reshape(3, 4)


def test_safetensors_of_one_file_and_of_several(tmp_path: Path):
    rows = {"w": W, "b": np.arange(3, dtype=np.int64), "h": W.astype(ml_dtypes.bfloat16), "none": W[:0]}
    safetensors.numpy.save_file(rows, tmp_path / "a.safetensors", metadata={"format": "np"})
    for where in (tmp_path, tmp_path / "a.safetensors"):
        found = nx.interop.load_safetensors(where)
        assert found.metadata == {"format": "np"} and found.keys() == rows.keys()
        for k, x in rows.items():
            assert found[k].dtype == x.dtype and np.array_equal(found[k], x)
    safetensors.numpy.save_file({"v": W + 1}, tmp_path / "b.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"w": "a.safetensors", "v": "b.safetensors"}}))
    found = nx.interop.load_safetensors(tmp_path)
    assert sorted(found) == ["v", "w"] and np.array_equal(found["v"], W + 1)
    for rows in ({"w": "../a.safetensors"}, {"nothing": "a.safetensors"}, [], {"w": {}}):
        index.write_text(json.dumps({"weight_map": rows}))
        with pytest.raises((InvalidFileError, OSError)):
            nx.interop.load_safetensors(index)
    with pytest.raises(ParameterError, match="not a path"):
        nx.interop.load_safetensors(3)  # pyright: ignore[reportArgumentType]


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def gguf(tensors: dict[str, tuple[tuple[int, ...], int, bytes]], keys: bytes = b"", count: int = 0) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), count) + keys
    data = b""
    for name, (shape, kind, raw) in tensors.items():
        head += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1], kind, len(data))
        data += raw + bytes(-len(raw) % 32)
    return head + bytes(-len(head) % 32) + data


def test_gguf(tmp_path: Path):
    keys = text("general.name") + struct.pack("<I", 8) + text("tiny")
    keys += text("list") + struct.pack("<IIQ", 9, 5, 3) + struct.pack("<3i", 1, -2, 3)
    keys += text("yes") + struct.pack("<IB", 7, 1)
    block = np.float16(0.5).tobytes() + np.arange(-16, 16, dtype=np.int8).tobytes()
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf({"w": ((3, 4), 0, W.tobytes()), "q": ((1, 32), 8, block)}, keys, 3))
    found = nx.interop.load_gguf(path)
    assert found.metadata == {"general.name": "tiny", "list": [1, -2, 3], "yes": True}
    assert np.array_equal(found["w"], W) and np.array_equal(found["q"], [np.arange(-16, 16) * 0.5])
    assert nx.interop.load_gguf(path, np.float16)["q"].dtype == np.float16
    path.write_bytes(gguf({"w": ((3, 4), 99, b"")}))
    with pytest.raises(InvalidFileError, match="format that nxjax does not know"):
        nx.interop.load_gguf(path)
    for shape, raw in (((1 << 40, 4), b""), ((1, 31), block), ((0, 1 << 62, 32), b""), ((), b"")):
        path.write_bytes(gguf({"w": (shape, 8, raw)}))
        with pytest.raises(InvalidFileError, match="damaged"):
            nx.interop.load_gguf(path)


UNEVEN = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]
E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6]


@pytest.mark.parametrize(
    "rows",
    [
        [("w", 0), ("v", 8)], [("w", 0), ("v", 0)], [("w", 0), ("w", 32)], [("w", 3)], [("w", 2**64 - 32)],
        [("w", 32), ("v", 32)],
    ],
)  # fmt: skip
def test_tensors_of_gguf_lie_apart(tmp_path: Path, rows: list[tuple[str, int]]):
    head = b"GGUF" + struct.pack("<IQQ", 3, len(rows), 0)
    for name, offset in rows:
        head += text(name) + struct.pack("<IQIQ", 1, 4, 0, offset)
    file = tmp_path / "x.gguf"
    file.write_bytes(head + bytes(-len(head) % 32 + 64))
    with pytest.raises(InvalidFileError):
        nx.interop.load_gguf(file)


def test_keys_of_gguf_are_single_and_short(tmp_path: Path):
    file = tmp_path / "x.gguf"
    key, head = text("k") + struct.pack("<II", 4, 1), b"GGUF" + struct.pack("<IQQ", 3, 0, 2)
    file.write_bytes(head + key + key)
    with pytest.raises(InvalidFileError, match="two keys"):
        nx.interop.load_gguf(file)
    with open(file, "wb") as f:  # a hole, which takes no room on the disk
        f.write(head + text("k") + struct.pack("<IIQ", 9, 0, 1 << 30))
        f.truncate((1 << 30) + 100)
    with pytest.raises(InvalidFileError, match="an array of"):
        nx.interop.load_gguf(file)


def two_bits(b: bytes, i: int) -> int:
    return b[i // 128 * 32 + i % 32] >> 2 * (i % 128 // 32) & 3


def q3_k(b: bytes, half: Any, i: int) -> float:
    k, s = i // 16, b[96:108]
    scale = (s[k % 8] >> 4 * (k // 8) & 15 | (s[8 + k % 4] >> 2 * (k // 4) & 3) << 4) - 32
    return half(108) * scale * (two_bits(b[32:96], i) - (0 if b[i % 32] >> i // 32 & 1 else 4))


def iq4_xs(b: bytes, half: Any, i: int) -> float:
    k, at = i // 32, i % 32
    scale = (b[4 + k // 2] >> 4 * (k % 2) & 15 | ((b[2] | b[3] << 8) >> 2 * k & 3) << 4) - 32
    return half(0) * scale * UNEVEN[b[8 + 16 * k + at % 16] >> 4 * (at // 16) & 15]


def mxfp4(b: bytes, half: Any, i: int) -> float:
    q = b[1 + i % 16] >> 4 * (i // 16) & 15
    return 2.0 ** (b[0] - 127) * E2M1[q & 7] * (-1 if q & 8 else 1)


def tq1_0(b: bytes, half: Any, i: int) -> float:
    at, power = (
        (i % 32, i // 32) if i < 160 else (32 + i % 16, (i - 160) // 16) if i < 240 else (48 + i % 4, (i - 240) // 4)
    )
    return half(52) * ((b[at] * 3**power % 256 * 3 >> 8) - 1)


MORE: dict[int, Any] = {
    10: lambda b, half, i: half(80) * (b[i // 16] & 15) * two_bits(b[16:80], i) - half(82) * (b[i // 16] >> 4),
    11: q3_k,
    20: lambda b, half, i: half(0) * UNEVEN[b[2 + i % 16] >> 4 * (i // 16) & 15],
    23: iq4_xs,
    34: tq1_0,
    35: lambda b, half, i: half(64) * (two_bits(b[:64], i) - 1),
    39: mxfp4,
}


def by_element(b: bytes, kind: int) -> list[float]:
    """The formulas of ggml, one element after the other."""
    half = lambda at: float(np.frombuffer(b[at : at + 2], np.float16)[0])
    if kind in (2, 3, 6, 7):
        start = {2: 2, 3: 4, 6: 6, 7: 8}[kind]
        five = int.from_bytes(b[start - 4 : start], "little") if kind in (6, 7) else 0
        q = [b[start + i % 16] >> (4 * (i // 16)) & 15 | (five >> i & 1) << 4 for i in range(32)]
        return [half(0) * (v - (16 if kind == 6 else 8)) if kind in (2, 6) else half(0) * v + half(2) for v in q]
    if kind in (12, 13):
        found: list[float] = []
        for i in range(256):
            j, at = i // 32, i % 32
            s = b[4:16]
            scale, least = (s[j] & 63, s[j + 4] & 63) if j < 4 else (
                s[j + 4] & 15 | s[j - 4] >> 6 << 4, s[j + 4] >> 4 | s[j] >> 6 << 4,
            )  # fmt: skip
            low = b[(16 if kind == 12 else 48) + j // 2 * 32 + at] >> (4 * (j % 2)) & 15
            q = low if kind == 12 else low | (b[16 + at] >> j & 1) << 4
            found.append(half(0) * scale * q - half(2) * least)
        return found
    if kind in MORE:
        return [MORE[kind](b, half, i) for i in range(BLOCKS[kind][0])]
    found, scales = [], np.frombuffer(b[192:208], np.int8).tolist()
    for i in range(256):
        n, j, at = i // 128, i % 128 // 32, i % 32
        low = b[64 * n + 32 * (j % 2) + at] >> (4 * (j // 2)) & 15
        q = (low | (b[128 + 32 * n + at] >> 2 * j & 3) << 4) - 32
        found.append(half(208) * scales[i // 16] * q)
    return found


# Where the scales of a format lie.
SCALES = {14: [208], 10: [80, 82], 11: [108], 20: [0], 23: [0], 34: [52], 35: [64], 39: []}


@pytest.mark.parametrize("kind", [2, 3, 6, 7, 12, 13, 14, 10, 11, 20, 23, 34, 35, 39])
def test_blocks_of_few_bits(kind: int):
    elements, size = BLOCKS[kind]
    blocks = np.random.default_rng(kind).integers(0, 256, (5, size)).astype(np.uint8)
    for at in SCALES.get(kind, [0, 2]):
        blocks[:, at : at + 2] = np.array([[0.25], [-1.5], [0.01], [3.0], [0.0]], np.float16).view(np.uint8)
    y = dequantized(blocks.reshape(-1), kind, np.float32).reshape(5, elements)
    for b, row in zip(blocks, y, strict=True):
        np.testing.assert_allclose(row, by_element(b.tobytes(), kind), rtol=1e-6, atol=0 if kind == 39 else 1e-6)


def test_npz(tmp_path: Path):
    np.savez(tmp_path / "w.npz", w=W)
    assert np.array_equal(nx.interop.load_npz(tmp_path / "w.npz")["w"], W)
    np.savez(tmp_path / "none.npz")
    assert len(nx.interop.load_npz(tmp_path / "none.npz")) == 0
    np.savez(tmp_path / "o.npz", w=np.array([{}], object))
    with pytest.raises(InvalidFileError):
        nx.interop.load_npz(tmp_path / "o.npz")["w"]
    (tmp_path / "x.npz").write_bytes(b"PK nothing")
    with pytest.raises(InvalidFileError):
        nx.interop.load_npz(tmp_path / "x.npz")


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """As much of PyTorch's modules as its files name."""
    top, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    storage = type("FloatStorage", (), {"__module__": "torch"})
    rebuild = lambda *args: args
    rebuild.__module__ = "torch._utils"
    rebuild.__qualname__ = rebuild.__name__ = "_rebuild_tensor_v2"
    top.FloatStorage, utils._rebuild_tensor_v2, top._utils = storage, rebuild, utils  # pyright: ignore
    monkeypatch.setitem(sys.modules, "torch", top)
    monkeypatch.setitem(sys.modules, "torch._utils", utils)
    return top


def saved(torch: Any, tree: Any, data: bytes) -> bytes:
    """A file as torch.save writes it, whose tensors are pairs of a shape and strides over one storage."""

    class Stored:
        def __init__(self, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
            self.args = (offset, shape, strides)

        def __reduce__(self) -> Any:
            return torch._utils._rebuild_tensor_v2, (STORAGE, *self.args, False, OrderedDict())

    class Pickler(pickle.Pickler):
        def persistent_id(self, obj: Any) -> Any:
            return ("storage", torch.FloatStorage, "0", "cpu", len(data) // 4) if obj is STORAGE else None

    STORAGE = object()
    out = io.BytesIO()
    Pickler(out, 2).dump(tree(Stored))
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", out.getvalue())
        archive.writestr("archive/data/0", data)
    return file.getvalue()


def test_torch(tmp_path: Path, torch: Any):
    tensors = lambda T: {"w": T(0, (3, 4), (4, 1)), "t": T(1, (3, 2), (1, 4)), "s": T(5, (), ())}
    tree = lambda T: OrderedDict(model=tensors(T), epoch=3, lr=0.5, name="n", tags=["a", "b"], sizes=(1, 2))
    path = tmp_path / "m.pt"
    path.write_bytes(saved(torch, tree, W.tobytes()))
    found = nx.interop.load_torch(path)
    assert sorted(found) == ["model.s", "model.t", "model.w"]
    assert np.array_equal(found["model.w"], W) and np.array_equal(found["model.t"], W[:2, 1:].T)
    assert found["model.s"].shape == () and found["model.s"] == 5
    path.write_bytes(saved(torch, lambda T: {"w": T(0, (100, 4), (4, 1))}, W.tobytes()))
    with pytest.raises(InvalidFileError, match="beyond its storage"):
        nx.interop.load_torch(path)["w"]


def test_nothing_in_a_torch_file_is_run(tmp_path: Path, torch: Any):
    class Evil:
        def __reduce__(self) -> Any:
            return open, (str(tmp_path / "ran"), "w")

    path = tmp_path / "evil.pt"
    path.write_bytes(saved(torch, lambda T: {"w": T(0, (3, 4), (4, 1)), "x": Evil()}, W.tobytes()))
    with pytest.raises(InvalidFileError, match="holds more than tensors"):
        nx.interop.load_torch(path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("shape", [[0, 1 << 62], [1 << 40, 0, 1 << 40], [2.0], [True], ["x"], [-1], None, [1] * 65])
def test_shapes_that_no_array_has(tmp_path: Path, shape: Any):
    text = json.dumps({"w": {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}}).encode()
    (tmp_path / "m.safetensors").write_bytes(struct.pack("<Q", len(text)) + text)
    with pytest.raises(InvalidFileError, match="without a shape"):
        nx.interop.load_safetensors(tmp_path / "m.safetensors")


@pytest.mark.parametrize(
    "spans", [[(0, 8), (4, 12)], [(0, 8), (12, 20)], [(4, 12)], [(0, 8)], [(0, 8), (0, 8)], [(8, 0)]]
)
def test_tensors_of_safetensors_fill_the_file(tmp_path: Path, spans: list[tuple[int, int]]):
    rows = {f"w{i}": {"dtype": "F32", "shape": [2], "data_offsets": span} for i, span in enumerate(spans)}
    header, file = json.dumps(rows).encode(), tmp_path / "x.safetensors"
    file.write_bytes(struct.pack("<Q", len(header)) + header + bytes(12))
    with pytest.raises(InvalidFileError):
        nx.interop.load_safetensors(file)


@pytest.mark.parametrize(
    "twice", ['"w": ROW, "w": ROW', '"w": ROW, "\\u0077": ROW', '"w": {"dtype": "F32", "dtype": "I32"}']
)
def test_a_key_of_safetensors_is_there_once(tmp_path: Path, twice: str):
    row = json.dumps({"dtype": "F32", "shape": [2], "data_offsets": [0, 8]})
    header, file = f"{{{twice.replace('ROW', row)}}}".encode(), tmp_path / "x.safetensors"
    file.write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    with pytest.raises(InvalidFileError, match="a key twice"):
        nx.interop.load_safetensors(file)


@pytest.mark.parametrize("said", [[1], "x", 3, {"a": 1}, {"a": ["b"]}])
def test_metadata_of_safetensors_are_texts(tmp_path: Path, said: Any):
    header, file = json.dumps({"__metadata__": said}).encode(), tmp_path / "x.safetensors"
    file.write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(InvalidFileError, match="metadata"):
        nx.interop.load_safetensors(file)


@pytest.mark.parametrize("part", [3, None, ["a"], "..", ".", "", "lost.safetensors", "a\0", "folder"])
def test_an_index_whose_parts_are_no_files(tmp_path: Path, part: Any):
    (tmp_path / "folder").mkdir()
    index = tmp_path / "m.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"w": part}}))
    with pytest.raises(InvalidFileError):
        nx.interop.load_safetensors(index)


@pytest.mark.parametrize("kind", [["F32"], {}, 3, None, "F4"])
def test_types_that_are_none(tmp_path: Path, kind: Any):
    text = json.dumps({"w": {"dtype": kind, "shape": [1], "data_offsets": [0, 4]}}).encode()
    (tmp_path / "m.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(4))
    with pytest.raises(InvalidFileError, match="type"):
        nx.interop.load_safetensors(tmp_path / "m.safetensors")


def torch_file(path: Path, tree: bytes, **members: bytes) -> Path:
    """A file of torch.save whose pickle is written by hand: ``d0`` is the first storage."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/data.pkl", b"\x80\x02" + tree + b".")
        for name, data in members.items():
            archive.writestr(f"a/data/{name[1:]}", data)
    return path


def short(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def rebuilt(kind: str, rest: bytes, version: int = 2) -> bytes:
    """The opcodes of a tensor of two elements over storage 0."""
    storage = b"(" + short("storage") + b"ctorch\n" + kind.encode() + b"\n" + short("0") + short("cpu") + b"K\x08tQ"
    call = f"ctorch._utils\n_rebuild_tensor_v{version}\n".encode()
    return call + b"(" + storage + b"K\x00K\x02\x85K\x01\x85\x89)" + rest + b"tR"


def test_torch_tensors_that_are_read_lazily(tmp_path: Path):
    """Conjugation and sign are bits of a tensor in its file."""
    z = np.array([1 + 2j, 3 - 4j], np.complex64)
    for bits, want in (
        ({}, z),
        ({"conj": True}, z.conj()),
        ({"neg": True}, -z),
        ({"conj": True, "neg": True}, -z.conj()),
    ):
        rest = b"}" + b"".join(short(k) + b"\x88s" for k in bits)
        path = torch_file(tmp_path / "m.pt", rebuilt("ComplexFloatStorage", rest), d0=z.tobytes())
        assert np.array_equal(nx.interop.load_torch(path)[""], want)


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2"])
def test_torch_types_without_a_storage_class(tmp_path: Path, dtype: str):
    x = np.array([1, 2], getattr(ml_dtypes, dtype, None) or dtype)
    tree = rebuilt("UntypedStorage", b"ctorch\n" + dtype.encode() + b"\n", 3)
    found = nx.interop.load_torch(torch_file(tmp_path / "m.pt", tree, d0=x.tobytes()))[""]
    assert found.dtype == x.dtype and np.array_equal(found.astype(np.float32), x.astype(np.float32))


def test_every_tensor_of_a_torch_file_has_its_name(tmp_path: Path):
    one = rebuilt("LongStorage", b"")
    held = np.int64([3, 4]).tobytes()
    tree = b"}(" + short("list") + b"](" + one + b"K\x01" + one + b"e" + short("pair") + one + one + b"\x86" + b"u"
    found = nx.interop.load_torch(torch_file(tmp_path / "m.pt", tree, d0=held))
    assert list(found) == ["list.0", "list.2", "pair.0", "pair.1"] and found["pair.1"].tolist() == [3, 4]
    twice = b"}(" + short("a.b") + one + short("a") + b"}" + short("b") + one + b"su"
    with pytest.raises(InvalidFileError, match="torch"):
        nx.interop.load_torch(torch_file(tmp_path / "torch.pt", twice, d0=held))


def test_plain_values_beside_tensors(tmp_path: Path):
    """What torch.load(weights_only=True) takes, too; other objects are refused by name."""
    one = rebuilt("LongStorage", b"")
    size = b"ctorch\nSize\n(K\x01tR"
    default = b"ccollections\ndefaultdict\n(c__builtin__\nlist\ntR" + short("w") + one + b"s"
    tree = b"}(" + short("size") + size + short("d") + default + short("k") + b"ctorch\nfloat32\nu"
    assert list(nx.interop.load_torch(torch_file(tmp_path / "m.pt", tree, d0=bytes(16)))) == ["d.w"]
    for made in (b"cargparse\nNamespace\n)\x81", b"(S'x'\nios\nsystem\n"):
        with pytest.raises(InvalidFileError, match="holds more than tensors"):
            nx.interop.load_torch(torch_file(tmp_path / "m.pt", made))


def test_torch_files_that_name_one_container_often(tmp_path: Path):
    """Their trees would have 2**60 leaves, and their keys 2**60 parts."""
    put = lambda i: b"q" + bytes([i])
    get = lambda i: b"h" + bytes([i])
    dicts = (
        b"}"
        + put(0)
        + b"".join(b"}" + put(i + 1) + b"(" + short("a") + get(i) + short("b") + get(i) + b"u" for i in range(60))
    )
    lists = b"]" + put(0) + b"".join(b"]" + put(i + 1) + b"(" + get(i) + get(i) + b"e" for i in range(60))
    keys = b")" + put(0) + b"".join(get(i) + get(i) + b"\x86" + put(i + 1) for i in range(60))
    keys = keys + b"}" + put(61) + b"(" + get(60) + b"K\x01u"
    for tree in (dicts, lists, keys, b"}(]K\x01u"):
        with pytest.raises(InvalidFileError):
            nx.interop.load_torch(torch_file(tmp_path / "m.pt", tree))


def test_large_files_are_not_read_before_their_tensors_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    torch_file(tmp_path / "m.pt", rebuilt("LongStorage", b""), d0=bytes(1 << 20))
    np.savez(tmp_path / "m.npz", w=np.zeros(1 << 20, np.int8))
    reads: list[int] = []

    whole = HeldFile.readinto

    def counted(self: HeldFile, buffer: Any, /) -> int:
        reads.append(whole(self, buffer))
        return reads[-1]

    monkeypatch.setattr(HeldFile, "readinto", counted)
    for load, name in ((nx.interop.load_torch, "m.pt"), (nx.interop.load_npz, "m.npz")):
        assert len(load(tmp_path / name)) == 1
        assert 0 < sum(reads) < 1 << 17
        reads.clear()


def test_mutated_files_are_an_error_or_are_read(tmp_path: Path, torch: Any):
    safetensors.numpy.save_file({"w": W, "b": W[0]}, tmp_path / "a.safetensors")
    np.savez(tmp_path / "a.npz", w=W)
    (tmp_path / "a.gguf").write_bytes(gguf({"w": ((3, 4), 0, W.tobytes())}, text("k") + struct.pack("<II", 4, 7), 1))
    (tmp_path / "a.pt").write_bytes(saved(torch, lambda T: {"w": T(0, (3, 4), (4, 1))}, W.tobytes()))
    rng = random.Random(0)
    loads = {
        "safetensors": nx.interop.load_safetensors, "npz": nx.interop.load_npz, "gguf": nx.interop.load_gguf,
        "pt": nx.interop.load_torch,
    }  # fmt: skip
    for kind, load in loads.items():
        whole = (tmp_path / f"a.{kind}").read_bytes()
        path = tmp_path / f"b.{kind}"
        for _ in range(300):
            data = bytearray(whole)
            for _ in range(rng.choice((1, 1, 2, 8))):
                data[rng.randrange(len(data))] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
            path.write_bytes(data[: rng.choice((len(data), len(data), rng.randrange(len(data))))])
            with contextlib.suppress(NxError):
                dict(load(path))


def test_reading_all_shows_a_bar(tmp_path: Path, capsys: Any, monkeypatch: Any):
    np.savez(tmp_path / "a.npz", w=W, b=W[0])
    weights = nx.interop.load_npz(tmp_path / "a.npz")
    assert weights.read(progress=True).keys() == {"w", "b"}
    assert "2/2" in capsys.readouterr().err
    assert weights.read(progress=False).keys() == {"w", "b"}
    # Nobody sees a bar of what takes no time.
    monkeypatch.setattr(progress, "interactive", lambda: True)
    np.testing.assert_array_equal(weights.read()["w"], W)
    assert not capsys.readouterr().err


def test_weights_are_a_pytree(tmp_path: Path):
    path = tmp_path / "w.safetensors"
    safetensors.numpy.save_file({"w": W, "b": W[0] + 1}, path)
    weights, x = nx.interop.load_safetensors(path), np.ones((2, 3), np.float32)
    f = lambda p, x: ((x @ p["w"] + p["b"]) ** 2).sum()
    held = weights.read()
    assert float(nx.jit(f)(weights, x)) == float(nx.jit(f)(held, x))
    grads = nx.grad(f)(weights, x)
    for k, g in nx.grad(f)(held, x).items():
        np.testing.assert_array_equal(grads[k], g)
    tuned = nx.tree.map(lambda p, g: p - 0.5 * g, weights, grads)
    np.testing.assert_array_equal(tuned["b"], held["b"] - 0.5 * grads["b"])
    found = sorted(nx.tree_util.keystr(path) for path, _ in nx.tree_util.tree_leaves_with_path(weights))
    assert found == ["['b']", "['w']"] and nx.tree.leaves(nx.tree.map(lambda _: None, weights)) == []


def test_arrays_are_views_of_a_mapped_file(tmp_path: Path):
    # A copy of a large file would take its size in memory twice.
    safetensors.numpy.save_file({"w": W}, tmp_path / "w.safetensors")
    x = nx.interop.load_safetensors(tmp_path / "w.safetensors")["w"].numpy()
    while isinstance(x, np.ndarray):
        assert not x.flags.owndata
        x = x.base
    np.testing.assert_array_equal(nx.interop.load_safetensors(tmp_path / "w.safetensors")["w"], W)
