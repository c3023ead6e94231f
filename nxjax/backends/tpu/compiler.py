"""Google's TPU compiler (libtpu), asked in a child process: StableHLO text in, its executable and its answer out.

Knows texts, topologies and the compiler, no program and no op. What the compiler refuses is an error in nxjax's words.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, final

from nxjax.backends.tools import NO_MODEL, ToolAnswer, ask, doubt, read
from nxjax.backends.tpu import child
from nxjax.backends.tpu.chips import Topology
from nxjax.errors import DeviceMemoryError, ExecutionError, LoweringError, MissingExtraError, NxError

# The compiler looks for a TPU machine's metadata, takes a lock for the chip and keeps logs unless it is told not to;
# two processes may compile at a time only where several loads are allowed.
_QUIET: Final = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v4-8",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_LOG_DIR": "disabled",
    "TPU_STDERR_LOG_LEVEL": "3",
    "TPU_MIN_LOG_LEVEL": "3",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
# Settings of a user's own that are for a chip, and would steer or stop a compilation.
_NOT_PASSED: Final = ("LIBTPU_INIT_ARGS", "TPU_LIBRARY_PATH", "TPU_VISIBLE_DEVICES", "XLA_FLAGS")
TIMEOUT: Final = 900.0
_NONE: Final = "none.mlir"
_UNITS: Final = {"": 1, "B": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SIZE: Final = r"([\d.]+)\s*([KMGT]?)i?B?"
_NEEDS: Final = re.compile(rf"(?:required[^()]*?\(|Used |total hbm usage >= ){_SIZE}", re.IGNORECASE)
_HAS: Final = re.compile(rf"(?:available HBM \(|of ){_SIZE}(?: hbm)?", re.IGNORECASE)
_ALLOCATION: Final = re.compile(rf"Size: {_SIZE}\n(.*?)(?=\n\s*={{5,}}|\Z)", re.DOTALL)


@final
@dataclass(frozen=True)
class ModuleMemory:
    """Bytes on one device, after the compiler's padding.

    Attributes:
        arguments, results, temporaries, code: bytes of each kind.
        aliased: bytes of results that lie where (donated) arguments lay.
        peak: the most at any time, as the compiler counts it.
    """

    arguments: int
    results: int
    temporaries: int
    code: int
    aliased: int
    peak: int

    @property
    def total(self) -> int:
        """What has to fit: arguments, results that are not aliased, temporaries and code."""
        return self.arguments + self.results - self.aliased + self.temporaries + self.code

    # JAX's names for them.
    argument_size_in_bytes = property(lambda self: self.arguments)
    output_size_in_bytes = property(lambda self: self.results)
    temp_size_in_bytes = property(lambda self: self.temporaries)
    generated_code_size_in_bytes = property(lambda self: self.code)
    alias_size_in_bytes = property(lambda self: self.aliased)
    peak_memory_in_bytes = property(lambda self: self.peak)


@final
@dataclass(frozen=True)
class CompiledModule:
    """What the compiler made of one module.

    Attributes:
        executable: serialized, for a runtime of the compiler's version.
        hlo: the program after optimization.
        cost: the compiler's own static estimates: "flops", "bytes accessed", "optimal_seconds", ...
        seconds: that it took to compile.
        version: the compiler's words about itself.
        switched_off: options that had to be, since jaxlib cannot read what they lead to.
    """

    executable: bytes
    hlo: str
    memory: ModuleMemory
    cost: dict[str, float] = field(repr=False)
    seconds: float
    version: str
    switched_off: tuple[str, ...] = ()


def available() -> tuple[bool, str]:
    """Whether the compiler is installed, and which, or why not. Reads metadata only; loads nothing.

    >>> isinstance(available()[0], bool)
    True
    """
    for name, what in (("libtpu", "Google's TPU compiler"), ("jaxlib", "what talks to Google's TPU compiler")):
        if importlib.util.find_spec(name) is None:
            return False, f"{name}, {what}, is not installed; pip install 'nxjax[tpu]'"
    try:
        return True, f"libtpu {version('libtpu')}, jaxlib {version('jaxlib')}"
    except PackageNotFoundError as error:
        return False, f"{error}; pip install 'nxjax[tpu]'"


def library() -> str:
    """Where the compiler's shared library lies."""
    ok, reason = available()
    spec = importlib.util.find_spec("libtpu") if ok else None
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError("tpu: Google's compiler is not installed", got=reason, fix="pip install 'nxjax[tpu]'")
    return str(Path(next(iter(spec.submodule_search_locations))) / "libtpu.so")


