"""Asks the process of its own that meets a driver first: which devices it has, and what modules compute on one.

Knows `nxjax.backends.iree.session` as a program, no target and no text.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from nxjax.backends.iree.session import carried, element_type
from nxjax.backends.tools import ask, read
from nxjax.errors import ExecutionError

NDArray = np.ndarray[Any, Any]
# Seconds for a driver to say what it has, and for tests to run.
LISTING: Final = 60.0
TESTING: Final = 300.0
_SCRIPT: Final = Path(__file__).with_name("session.py")


def _ask(request: dict[str, Any], files: Mapping[str, bytes], deadline: float) -> tuple[dict[str, Any], str]:
    """The child's answer, and how it ended where that was not well.

    The answer of a child that ended early is what it had written until then.
    """
    with tempfile.TemporaryDirectory(prefix="nxjax-iree-") as folder:
        place = Path(folder)
        for name, data in files.items():
            (place / name).write_bytes(data)
        (place / "request.json").write_text(json.dumps({"path": sys.path, **request}))
        done = ask([sys.executable, "-I", str(_SCRIPT), folder], folder, deadline)
        last = done.err.strip().splitlines()[-1:]
        ended = f"its process ended with status {done.status}" if done.status else ""
        ended = ended or (done.trouble and f"it does not answer: {done.trouble}")
        ended += f": {last[0][:300]}" if ended and last else ""
        found: dict[str, Any] = {}
        try:
            # What is not there yet, a child that ended early has not come to.
            with contextlib.suppress(FileNotFoundError):
                found = dict(json.loads(read(place / "answer.json")))
                with np.load(io.BytesIO(read(place / "results.npz")), allow_pickle=False) as held:
                    found["results"] = {name: held[name] for name in held.files}
        except (OSError, ValueError, TypeError, EOFError, RecursionError, zipfile.BadZipFile) as error:
            ended = ended or f"its answer cannot be read: {error}"
    return found, ended


def devices(driver: str) -> list[dict[str, str]]:
    """What a driver has: ``name``, ``path`` and ``facts`` of each device.

    Raises:
        ExecutionError: the driver cannot be loaded, or it ends its process.
    """
    answer, ended = _ask({"driver": driver}, {}, LISTING)
    if "devices" not in answer:
        raise ExecutionError(f"{driver}: the driver has no devices", got=answer.get("error") or ended)
    return answer["devices"]


def run(
    driver: str, device: str, modules: Mapping[str, bytes], calls: Sequence[tuple[str, str, Sequence[NDArray], NDArray]]
) -> list[NDArray | str]:
    """What functions give on a device, or why they give nothing.

    Args:
        modules: compiled, by name.
        calls: a module's name, its function, the arguments, and an array of the result's shape and dtype.
    """
    arrays: dict[str, NDArray] = {}
    tests: list[dict[str, Any]] = []
    for i, (module, function, inputs, like) in enumerate(calls):
        names = [f"{i}_{j}" for j in range(len(inputs))]
        arrays |= dict(zip(names, map(carried, inputs), strict=True))
        taken = [(name, element_type(x.dtype)) for name, x in zip(names, inputs, strict=True)]
        kind = {"function": function, "shape": list(like.shape), "dtype": carried(like).dtype.name}
        tests.append({"module": f"{module}.vmfb", "inputs": taken, **kind})
    packed = io.BytesIO()
    np.savez(packed, **arrays)  # pyright: ignore[reportArgumentType]
    files = {"arrays.npz": packed.getvalue(), **{f"{n}.vmfb": data for n, data in modules.items()}}
    answer, ended = _ask({"driver": driver, "device": device, "tests": tests}, files, TESTING)
    states: list[dict[str, str]] = answer.get("tests", [])
    results: dict[str, NDArray] = answer.get("results", {})
    given: list[NDArray | str] = []
    for i, (_, function, _, like) in enumerate(calls):
        if i >= len(states):
            given.append(f"{function}: {ended or 'no answer'}")
        elif str(i) not in results:
            given.append(f"{function}: {states[i].get('reason', 'no answer')}")
        else:
            given.append(results[str(i)].view(like.dtype))
    return given
