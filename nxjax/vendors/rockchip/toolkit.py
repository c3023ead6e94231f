"""RKNN Toolkit 2 called: which Python has it, what it made of a model, and what its simulator computes.

Knows files and the toolkit's log, no graph. The log has a table of what the compiler made, one row for each operation
on the chip or on its processor, with cycles.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from nxjax.backends import extras
from nxjax.backends.extras import installed
from nxjax.backends.tools import NO_MODEL, ToolAnswer, ask, doubt, read
from nxjax.ops.base import NDArray
from nxjax.vendors.rockchip import child

# Names a Python that has the toolkit, where nxjax's own has not.
VARIABLE: Final = "RKNN_PYTHON"
_HEAD: Final = b"RKNN"
# A row's cycles: of memory, of the NPU, and of both together.
_CYCLES: Final = re.compile(r"\d{1,15}/\d{1,15}/(\d{1,15})")
_LONG: Final = 4000
_WHY: Final = re.compile(r"E[^:\n]{0,20}RKNN: \[[\d:.]+\] (?!Unkown op target)(.+)|ValueError: (.+)|E (\w+: .+)")
_IMPORT: Final = "from importlib.metadata import version; import rknn.api; print('RKNN', version('rknn-toolkit2'))"


@final
@dataclass(frozen=True)
class RknnRow:
    """One operation of the compiled model: its ONNX name, its kind, whether the NPU has it, and its cycles."""

    name: str
    kind: str
    on_npu: bool
    cycles: int


@final
@dataclass(frozen=True)
class RknnResult:
    """What the toolkit made of a model.

    Attributes:
        model: the ``.rknn`` file.
        rows: what it consists of; empty where the log does not say.
        results: the simulator's, where inputs were given.
        answer: how its process ended.
    """

    model: bytes
    rows: tuple[RknnRow, ...]
    results: list[NDArray]
    answer: ToolAnswer


def python(given: str = "") -> tuple[str, str]:
    """A Python that has the toolkit and the toolkit's version; or an empty string, and why there is none."""
    if not given and installed("rknn.api"):
        return sys.executable, extras.version("rknn-toolkit2")
    named = given or os.environ.get(VARIABLE, "")
    if not named:
        return "", f"RKNN Toolkit 2 is not here: no Python that has it is named by {VARIABLE} or the option python"
    path = shutil.which(named)
    version = "" if path is None else _version(os.path.abspath(path), os.stat(path).st_mtime_ns)
    if path is None or not version:
        return "", f"RKNN Toolkit 2 is not here: {named} cannot import it"
    return os.path.abspath(path), version


@lru_cache(8)
def _version(path: str, changed: int) -> str:
    """The version of the toolkit that an interpreter imports; asked again when its file changes."""
    with tempfile.TemporaryDirectory(prefix="nxjax-rknn-") as folder:
        said = ask([path, "-c", _IMPORT], folder, 120).out.split()
    return said[-1] if said[-2:-1] == ["RKNN"] else ""


def compile_model(
    interpreter: str,
    model: bytes,
    config: Mapping[str, str],
    calibration: Sequence[Sequence[NDArray]] = (),
    inputs: Sequence[NDArray] = (),
    another: Callable[[], bytes] | None = None,
) -> RknnResult:
    """Build an ONNX file, quantized where there is calibration data; simulate it where there are inputs.

    ``another``: a model that its file is held against (`nxjax.backends.tools.doubt`).

    Raises:
        ExecutionError: the toolkit refuses the file (``refused``), or it did not come to answer.
    """
    what = "rockchip: RKNN Toolkit 2 does not compile the file"
    with tempfile.TemporaryDirectory(prefix="nxjax-rknn-") as folder:
        place = Path(folder)
        (place / "model.onnx").write_bytes(model)
        lines: list[str] = []
        for i, batch in enumerate(calibration):
            names = [f"calibration_{i}_{k}.npy" for k in range(len(batch))]
            for name, x in zip(names, batch, strict=True):
                np.save(place / name, x)
            lines.append(" ".join(str(place / name) for name in names))
        if lines:
            (place / "dataset.txt").write_text("\n".join(lines) + "\n")
        for i, x in enumerate(inputs):
            np.save(place / f"input_{i}.npy", x)
        request: dict[str, Any] = {
            "config": dict(config),
            "dataset": str(place / "dataset.txt") if lines else "",
            "inputs": [f"input_{i}.npy" for i in range(len(inputs))],
        }
        (place / "request.json").write_text(json.dumps(request))
        answer = ask([interpreter, "-I", child.__file__, folder], folder)
        report, made = place / "report.json", place / "model.rknn"
        try:
            said: dict[str, Any] = json.loads(read(report)) if report.exists() else {}
            data = read(made) if said.get("compiled") and made.exists() else b""
        except (OSError, ValueError, AttributeError, RecursionError) as error:
            raise answer.error(what, f"its answer cannot be read: {error}") from error
        if answer.trouble:
            raise answer.error(what)
        if said.get("refused"):
            raise answer.error(what, f"{said['refused']}: {reason(answer.said)}", refused=True)
        if data[:4] != _HEAD:
            raise answer.error(what, f"it ended well and left no .rknn file, which begins with {_HEAD!r}")
        besides = lambda other: compile_model(interpreter, other, config).model
        if another is not None and (
            why := doubt(
                data, [model], lambda: besides(NO_MODEL), interpreter, child.__file__,
                settings=json.dumps(dict(config)), of_another=lambda: besides(another()),
            )
        ):  # fmt: skip
            raise answer.error(what, why)
        return RknnResult(data, rows(answer.said), _results(place, answer, inputs), answer)


def _results(place: Path, answer: ToolAnswer, inputs: Sequence[NDArray]) -> list[NDArray]:
    if not inputs:
        return []
    try:
        with np.load(io.BytesIO(read(place / "results.npz")), allow_pickle=False) as found:
            return [found[str(i)] for i in range(len(found.files))]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise answer.error("rockchip: the simulator gave no results", f"{type(error).__name__}: {error}") from error


def rows(log: str) -> tuple[RknnRow, ...]:
    """The compiler's table; of several, the last.

    >>> rows("D RKNN: [18:38:50.531] 2    ConvRelu   INT8   NPU    (1,3,8,8)  (1,16,8,8)   9/23/23   18   Conv:conv_0")
    (RknnRow(name='conv_0', kind='ConvRelu', on_npu=True, cycles=23),)
    """
    found: list[RknnRow] = []
    for line in log.splitlines():
        words = line[:_LONG].partition("] ")[2].split()
        cycles = next((m for m in map(_CYCLES.fullmatch, words) if m), None)
        if cycles is None or not words[0].isdigit() or len(words) < 6 or words[3] not in ("NPU", "CPU", "GPU"):
            continue
        if words[0] == "0":
            found.clear()
        kind, name = words[1], words[-1].partition(":")[2]
        if kind not in ("InputOperator", "OutputOperator"):
            found.append(RknnRow(name, kind, words[3] == "NPU", int(cycles[1])))
    return tuple(found)


def reason(log: str) -> str:
    """The toolkit's last words about what went wrong."""
    found = [next(filter(None, m.groups()), "").strip() for m in _WHY.finditer(log)]
    return found[-1][:400] if found else "no reason given"
