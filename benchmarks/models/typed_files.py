"""Files of known types: those of this repository, and some that are made here with the standard library and Pillow."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import pickle
import sqlite3
import tarfile
import wave
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
# Patterns of the repository's own files, and the type that each has.
OWN = {
    "nxjax/lax/*.py": "python",
    "docs/*.md": "markdown",
    "docs/notebooks/*.ipynb": "ipynb",
    "pyproject.toml": "toml",
    "Makefile": "makefile",
    "docs/images/*.png": "png",
    "docs/images/*.svg": "svg",
    ".gitignore": "ignorefile",
    "docs/benchmarks.json": "json",
}
PAGE = (
    "<!DOCTYPE html>\n<html><head><title>Report</title></head>\n<body>\n<h1>Report</h1>\n"
    "<p>Each row is one measurement.</p>\n<table>"
    + "".join(f"<tr><td>{i}</td><td>{i * i}</td></tr>\n" for i in range(40))
    + "</table></body></html>\n"
)
PROGRAM = (
    "#include <stdio.h>\n#include <stdlib.h>\n\nstatic int square(int x) {\n    return x * x;\n}\n\n"
    "int main(int argc, char **argv) {\n    for (int i = 0; i < argc; i++) {\n"
    '        printf("%d %s %d\\n", i, argv[i], square(i));\n    }\n    return EXIT_SUCCESS;\n}\n'
)
SCRIPT = (
    '#!/bin/bash\nset -euo pipefail\nfor f in "$@"; do\n  if [ -f "$f" ]; then\n    wc -l < "$f"\n  fi\ndone\nexit 0\n'
)
QUERY = (
    "SELECT name, COUNT(*) AS n FROM orders o\nJOIN users u ON u.id = o.user_id\nWHERE o.total > 10\nGROUP BY name;\n"
)


def _archive(name: str, content: bytes, method: int) -> bytes:
    """A zip file without the time of day in it."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        entry = zipfile.ZipInfo(name)
        entry.compress_type = method
        archive.writestr(entry, content)
    return out.getvalue()


def _zip(seed: int) -> bytes:
    return _archive("notes.txt", "\n".join(f"line {i * seed}" for i in range(200)).encode(), zipfile.ZIP_DEFLATED)


def _tar(seed: int) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        data = f"seed {seed}\n".encode() * 50
        entry = tarfile.TarInfo("data.txt")
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def _wave(seed: int) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as sound:
        sound.setparams((1, 2, 16000, 0, "NONE", ""))
        sound.writeframes(_rng(seed).integers(-3000, 3000, 8000, np.int16).tobytes())
    return out.getvalue()


def _table(seed: int) -> bytes:
    out = io.StringIO()
    rows = csv.writer(out)
    rows.writerow(["time", "sensor", "value", "unit"])
    rows.writerows([i, f"s{i % 7}", round(float(x), 3), "mV"] for i, x in enumerate(_rng(seed).normal(size=120)))
    return out.getvalue().encode()


def _database(seed: int) -> bytes:
    with sqlite3.connect(":memory:") as made:
        made.execute("create table t (a integer, b text)")
        made.executemany("insert into t values (?, ?)", [(i, f"row {i * seed}") for i in range(50)])
    return made.serialize()


def _image(kind: str) -> Callable[[int], bytes]:
    def make(seed: int) -> bytes:
        from PIL import Image  # type: ignore[import-not-found]

        out = io.BytesIO()
        pixels = _rng(seed).integers(0, 255, (16, 16, 3), np.uint8).repeat(4, 0).repeat(4, 1)
        Image.fromarray(pixels).save(out, kind)
        return out.getvalue()

    return make


def _array(seed: int) -> bytes:
    out = io.BytesIO()
    np.save(out, _rng(seed).normal(size=(40, 10)))
    return out.getvalue()


def _rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def _records(seed: int) -> list[dict[str, Any]]:
    return [{"id": i, "name": f"item {i * seed}", "tags": ["a", "b"], "price": i / 7} for i in range(40)]


MADE: dict[str, Callable[[int], bytes]] = {
    "zip": _zip,
    "tar": _tar,
    "wav": _wave,
    "csv": _table,
    "sqlite": _database,
    "gzip": lambda seed: gzip.compress(_rng(seed).bytes(3000), mtime=0),
    "bzip": lambda seed: bz2.compress(_table(seed)),
    "xz": lambda seed: lzma.compress(_table(seed)),
    "json": lambda seed: json.dumps(_records(seed), indent=1).encode(),
    "jsonl": lambda seed: "\n".join(map(json.dumps, _records(seed))).encode(),
    "pickle": lambda seed: pickle.dumps(_records(seed)),
    "npy": _array,
    "npz": lambda seed: _archive("arr_0.npy", _array(seed), zipfile.ZIP_STORED),
    "png": _image("PNG"),
    "jpeg": _image("JPEG"),
    "gif": _image("GIF"),
    "bmp": _image("BMP"),
    "tiff": _image("TIFF"),
    "webp": _image("WEBP"),
    "html": lambda seed: PAGE.replace("Report", f"Report {seed}").encode(),
    "c": lambda seed: PROGRAM.replace("square", f"square{seed}").encode(),
    "shell": lambda seed: SCRIPT.replace("exit 0", f"exit {seed}").encode(),
    "sql": lambda seed: QUERY.replace("10", str(10 + seed)).encode(),
}


def own(limit: int = 12) -> Iterator[tuple[str, bytes]]:
    """Type and content of the repository's files, at most ``limit`` of a pattern."""
    for pattern, kind in OWN.items():
        for path in sorted(ROOT.glob(pattern))[:limit]:
            yield kind, path.read_bytes()


def made(seed: int) -> Iterator[tuple[str, bytes]]:
    """Type and content of one file of each kind that can be made."""
    for kind, make in MADE.items():
        yield kind, make(seed)


def bytes_of(content: bytes, size: int = 1024, block: int = 4096, padding: int = 256) -> Any:
    """What magika looks at: the first and the last kilobyte without white space about them, as int32 [1, 2048]."""
    first, last = content[:block], content[-block:]
    if len(content) <= block:
        first = last = content.strip()
    first, last = first.lstrip()[:size], last.rstrip()[-size:]
    return np.array([[*first, *[padding] * (2 * size - len(first) - len(last)), *last]], np.int32)
