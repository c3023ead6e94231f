"""A child process that owns ONNX Runtime's QNN execution provider, and the pipe to it.

The provider is a plug-in registered once per process, its libraries print to standard output and are 200 MB; none of
that belongs in the user's process, nor does a crash in them. One message is a JSON head and some blobs. The child
answers load (compile a model), run and drop; it knows ONNX names, not graphs.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Final, final

from nxjax.backends import tools
from nxjax.backends.children.wire import WireError, pack, unpack
from nxjax.errors import ExecutionError
from nxjax.ops.base import NDArray

PROVIDER: Final = "QNNExecutionProvider"
# Bytes of a message's head.
_HEAD: Final = 64 << 20
# What an answer to each request has.
_SAID: Final = {"load": ("where", "reasons", "targets", "hardware", "runtime"), "run": ("arrays",)}

Message = tuple[dict[str, Any], list[bytes]]


def send(stream: IO[bytes], head: dict[str, Any], blobs: Sequence[bytes] = ()) -> None:
    text = json.dumps({**head, "blobs": [len(b) for b in blobs]}).encode()
    stream.write(len(text).to_bytes(8, "little") + text)
    for b in blobs:
        stream.write(b)
    stream.flush()


def receive(stream: IO[bytes]) -> Message | None:
    """The next message; None where the other side has closed the pipe.

    Raises:
        ValueError: what came is no message.
    """
    size = stream.read(8)
    if len(size) < 8:
        return None
    length = int.from_bytes(size, "little")
    if length > _HEAD:
        raise ValueError(f"no message: it begins with {size!r}")
    head = json.loads(stream.read(length))
    lengths = head.pop("blobs", None) if isinstance(head, dict) else None
    if not isinstance(lengths, list) or not all(isinstance(n, int) and 0 <= n <= tools.LARGEST for n in lengths):
        raise ValueError(f"no message: {str(head)[:80]}")
    return head, [stream.read(n) for n in lengths]


def on_snapdragon() -> bool:
    """Whether this machine is one that the provider would find an HTP in; imports nothing."""
    if platform.machine().lower() not in ("arm64", "aarch64"):
        return False
    if sys.platform == "win32":
        return "qualcomm" in platform.processor().lower()
    return any(os.path.exists(p) for p in ("/dev/fastrpc-cdsp", "/dev/adsprpc-smd"))


class QnnRefusal(Exception):
    """What ONNX Runtime or its provider says against a model or a run; other failures are not their word."""


class Provider:
    """The plug-in in this process, and the sessions that run on it."""

    def __init__(self) -> None:
        import onnxruntime as ort
        import onnxruntime_qnn as plugin

        self.ort: Any = ort
        ort.register_execution_provider_library(PROVIDER, plugin.get_library_path())
        devices = [d for d in ort.get_ep_devices() if d.ep_name == PROVIDER]
        # On a Snapdragon the NPU itself is among the devices; elsewhere only the CPU that the simulator runs on.
        npus = [d for d in devices if "NPU" in str(d.device.type)]
        self.devices = (npus or devices)[:1]
        self.hardware = bool(npus)
        self.sessions: dict[int, Any] = {}

    def load(self, head: dict[str, Any], model: bytes) -> Message:
        """Compile ``model``: where its nodes went, why some did not, and the context binary."""
        if not self.devices:
            raise RuntimeError("the QNN plug-in offers no device")
        with tempfile.TemporaryDirectory() as folder:
            context, trace = Path(folder, "context.onnx"), Path(folder, "trace")
            trace.mkdir()
            so = self.ort.SessionOptions()
            so.log_severity_level = 4
            entries = {
                "session.record_ep_graph_assignment_info": "1",
                "ep.context_enable": "1",
                "ep.context_embed_mode": "1",
                "ep.context_file_path": str(context),
            }
            for key, value in entries.items():
                so.add_session_config_entry(key, value)
            traced = {"enable_framework_op_trace": "1", "framework_op_trace_dir": str(trace)}
            so.add_provider_for_devices(self.devices, {**head["options"], **traced})
            try:
                session = self._session(model, so)
            except QnnRefusal as e:
                # A model of which nothing went to the NPU has no context, which is an error of its own.
                if "context" not in str(e).lower():
                    raise
                so.add_session_config_entry("ep.context_enable", "0")
                session = self._session(model, so)
            where = {
                node.name: [part.ep_name, node.op_type]
                for part in session.get_provider_graph_assignment_info()
                for node in part.get_nodes()
            }
            traces = [json.loads(p.read_text()) for p in sorted(trace.glob("*.json"))]
            binary = context.read_bytes() if context.exists() else b""
        self.sessions[head["id"]] = session
        refused = [u for t in traces for u in t.get("unsupported_nodes") or []]
        answer = {
            "where": where,
            "reasons": {u["node_name"]: u["reason"] for u in refused},
            "targets": [s["compilation_target"] for t in traces for s in t.get("soc_traces") or []],
            "hardware": self.hardware,
            "runtime": self.ort.__version__,
        }
        return answer, [binary]

    def _session(self, model: bytes, settings: Any) -> Any:
        try:
            return self.ort.InferenceSession(model, settings)
        except Exception as e:  # ONNX Runtime's errors have no class in common
            raise QnnRefusal(f"{type(e).__name__}: {e}") from e

    def run(self, head: dict[str, Any], blobs: list[bytes]) -> Message:
        feeds = dict(zip(head["inputs"], unpack(head["arrays"], b"".join(blobs), None), strict=True))
        session = self.sessions[head["id"]]
        try:
            results = session.run(head["outputs"], feeds)
        except Exception as e:
            raise QnnRefusal(f"{type(e).__name__}: {e}") from e
        rows, data = pack(results, None)
        return {"arrays": rows}, data


def serve() -> None:
    """Answer requests on standard input until it closes. Whatever libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    provider: Provider | None = None
    while (request := receive(sys.stdin.buffer)) is not None:
        head, blobs = request
        try:
            provider = provider or Provider()
            for gone in head["drop"]:
                provider.sessions.pop(gone, None)
            answer = provider.load(head, blobs[0]) if head["do"] == "load" else provider.run(head, blobs)
        except QnnRefusal as e:
            answer = ({"error": str(e), "refused": True}, [])
        except Exception as e:
            answer = ({"error": f"{type(e).__name__}: {e}"}, [])
        send(answers, *answer)