def compile_texts(
    texts: Sequence[str],
    topology: Topology,
    *,
    devices: Sequence[int] = (),
    options: Mapping[str, Any] | None = None,
    timeout: float = TIMEOUT,
) -> list[CompiledModule | NxError]:
    """Compile several modules in one child process; what is refused is an error in its place.

    Args:
        texts: StableHLO modules with a public function ``main``, each for one device or partitioned over ``devices``.
        topology: what to compile for.
        devices: numbers of its devices, in the order of partitions; the first one alone if left out.
        options: of the compiler, by name.
        timeout: seconds after which it is given up.

    Raises:
        MissingExtraError: libtpu is not installed.
        ParameterError: the compiler does not know the topology.
        ExecutionError: it ended without an answer, or took too long.
    """
    with tempfile.TemporaryDirectory(prefix="nxjax-tpu-") as folder:
        place = Path(folder)
        names = [f"{i}.mlir" for i in range(len(texts))]
        for name, text in zip(names, texts, strict=True):
            (place / name).write_text(text)
        # One more, which a compiler that reads what it is given refuses.
        (place / _NONE).write_bytes(NO_MODEL)
        how: dict[str, Any] = {"devices": list(devices), "options": dict(options or {}), "timeout": timeout}
        done, answer = _asked(place, topology, [*names, _NONE], **how)
        try:
            *modules, none = answer["modules"]
            blind = b"" if "error" in none else NO_MODEL
            return [
                refused(str(said["error"]), topology)
                if "error" in said
                else _module(place / name, said, str(answer["version"]), blind)
                for name, said in zip(names, modules, strict=True)
            ]
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise done.error(f"{topology}: the compiler's answer cannot be used", str(error)) from error


def _module(source: Path, said: Mapping[str, Any], release: str, of_no_model: bytes) -> CompiledModule:
    """What the compiler made of one text; `ValueError` and others where it is none of it."""
    m = said["memory"]
    memory = ModuleMemory(
        m["argument_size"], m["output_size"], m["temp_size"], m["generated_code_size"], m["alias_size"],
        m["peak_memory"],
    )  # fmt: skip
    binary, hlo = read(f"{source}.bin"), read(f"{source}.hlo").decode()
    if why := doubt(binary, [source.read_bytes()], lambda: of_no_model):
        raise ValueError(why)
    return CompiledModule(binary, hlo, memory, said["cost"], said["seconds"], release, tuple(said["switched_off"]))


def compile_text(text: str, topology: Topology, **how: Any) -> CompiledModule:
    """One module, as `compile_texts`; what is refused is raised.

    Raises:
        DeviceMemoryError: it does not fit in a device's HBM.
        LoweringError: the compiler refused it.
    """
    (found,) = compile_texts([text], topology, **how)
    if isinstance(found, NxError):
        raise found
    return found


@lru_cache(32)
def devices_of(topology: Topology) -> tuple[dict[str, Any], ...]:
    """The devices of a topology as the compiler describes them: id, kind, coords, core, process."""
    with tempfile.TemporaryDirectory(prefix="nxjax-tpu-") as folder:
        _, answer = _asked(Path(folder), topology, [], devices=[], options={}, timeout=120.0, describe=True)
    return tuple(answer["devices"])


