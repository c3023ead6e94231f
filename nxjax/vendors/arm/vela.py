"""Arm's compiler Vela: called by its Python interface, or by its command line where that is another; its answer.

Knows files and Vela, no graph. A compilation that placed nothing on the NPU is a success to Vela, so that the answer
holds what is left for the host in the file that came out, and Vela's reason for each.
"""

from __future__ import annotations

import configparser
import csv
import json
import os
import re
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, final

from nxjax.backends import extras
from nxjax.backends.extras import need
from nxjax.backends.tools import NO_MODEL, ToolAnswer, ask, doubt, read
from nxjax.errors import ExecutionError, InvalidFileError, ParameterError
from nxjax.lower.placement import Cost
from nxjax.vendors.arm import vela_child as ethosu_child
from nxjax.vendors.litert.compiled import another, left_for_host, refuse_other

EXTRA: Final = "ethosu"
# The system configuration and the memory mode that Vela itself takes where none is given.
DEFAULTS: Final = {
    "u55": ("Ethos_U55_High_End_Embedded", "Shared_Sram"),
    "u65": ("Ethos_U65_Client_Server", "Dedicated_Sram_384KB"),
    "u85": ("Ethos_U85_SYS_DRAM_Mid", "Dedicated_Sram_384KB"),
}
_ADDRESS_BITS: Final = {"u55": 32, "u65": 40, "u85": 40}
_NPU_OPERATOR: Final = "ethos-u"
_WARNING: Final = re.compile(
    r"Warning \(supported operators\) operator: (?P<op>\S+), ofm: '(?P<name>.*)'\nReason: (?P<reason>(?:.+\n?)+)"
)
_NO_OPERATOR: Final = "Unsupported opType"
_ASTRAY: Final = ("", "Quantization scale of any tensor must be positive.")
# How its command line begins what it says of a file.
_SAYS: Final = re.compile(r"^(Error|ERROR)[ :(]", re.MULTILINE)
_OTHER_INTERFACE: Final = re.compile(r"^(ImportError|ModuleNotFoundError|AttributeError|TypeError)", re.MULTILINE)


@final
@dataclass(frozen=True)
class VelaOptions:
    """How Vela is to compile.

    Attributes:
        series: "u55", "u65" or "u85".
        size: multiply-accumulates a cycle.
        system_config: a ``[System_Config.*]`` section: clock and memories.
        memory_mode: a ``[Memory_Mode.*]`` section: what lies where.
        config: a file of such sections in place of the one that comes with Vela.
        optimise: "Performance" or "Size".
        arena_cache_size: bytes of fast memory, in place of what the memory mode says.
    """

    series: str
    size: int
    system_config: str = ""
    memory_mode: str = ""
    config: str = ""
    optimise: str = "Performance"
    arena_cache_size: int | None = None

    def __post_init__(self) -> None:
        system, mode = DEFAULTS[self.series]
        object.__setattr__(self, "system_config", self.system_config or system)
        object.__setattr__(self, "memory_mode", self.memory_mode or mode)
        if self.optimise not in ("Performance", "Size"):
            raise ParameterError("ethos-u: optimise", got=self.optimise, expected="'Performance' or 'Size'")

    @property
    def accelerator(self) -> str:
        return f"ethos-{self.series}-{self.size}"


@final
@dataclass
class VelaResult:
    """What Vela made of a file.

    Attributes:
        model: the ``.tflite`` that the runtime with Ethos-U's driver loads.
        host: names of the results of operators that are left for the host.
        reasons: why, by the name of the result.
        npu: how many operators run on the NPU.
        cost: Vela's estimates.
        clock: cycles a second that they reckon with.
        command: how Vela was called.
        status: its exit status.
        layers: cycles by the number of an operator in the file that was compiled; empty if Vela does not say.
        notes: what does not fit together in Vela's answer, if anything.
    """

    model: bytes
    host: list[str]
    reasons: dict[str, str]
    npu: int
    cost: Cost
    clock: float
    command: str = ""
    status: int | None = None
    layers: dict[int, int] = field(default_factory=dict[int, int])
    notes: list[str] = field(default_factory=list[str])


def version() -> str:
    """The version of the installed Vela."""
    return extras.version("ethos-u-vela")


def constraints(series: str) -> dict[str, list[str]]:
    """The operators that Vela takes for a series and its rules for each, in Vela's words."""
    regor = need("ethosu.regor", EXTRA, "Arm's compiler Vela")
    return regor.tflite_operator_constraints(f"Ethos{series.upper()}")


