"""Random bytes, and valid files with damage, for everything that reads files or texts.

A reader may take them or refuse them with an `NxError`; anything else is a failure: another exception, an end of the
process, a reader that does not come back, one that takes the memory of what a damaged header promises.
"""

from __future__ import annotations

import io
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from nxjax import numpy as jnp
from nxjax.backends import cache as disk
from nxjax.checkpoints import restore, save
from nxjax.checkpoints.index import _checksum
from nxjax.config import config
from nxjax.deploy import load
from nxjax.deploy.compile import compile as compile_
from nxjax.errors import MissingExtraError, NxError
from nxjax.export import deserialize, export
from nxjax.interop import from_stablehlo
from nxjax.nn import relu
from nxjax.numpy.elementwise import sin
from nxjax.quant.files import loads
from nxjax.quant.files import save as save_
from nxjax.quant.qarray import QArray
from nxjax.testing import fuzz_models
from nxjax.trace.array import wrap
from nxjax.trace.core import Array
from nxjax.trace.text import parse_program, to_text
from nxjax.trace.types import parse_type
from nxjax.transforms.control.cond import cond
from nxjax.transforms.control.scan import scan
from nxjax.transforms.custom_signature import OperatorSignature
from nxjax.transforms.grad import grad
from nxjax.transforms.jit import jit
from nxjax.transforms.shapes import make_jaxpr

# Words of the formats, which random characters hardly ever make.
_WORDS: Final = (
    b"lambda", b"let", b"in", b"nan", b"inf", b"-1", b"99999999999", b"1e400", b"f32[3]", b"i32[]*", b"{", b"}", b"[",
    b"](", b"((((", b"True", b"None", b"shape=", b"dtype", b"\"", b"'", b"\\", b"\x00", b"\xff\xff\xff\xff", b"\x80",
    b"tensor<", b"x", b"->", b"func.func", b"i64", b"?", b"%arg0", b":", b",", b"__class__", b"eval(", b"\n", b" ",
)  # fmt: skip
# Seconds: more than a reader waits for a process of its own.
_SLOW: Final = 45.0


@final
@dataclass(frozen=True)
class FileReader:
    """Something that reads bytes.

    Attributes:
        name: for reports.
        read: takes the bytes.
        valid: files that it reads, to damage.
        share: how often it is tried, beside others; reading in a process of its own takes long.
        damaged: damages a file so that much of it can still be read, which is done half of the time.
    """

    name: str
    read: Callable[[bytes], object]
    valid: Callable[[], Sequence[bytes]]
    share: int = 10
    damaged: Callable[[bytes, np.random.Generator], bytes] | None = None


def mutated(data: bytes, rng: np.random.Generator) -> bytes:
    """``data`` with bits flipped, parts cut out, doubled or overwritten; now and then all random bytes."""
    if not data or not rng.integers(12):
        return rng.bytes(int(rng.integers(0, 200)))
    b = bytearray(data)
    for _ in range(1 + int(rng.integers(4))):
        kind, at = int(rng.integers(8)), int(rng.integers(len(b) + 1))
        end = min(len(b), at + 1 + int(rng.integers(1 + min(64, len(b)))))
        word = _WORDS[int(rng.integers(len(_WORDS)))]
        if kind == 0 and at < len(b):
            b[at] ^= 1 << int(rng.integers(8))
        elif kind == 1:
            del b[at:end]
        elif kind == 2:
            b[at:at] = b[at:end] * (1 + int(rng.integers(3)))
        elif kind == 3:
            b[at:at] = word
        elif kind == 4:
            b[at : at + len(word)] = word
        elif kind == 5:
            b[at:end] = rng.bytes(end - at)
        elif kind == 6:
            del b[at:]
        else:
            b[at : at + 8] = (2 ** int(rng.integers(64)) - int(rng.integers(2))).to_bytes(8, "little")
    return bytes(b)