@final
class Worker:
    """The parent's end: one child, started on first use and closed at exit."""

    def __init__(self) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the child)
        self._lock = threading.Lock()
        self._owner = os.getpid()
        # The child finds the same packages, however the parent's path was made.
        code = f"import json,sys; sys.path[:]=json.loads(sys.argv[1]); from {__name__} import serve; serve()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        self.gone: list[int] = []
        atexit.register(self.close)

    @property
    def alive(self) -> bool:
        return self._owner == os.getpid() and self._process.poll() is None

    def ask(self, head: dict[str, Any], blobs: Sequence[bytes] = ()) -> Message:
        """One request and its answer.

        Raises:
            ExecutionError: the child answers with an error, or dies.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        with self._lock:
            drop, self.gone[:] = list(self.gone), []
            late = threading.Timer(tools.TIMEOUT, self._process.kill)
            late.daemon = True
            late.start()
            try:
                send(stdin, {**head, "drop": drop}, blobs)
                answer = receive(stdout)
            except BrokenPipeError:
                answer = None
            except (ValueError, RecursionError, MemoryError) as error:
                self._process.kill()
                raise ExecutionError(
                    "qnn: the process that runs Qualcomm's libraries gave no answer", got=error
                ) from error
            finally:
                hung = late.finished.is_set()
                late.cancel()
        if answer is None:
            last = f"it took longer than {tools.TIMEOUT:g} s" if hung else self.log()
            self.close()
            raise ExecutionError("qnn: the process that runs Qualcomm's libraries ended", got=last or "no message")
        if "error" in answer[0]:
            refused = answer[0].get("refused")
            what = "ONNX Runtime's QNN provider refused" if refused else "the provider was not reached"
            made = ExecutionError(f"qnn: {what}", got=answer[0]["error"])
            made.refused = bool(refused) and tools.refuses(str(made.got))
            raise made
        if lacking := [key for key in _SAID[head["do"]] if key not in answer[0]]:
            raise ExecutionError("qnn: the process that runs Qualcomm's libraries says too little", got=lacking)
        return answer

    def log(self) -> str:
        """The last lines that the child wrote to standard error."""
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - 2000))
        return self._log.read().decode(errors="replace").strip()

    def close(self) -> None:
        atexit.unregister(self.close)
        if self._owner != os.getpid():
            return
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()


_worker: Worker | None = None


def worker() -> Worker:
    """The child of this process, started again if it has died."""
    global _worker
    if _worker is None or not _worker.alive:
        _worker = Worker()
    return _worker


_ids = itertools.count(1)


@final
class QnnSession:
    """A compiled model in the child. If the child dies it is compiled again in the next one.

    Attributes:
        answer: where each ONNX node went, reasons, the targets compiled for, whether it runs on the chip.
        context: an ONNX file that holds the compiled binary; empty if nothing went to the NPU.
    """

    def __init__(self, model: bytes, options: dict[str, str], inputs: Sequence[str], outputs: Sequence[str]) -> None:
        self._model, self._options = model, options
        self._inputs, self._outputs = list(inputs), list(outputs)
        self._load()

    def _load(self) -> None:
        self._worker, self._id = worker(), next(_ids)
        request = {"do": "load", "id": self._id, "options": self._options}
        self.answer, blobs = self._worker.ask(request, [self._model])
        self.context = blobs[0] if blobs else b""
        weakref.finalize(self, self._worker.gone.append, self._id)

    def __call__(self, arrays: Sequence[NDArray]) -> list[NDArray]:
        if not self._worker.alive:
            self._load()
        rows, blobs = pack(arrays, None)
        request = {"do": "run", "id": self._id, "arrays": rows, "inputs": self._inputs, "outputs": self._outputs}
        answer, data = self._worker.ask(request, blobs)
        try:
            return unpack(answer["arrays"], b"".join(data), None)
        except WireError as error:
            raise ExecutionError("qnn: the results cannot be read", got=error) from error