def compile_model(model: bytes, settings: VelaOptions) -> VelaResult:
    """Compile a ``.tflite`` file.

    Raises:
        MissingExtraError: Vela is not installed.
        ExecutionError: Vela refuses the file; or, where ``refused`` is False, it did not come to answer, or its
            answer is none.
    """
    package = need("ethosu", EXTRA, "Arm's compiler Vela")
    text = _config_text(settings)
    config = _parsed(text, settings)
    # Two cores of 256 make the 512 of the U65.
    cores = 2 if (settings.series, settings.size) == ("u65", 512) else 1
    limit = settings.arena_cache_size
    if limit is None:
        limit = _inherited(config, f"Memory_Mode.{settings.memory_mode}", "arena_cache_size")
    request = {
        "accelerator": f"Ethos{settings.series.upper()}",
        "system": f"[architecture]\nmacs={settings.size // cores}\ncores={cores}\n[vela]\n"
        f"system_config_name={settings.system_config}\nmemory_mode_name={settings.memory_mode}\n{text}",
        "options": "[compiler]\nenable_db=true\noutput_format=TFLite\ncop_format=COP1\n"
        f"[scheduler]\noptimize={settings.optimise}\n"
        f"arena_size_limit={limit or 1 << _ADDRESS_BITS[settings.series]}\n"
        "disable_feature=\ncpu_tensor_alignment=16\ntensor_allocator=HillClimb\n"
        "[graph]\nsoftmax_int16_neg_exp_range=10.0\n",
    }
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        done = _asked(place, package, model, request)
        if not done.trouble and (place / "refused.txt").exists():
            raise _refused(done, (place / "refused.txt").read_text())
        if done.status and _OTHER_INTERFACE.search(done.err):
            # An older or newer Vela, whose in-process interface is not this one.
            made = by_command(model, settings)
            made.notes.append(f"Vela {version()} has another in-process interface; its command line was used")
            return made
        if done.trouble:
            raise _failed(done, f"{done.trouble}: {(done.err.strip().splitlines() or ['without a word'])[-1]}")
        try:
            result = read(place / "model_vela.tflite")
            report = json.loads(read(place / "report.json"))
            clock = float(config[f"System_Config.{settings.system_config}"]["core_clock"])
            besides = partial(_besides, package, request)
            if why := doubt(
                result, [model], partial(besides, NO_MODEL), ethosu_child.__file__, settings=json.dumps(request),
                of_another=lambda: besides(another()),
            ):  # fmt: skip
                raise InvalidFileError(why)
            made = _reported(model, result, report, done.out, clock)
            made.command, made.status = done.command, done.status
            return made
        except (OSError, ValueError, LookupError, TypeError, RecursionError, InvalidFileError) as error:
            raise _failed(done, f"its answer cannot be used: {_first_line(error)}") from error


def _asked(place: Path, package: Any, model: bytes, request: Mapping[str, str]) -> ToolAnswer:
    """Vela's process on a file in a folder, which holds its answer afterwards."""
    site = os.path.dirname(next(iter(package.__path__)))
    (place / "model.tflite").write_bytes(model)
    (place / "request.json").write_text(json.dumps(request))
    return ask([sys.executable, "-I", ethosu_child.__file__, site, str(place)], place)


def _besides(package: Any, request: Mapping[str, str], model: bytes) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        _asked(Path(folder), package, model, request)
        return read(Path(folder) / "model_vela.tflite")


def _figures(said: Mapping[str, Any], *keys: str) -> Cost:
    cost, units = Cost(), {"cycles": "cycles", "npu cycles": "cycles", "macs": "MAC", "weights": "bytes"}
    for key, (name, unit) in zip(keys, units.items(), strict=True):
        cost.add(name, float(said[key]), unit, "vendor-estimate")
    return cost


def _reported(model: bytes, result: bytes, report: dict[str, Any], log: str, clock: float) -> VelaResult:
    """What the child wrote."""
    cost = _figures(report, "cycles", "npu_cycles", "macs", "weights")
    for name, peak in report["memories"].items():
        if name.lower() not in ("shram", "lutram"):
            cost.add(f"{_spaced(name)} peak", peak, "bytes", "vendor-estimate")
    compiled = _answer(model, result, log, cost, clock, report["npu"])
    compiled.layers = {int(key): cycles for key, cycles in report["layers"].items()}
    if len(compiled.host) != report["host"]:
        compiled.notes.append(f"Vela counts {report['host']} host operators, its file holds {len(compiled.host)}")
    return compiled