def _asked(
    place: Path,
    topology: Topology,
    names: Sequence[str],
    *,
    devices: list[int],
    options: dict[str, Any],
    timeout: float,
    describe: bool = False,
) -> tuple[ToolAnswer, dict[str, Any]]:
    request = {
        "path": [p for p in sys.path if p],
        "library": library(),
        "topology": topology.compiler_name,
        "modules": list(names),
        "devices": devices,
        "options": options,
        "describe": describe,
    }
    (place / "request.json").write_text(json.dumps(request))
    environment = {k: v for k, v in os.environ.items() if k not in _NOT_PASSED} | _QUIET
    done = ask([sys.executable, "-I", child.__file__, str(place)], place, timeout, environment)
    if done.status is None:
        error = done.error(f"{topology}: the compiler gave no answer", done.trouble)
        error.fix = "compile a smaller part, or allow more with timeout="
        raise error
    answer: dict[str, Any] = {}
    try:
        answer = {} if done.status else json.loads(read(place / "answer.json"))
        whole = bool(answer) and ("error" in answer or len(answer["devices" if describe else "modules"]) >= len(names))
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        whole = False
    if not whole:
        raise _ended(done, topology)
    if "error" in answer:
        said = _first_line(answer["error"]).removeprefix("INVALID_ARGUMENT: ")
        raise topology.generation.refused(topology.form, f"those that the compiler takes; it says: {said}")
    return done, answer


def _ended(done: ToolAnswer, topology: Topology) -> ExecutionError:
    how = done.trouble.removeprefix("it ended with ") or "status 0"
    lines = [line for line in done.err.splitlines() if line.strip()]
    # A failed check of the compiler's own stands above the pages that it prints of its stack.
    told = [line for line in lines if line.startswith("F") or "Check failed" in line] or lines[-1:]
    what = f"{topology}: the compiler's process ended without an answer ({how})"
    error = done.error(what, (told[0] if told else "nothing was said")[:600])
    error.fix = "compile parts of the function to find the op that it fails on; upgrade with pip install -U libtpu"
    return error


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _bytes(found: re.Match[str] | None) -> int | None:
    return None if found is None else round(float(found[1]) * _UNITS[found[2].upper()])


def refused(said: str, topology: Topology) -> NxError:
    """What the compiler said about a module as an error of nxjax's."""
    if said.startswith("RESOURCE_EXHAUSTED"):
        return _too_large(said, topology)
    what = said.split("\n\nSuspected Python Code")[0].strip()
    fix = "compile parts of the function to find the op, or compute that part on the host"
    if "No such compile option" in what:
        fix = "leave it out of compiler_options, or write the name that this version of libtpu has for it"
    return LoweringError(
        f"{topology}: the compiler refused the program",
        got=what[:2000],
        fix=fix,
    )


def _too_large(said: str, topology: Topology) -> DeviceMemoryError:
    needs, has = _bytes(_NEEDS.search(said)), _bytes(_HAS.search(said))
    where = "VMEM" if "vmem" in said.lower() and "hbm" not in said.lower() else "HBM"
    share = f"{needs / 2**30:.2f} GiB" if needs is not None else "more than there is"
    room = f"{has / 2**30:.2f} GiB on a device" if has is not None else f"what a device's {where} holds"
    larger = [t for t in topology.generation.topologies if topology.generation.topology(t).chips > topology.chips]
    slice_ = f" (such as tpu-{topology.generation.name}:{larger[0]})" if larger else ""
    error = DeviceMemoryError(
        f"{topology}: the program does not fit in {where}",
        got=f"{share}; the compiler says: {_first_line(said)[:400]}",
        expected=room,
        fix=(
            f"shard it over a larger slice{slice_} with in_shardings, take a smaller batch or bfloat16, nx.checkpoint "
            "what is kept for the backward pass, donate arguments that are replaced (donate_argnums)"
        ),
    )
    error.required, error.available = needs, has
    sizes = ((_bytes(m), " ".join(m[3].split())) for m in _ALLOCATION.finditer(said))
    error.buffers = tuple((size, text) for size, text in sizes if size is not None)
    return error
