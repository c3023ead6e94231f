"""`nxjax.hardware.tpu`: Google's TPUs as one backend object: Cloud TPUs of this machine, slices elsewhere, Edge TPUs.

With a chip, operations and models run on it. Without one, a Cloud TPU can be compiled for (``compile_only=True``), and
an Edge TPU's integers are computed by LiteRT on the host; every result says where it comes from. Making a backend for a
chip that is not here is an error that says why.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal, Self, final

import numpy as np

from nxjax.backends import registry
from nxjax.backends.evidence import Label
from nxjax.backends.tpu import compiler
from nxjax.backends.tpu.chips import Topology, parsed
from nxjax.deploy import files
from nxjax.deploy.artifact import Artifact
from nxjax.deploy.compile import compile as compile_for
from nxjax.deploy.simulate import Run
from nxjax.errors import ExecutionError, ParameterError
from nxjax.hardware.backend import ChipBackend
from nxjax.runtime import block_until_ready, device_get, device_put
from nxjax.trace import tree
from nxjax.trace.array import as_value
from nxjax.trace.core import Array
from nxjax.transforms.jit import jit
from nxjax.vendors import chips

KINDS: Final = ("cloud", "edge")
_EDGE: Final = "edgetpu"


def is_tpu_available(kind: str = "cloud") -> bool:
    """Whether this machine has a TPU that nxjax can run on. `tpu_unavailable_reason` says why not.

    Args:
        kind: ``"cloud"``, or ``"edge"`` for an Edge TPU.

    >>> is_tpu_available() == (tpu_unavailable_reason() == "")
    True
    """
    return not tpu_unavailable_reason(kind)


def tpu_unavailable_reason(kind: str = "cloud") -> str:
    """Why `is_tpu_available` is False; empty where it is True."""
    if kind not in KINDS:
        raise ParameterError("TPU: kind", got=repr(kind), expected=", ".join(map(repr, KINDS)))
    if kind == "cloud":
        found, reason = registry.get("tpu").available()
        return "" if found else reason
    return chips.why_none(target=_EDGE)


@final
class TPUBackend(ChipBackend):
    """A TPU.

    Args:
        device: which one, counted from 0.
        kind: ``"cloud"``, or ``"edge"`` for an Edge TPU, which takes int8 programs. Without its chip they are compiled,
            and run by LiteRT on the host.
        compile_only: for Cloud TPUs: compile for ``topology``, run nothing.
        topology: generation and slice to compile for: ``"v5e:2x2"``, ``"v4"``.

    Raises:
        ExecutionError: (a RuntimeError) there is no TPU, and ``compile_only`` is off.
        ParameterError: no such kind, device or topology.

    >>> tpu = TPUBackend(kind="edge")
    >>> tpu.get_device_count(), tpu.label in ("hardware", "host")
    (1, True)
    """

    _title = "TPU"

    def __init__(
        self,
        device: int = 0,
        kind: Literal["cloud", "edge"] = "cloud",
        compile_only: bool = False,
        topology: str = "v5e",
    ) -> None:
        why = tpu_unavailable_reason(kind)
        self.kind = kind
        self.compile_only = bool(compile_only)
        self.last_artifact: Artifact | None = None
        self._topology: Topology = parsed(topology)
        self._moved = {"to device": 0, "to host": 0}
        self._here = not why and not self.compile_only
        if why and kind == "cloud" and not self.compile_only:
            raise ExecutionError(
                "TPUBackend: no TPU to run on",
                got=why,
                expected="a TPU with its driver and libtpu",
                fix='compile for one with TPUBackend(compile_only=True, topology="v5e:1x1"), or with nx.compile',
            )
        self.device = self._numbered("TPUBackend: device", device)

    # --- life ---

    @property
    def label(self) -> Label:
        """How far towards silicon this backend's results go at best."""
        return "hardware" if self._here else "vendor-compiled" if self.kind == "cloud" else "host"

    @property
    def target(self) -> str:
        """The target of `nx.compile` that it compiles for."""
        return _EDGE if self.kind == "edge" else str(self._topology)

    def _open(self) -> None:
        if self.kind == "edge":
            return  # its programs are run by what `nx.compile` finds
        if self.compile_only:
            compiler.devices_of(self._topology)
        else:
            # Opening a device is computing something on it.
            device_get(jit(lambda x: x + 1)(device_put(np.zeros(2, np.float32), self._device())))

    def finalize(self) -> None:
        """Let it go; `initialize` makes it ready again. Arrays on the device stay while something holds them."""
        self._ready = False
        self.last_artifact = None

    def __enter__(self) -> Self:
        if not self.initialize():
            raise ExecutionError("TPUBackend: the device did not start", got=self.error)
        return self

    def __exit__(self, *exc: object) -> None:
        self.finalize()

    def _device(self) -> Any:
        return registry.get("tpu").devices()[self.device]

    # --- devices and memory ---

    def get_device_count(self) -> int:
        """How many devices there are: of this machine, or of the slice that is compiled for."""
        if self.kind == "edge":
            return max(1, sum(c.usable for c in chips.find() if c.kind.target == _EDGE))
        return self._topology.devices if self.compile_only else len(registry.get("tpu").devices())

    def get_device_info(self, index: int = 0) -> dict[str, Any]:
        """What is known of a device: its name, the label of its results, the target, and published peaks."""
        self._numbered("get_device_info: index", index)
        found: dict[str, Any] = {"index": index, "kind": self.kind, "label": self.label, "target": self.target}
        if self.kind == "edge":
            return {**found, "name": "Google Edge TPU", "precision": ("int8",)}
        if not self.compile_only:
            device = registry.get("tpu").devices()[index]
            return {**found, "name": device.device_kind, "memory": device.memory_stats()}
        g = self._topology.generation
        return {
            **found, "name": g.title, "topology": self._topology.form, "peak_flops": g.peak(integer=False),
            "hbm_bytes": g.hbm / g.cores, "hbm_bandwidth": g.bandwidth / g.cores, "source": g.source,
        }  # fmt: skip

    def memory_stats(self) -> dict[str, Any]:
        """Bytes, and who counted them (``accounting``): a chip's allocator, or the compiler of the last program.

        ``to device`` and ``to host`` are what this backend has moved.
        """
        if self._here and self.kind == "cloud":
            return {**(self._device().memory_stats() or {}), **self._moved}
        if self.last_artifact is None:
            return {**self._moved, "accounting": "nothing has been compiled"}
        figures = self.last_artifact.cost.figures.items()
        sizes = {name: int(f.value) for name, f in figures if f.unit == "bytes"}
        return {**sizes, **self._moved, "accounting": "the compiler, for one program"}

    # --- transfers ---

    def to_device(self, x: Any) -> Any:
        """A tree of arrays on the device; where there is none to move to, the arrays as they are."""
        self._runs("to_device")
        values = tree.map(lambda v: as_value(v, "to_device"), x)
        self._moved["to device"] += sum(v.nbytes for v in tree.leaves(values))
        return device_put(values, self._device()) if self._here and self.kind == "cloud" else values

    def to_host(self, x: Any) -> Any:
        """A tree of arrays as NumPy arrays."""
        self._needed("to_host")
        found = device_get(x)
        self._moved["to host"] += sum(np.asarray(v).nbytes for v in tree.leaves(found))
        return found

    def _runs(self, what: str) -> None:
        self._needed(what)
        if self.compile_only:
            got = f"compile_only=True, for {self._topology}"
            fix = "take tpu.compile(f, ...) for what the compiler says, or run on a machine with a TPU"
            raise ExecutionError(f"{what}: this backend compiles only", got=got, expected="a TPU", fix=fix)

    # --- programs ---

    def compile(self, f: Callable[..., Any], *args: Any, **options: Any) -> Artifact:
        """``f`` compiled for this TPU: as `nx.compile` for `target`, with its options."""
        self._needed("compile")
        self.last_artifact = compile_for(f, target=self.target, **options)(*args)
        return self.last_artifact

    def run(self, f: Callable[..., Any], *args: Any) -> Any:
        """``f(*args)`` on this TPU; `last_run` says where it ran. Edge TPUs run what is quantized (`nx.quantize`)."""
        name = str(getattr(f, "__name__", "function"))
        self._runs(name)
        if self.kind == "cloud":
            y = jit(f)(*self.to_device(args))
            self.last_run = Run(name, "hardware")
            return y
        made = self.compile(f, *args)
        y = made.run(*args)
        self.last_run = Run(name, made.label if made.label == "hardware" else "host", made.runs_on)
        return y

    def _run(self, name: str, f: Callable[..., Any], *args: Any) -> Array:
        return self.run(f, *(as_value(x, name) for x in args))

    def profile(self, f: Callable[..., Any], *args: Any, path: str | os.PathLike[str] = "tpu_trace.json") -> Path:
        """A timeline of one run as Perfetto's JSON (ui.perfetto.dev), written to ``path``.

        On a chip, and where LiteRT runs an Edge TPU's program, its spans are measured on the host's clock. With
        ``compile_only`` they are the compiler's estimates: `nx.compile`'s ``artifact.analysis.trace()``.
        """
        self._needed("profile")
        if self.compile_only:
            return files.save({"trace.json": self.compile(f, *args).analysis.trace().encode()}, path)
        events: list[dict[str, Any]] = []

        def timed(name: str, do: Callable[..., Any], *given: Any) -> Any:
            start = time.perf_counter()
            y = do(*given)
            times = {"ts": 1e6 * start, "dur": 1e6 * (time.perf_counter() - start), "args": {"basis": "measured"}}
            events.append({"name": name, "ph": "X", "pid": 0, "tid": 0, **times})
            return y

        if self.kind == "edge":
            artifact = timed("compile", self.compile, f, *args)
            y = timed(f"run on {artifact.runs_on}", artifact.run, *args)
        else:
            compiled = jit(f)
            run = lambda *xs: block_until_ready(compiled(*xs))
            moved = timed("to device", lambda: block_until_ready(self.to_device(args)))
            timed("first call: compile and run", run, *moved)
            y = timed("run", run, *moved)
        timed("to host", self.to_host, y)
        trace = {"traceEvents": events, "otherData": {"label": self.label, "target": self.target}}
        return files.save({"trace.json": json.dumps(trace).encode()}, path)

    def __repr__(self) -> str:
        return f"TPUBackend({self.target}, {self.label}, {'ready' if self._ready else 'not initialized'})"


__all__ = ["TPUBackend", "is_tpu_available", "tpu_unavailable_reason"]