def by_command(model: bytes, settings: VelaOptions) -> VelaResult:
    """The same by ``python -m ethosu.vela`` in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "model.tflite").write_bytes(model)
        command = [sys.executable, "-m", "ethosu.vela", str(place / "model.tflite"), "--output-dir", folder]
        command += ["--accelerator-config", settings.accelerator, "--memory-mode", settings.memory_mode]
        config = os.path.abspath(settings.config or _config_file())
        command += ["--system-config", settings.system_config, "--config", config]
        command += ["--optimise", settings.optimise]
        if settings.arena_cache_size is not None:
            command += ["--arena-cache-size", str(settings.arena_cache_size)]
        done = ask(command, folder)
        said = done.said[-2000:]
        if done.status == 1 and _SAYS.search(said):
            raise _refused(done, said)
        if done.trouble:
            raise _failed(done, f"{done.trouble}: {said.strip() or 'without a word'}")
        try:
            result = read(place / "model_vela.tflite")
            if why := doubt(result, [model], lambda: b""):
                raise InvalidFileError(why)
            with next(place.glob("model_summary*.csv")).open(newline="") as f:
                row = next(csv.DictReader(f))
            made = _summarized(model, result, row, done.out)
            made.command, made.status = done.command, done.status
            return made
        except (OSError, ValueError, LookupError, TypeError, StopIteration, InvalidFileError) as error:
            raise _failed(done, f"its answer cannot be used: {_first_line(error)}") from error


def _summarized(model: bytes, result: bytes, row: dict[str, str], log: str) -> VelaResult:
    """What the command line wrote: a file, and a table of one row."""
    cost = _figures(row, "cycles_total", "cycles_npu", "nn_macs", "total_npu_encoded_weights")
    for key, value in row.items():
        memory = key.removesuffix("_memory_used").replace("_", " ")
        if key.endswith("_memory_used") and float(value):
            cost.add(f"{memory} peak", 1024 * float(value), "bytes", "vendor-estimate")
    found = re.search(r"NPU operators = (\d+)", log)
    return _answer(model, result, log, cost, float(row["core_clock"]), int(found[1]) if found else 0)


def _refused(done: ToolAnswer, why: str) -> ExecutionError:
    return done.error("ethos-u: Vela does not compile the file", why.strip() or "no reason given", refused=True)


def _failed(done: ToolAnswer, why: str) -> ExecutionError:
    return done.error("ethos-u: Vela does not compile the file: it gave no answer", why)


def _first_line(error: Exception) -> str:
    said = error.what if isinstance(error, InvalidFileError) else str(error)
    return f"{type(error).__name__}: {said}".splitlines()[0]


def _answer(written: bytes, model: bytes, log: str, cost: Cost, clock: float, npu: int) -> VelaResult:
    refuse_other(written, model)
    reasons = {m["name"]: _reason(m["reason"]) for m in _WARNING.finditer(log)}
    host, calls = left_for_host(model, _NPU_OPERATOR)
    if not calls:
        npu = 0
    if calls:
        cost.add("chip time", cost["cycles"].value / clock, "s", "vendor-estimate")
    return VelaResult(model, host, reasons, npu, cost, clock)


def _reason(text: str) -> str:
    """One reason in one line, without what Vela prints behind it of other operators that it does not name."""
    lines = [line.strip() for line in text.splitlines() if line.strip() not in _ASTRAY]
    return " ".join(lines[:1] if _NO_OPERATOR in lines[:1] else lines)


def _spaced(name: str) -> str:
    """Vela's "OffChipFlash" as "off chip flash"."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()


def _config_file() -> str:
    package = need("ethosu.vela", EXTRA, "Arm's compiler Vela")
    return os.path.join(os.path.dirname(os.path.dirname(package.__file__)), "config_files", "Arm", "vela.ini")


def _config_text(settings: VelaOptions) -> str:
    path = settings.config or _config_file()
    try:
        with open(path, encoding="utf-8") as f:
            return f.read()
    except OSError as e:
        raise ParameterError("ethos-u: the configuration file cannot be read", got=f"{path}: {e.strerror}") from None


def _parsed(text: str, settings: VelaOptions) -> configparser.ConfigParser:
    config = configparser.ConfigParser()
    config.read_string(text)
    for kind, name in (("System_Config", settings.system_config), ("Memory_Mode", settings.memory_mode)):
        if f"{kind}.{name}" not in config:
            names = [s.split(".", 1)[1] for s in config.sections() if s.startswith(kind + ".")]
            raise ParameterError(f"ethos-u: no {kind} of that name", got=name, expected=", ".join(names))
    return config


def _inherited(config: configparser.ConfigParser, section: str, key: str) -> int | None:
    seen: set[str] = set()
    while section in config and section not in seen:
        seen.add(section)
        if key in config[section]:
            return int(config[section][key])
        section = config[section].get("inherit", "")
    return None