def one(reader: FileReader, seed: int) -> str:
    """Read one damaged file; gives a report if that goes wrong, otherwise an empty text."""
    rng = np.random.default_rng(seed)
    files = reader.valid()
    whole = files[int(rng.integers(len(files)))]
    damage = mutated if reader.damaged is None or rng.integers(2) else reader.damaged
    data = damage(whole, rng)
    start = time.perf_counter()
    try:
        reader.read(data)
    except NxError as error:
        if isinstance(error, MissingExtraError):
            raise
    except Exception as error:
        place = error.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        where = f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}" if place else ""
        return (
            f"nx.testing.fuzz_files.readers()[{reader.name!r}].read({data!r})\n"
            f"# {type(error).__name__}: {str(error)[:300]}\n# {where}"
        )
    took = time.perf_counter() - start
    return f"# {reader.name}: {took:.0f} s for {data!r}" if took > _SLOW else ""


def names() -> list[str]:
    """The names of all readers."""
    return [r.name for r in _all()]


@cache
def readers(name: str | None = None) -> dict[str, FileReader]:
    """The readers of nxjax by name, or the one of that ``name``; those whose packages are missing are left out."""
    return {r.name: r for r in _all() if name in (None, r.name) and _there(r)}


def _all() -> tuple[FileReader, ...]:
    return (
        FileReader("program text", _program, _programs, 20),
        FileReader("type", _type, lambda: [b"f32[3,4]*", b"key[]", b"f8_e4m3fn[2]{V:x}"], 5),
        FileReader("einsum", _einsum, lambda: [b"ij,jk->ik", b"...a,a...->...", b"i i->i"], 5),
        FileReader(
            "signature of a custom op",
            _signature,
            lambda: [b"float[n,k], float[k] -> float[n]", b"int32[...] -> int32"],
            5,
        ),
        FileReader("exported function", _exported, _exports, 10),
        FileReader("exported function, hash renewed", _rehashed, _exports, 10),
        FileReader("stablehlo", _stablehlo, _modules, 1),
        FileReader("checkpoint index", _index, lambda: [_checkpoint()[0]], 10),
        FileReader("checkpoint index, checksum renewed", _rechecked, lambda: [_checkpoint()[0]], 10),
        FileReader("checkpoint shard", _shard, lambda: [_checkpoint()[1]], 10),
        FileReader("safetensors", _tensors, _safetensors, 10),
        FileReader("npy and npz", _npy, _npys, 10),
        FileReader("fromstring", _fromstring, lambda: [b"1 2 3", b"0.5, nan"], 3),
        FileReader("tflite", _deployed, lambda: [_network("tflite")], 10),
        FileReader("onnx", _deployed, lambda: [_network("onnx")], 10),
        FileReader(
            "onnx model as a function", fuzz_models.onnx_model, fuzz_models.onnx_models, 5, fuzz_models.other_fields
        ),
        FileReader(
            "tflite model as a function",
            fuzz_models.tflite_model,
            fuzz_models.tflite_models,
            5,
            fuzz_models.overwritten,
        ),
        FileReader("gguf", fuzz_models.gguf, fuzz_models.ggufs, 10, fuzz_models.overwritten),
        FileReader("torch", fuzz_models.torch, fuzz_models.torches, 10, fuzz_models.repacked),
        FileReader(
            "torch program", fuzz_models.torch_program, fuzz_models.torch_programs, 10, fuzz_models.other_values
        ),
        FileReader("weights in npz", fuzz_models.npz, lambda: _npys()[1:], 5, fuzz_models.repacked),
        FileReader("weights in safetensors", fuzz_models.safetensors, _safetensors, 5),
        FileReader("executable cache", _cached, lambda: [b"payload" * 9], 3),
    )


def _there(reader: FileReader) -> bool:
    try:
        reader.read(reader.valid()[0])
    except MissingExtraError:
        return False
    return True


def missing() -> list[str]:
    """The names of readers whose packages are missing."""
    there = readers()
    return [name for name in names() if name not in there]


def needed(name: str) -> None:
    """Raise the `MissingExtraError` of a reader whose packages are missing."""
    for reader in _all():
        if reader.name == name:
            reader.read(reader.valid()[0])


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _sample(x: Any, i: Any) -> Any:
    y = scan(lambda c, r: (c * r, c), x[0], sin(x))[1]
    return cond(i > 1, lambda v: v @ v.T, lambda v: v.sum() * v @ v.T, y), i + 2, x.astype("complex64")


def _arguments() -> tuple[Any, Any]:
    return wrap(np.ones((2, 3), np.float32)), wrap(np.int32(1))


def _program(data: bytes) -> None:
    parse_program(_text(data))


@cache
def _programs() -> list[bytes]:
    found: list[Any] = [make_jaxpr(_sample)(*_arguments())]
    found.append(make_jaxpr(grad(lambda x: _sample(x, 1)[0].sum()))(_arguments()[0]))
    return [to_text(p.hoist_consts()[0]).encode() for p in found]


def _type(data: bytes) -> None:
    parse_type(_text(data))


def _einsum(data: bytes) -> None:
    jnp.einsum(_text(data), np.ones((2, 2)), np.ones((2, 2)))


def _signature(data: bytes) -> None:
    OperatorSignature.parse(_text(data), "fuzzed")


def _exported(data: bytes) -> None:
    deserialize(data)


def _rehashed(data: bytes) -> None:
    """With the hash behind it made right, so that what is damaged is believed."""
    import hashlib

    body = data[:-40] if len(data) > 40 else data
    _exported(body + b"NXSHA256" + hashlib.sha256(body).digest())


@cache
def _exports() -> list[bytes]:
    return [export(jit(_sample))(*_arguments()).serialize(vjp_order=0)]


def _stablehlo(data: bytes) -> None:
    from_stablehlo(data)


@cache
def _modules() -> list[bytes]:
    made = export(jit(_sample))(*_arguments())
    return [made.mlir_module_serialized, made.mlir_module().encode()]


@cache
def _checkpoint() -> tuple[bytes, bytes, str]:
    with tempfile.TemporaryDirectory() as folder:
        save(folder, {"w": np.ones((3, 4), np.float32), "n": 3, "rest": [np.zeros(2, np.int8), 0.5, "text"]})
        place = next(Path(folder).rglob("index.json"))
        return place.read_bytes(), next(Path(folder).rglob("*.safetensors")).read_bytes(), place.parent.name


def _restore(index: bytes, shard: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / _checkpoint()[2]
        path.mkdir()
        (path / "index.json").write_bytes(index)
        (path / "shard-00000-of-00001.safetensors").write_bytes(shard)
        restore(folder)


def _index(data: bytes) -> None:
    _restore(data, _checkpoint()[1])


def _rechecked(data: bytes) -> None:
    """With the checksum made right, if it is JSON at all."""
    import json

    try:
        whole = json.loads(data)
        data = json.dumps({"crc32": _checksum(whole["checkpoint"]), "checkpoint": whole["checkpoint"]}).encode()
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    _index(data)


def _shard(data: bytes) -> None:
    _restore(_checkpoint()[0], data)


def _tensors(data: bytes) -> None:
    loads(data)


@cache
def _safetensors() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "w.safetensors"
        q = QArray(wrap(np.ones((3, 4), np.int8)), wrap(np.ones((3, 1), np.float32)))
        save_(path, {"q": q, "rest": [wrap(np.ones(3, np.float32)), None, 2.0]})
        return [path.read_bytes()]


def _npy(data: bytes) -> None:
    found = jnp.load(io.BytesIO(data))
    if not isinstance(found, Array):
        for name in found.files:
            found[name]


@cache
def _npys() -> list[bytes]:
    one, many = io.BytesIO(), io.BytesIO()
    np.save(one, np.arange(6, dtype=np.float32).reshape(2, 3))
    np.savez(many, a=np.ones(3), b=np.zeros((2, 2), np.int8))
    return [one.getvalue(), many.getvalue()]


def _fromstring(data: bytes) -> None:
    jnp.fromstring(_text(data), sep=" ")


def _deployed(data: bytes) -> None:
    load(data, memory_limit=2**26)


@cache
def _network(target: str) -> bytes:
    w = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    return compile_(lambda x: relu(x @ w) + 1, target=target)(np.ones((1, 4), np.float32)).bytes


def _cached(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder, config.using(cache_dir=folder):
        disk.store("key", b"payload")
        (Path(folder) / "key.nxc").write_bytes(data)
        if disk.load("key") is not None:
            raise AssertionError("the cache believes what it has not stored")
