"""Run as a program of its own: serves a plug-in's functions over the socket whose number is in NXJAX_CHANNEL.

``python serve.py PLUGIN``, where PLUGIN is a module's name or a file. The module has ``connect(options)``, which gives
an object with ``prepare(form, payload, options, arrays)`` and ``run(handle, arrays)``, and perhaps ``describe()``,
``probe()`` and ``drop(handle)``. What it prints goes to the log of whoever started this. Knows nothing of nxjax: it
imports `wire`, which lies beside it, by its path, and so starts in the time that NumPy takes.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import select
import socket
import sys
import threading
from pathlib import Path
from typing import Any


def module(where: str) -> Any:
    """A module by name, or from a file."""
    if not where.endswith(".py"):
        return importlib.import_module(where)
    spec = importlib.util.spec_from_file_location(Path(where).stem, where)
    if spec is None or spec.loader is None:
        raise ImportError(f"{where} is not a Python file")
    made: Any = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made
    spec.loader.exec_module(made)
    return made


def end_with(parent: socket.socket) -> None:
    """End this process when the other side is gone, whatever the plug-in is doing."""

    def watch() -> None:
        poll = select.poll()
        poll.register(parent, select.POLLRDHUP)
        while not any(flags & (select.POLLRDHUP | select.POLLHUP) for _, flags in poll.poll()):
            pass
        os._exit(0)

    if hasattr(select, "POLLRDHUP"):
        threading.Thread(target=watch, daemon=True).start()


class Server:
    """Answers one request after another.

    Requests are ``open``, ``prepare``, ``run``, ``again`` (the shared memory for the results was too small), ``probe``
    and ``drop``; each has a number, ``seq``, which its answer repeats.
    """

    def __init__(self, wire: Any, channel: Any, where: str) -> None:
        self.wire, self.channel = wire, channel
        self.where = where
        self.plugin: Any = None
        self.handles: dict[int, Any] = {}
        self.arenas: dict[str, Any] = {}
        self.results: list[Any] = []

    def serve(self) -> None:
        self.channel.send({"hello": self.wire.PROTOCOL, "pid": os.getpid()})
        while True:
            try:
                head, body, fds = self.channel.receive()
            except self.wire.ConnectionClosed:
                return
            seq = head.get("seq")
            try:
                for (name, size), fd in zip(head.get("attach", ()), fds, strict=True):
                    if name in self.arenas:
                        self.arenas.pop(name).close()
                    self.arenas[name] = self.wire.SharedMemory(size, fd)
                answer, parts = self.answer(head, body)
            except Exception as error:
                own = bool(getattr(error, "program", False))
                answer, parts = {"error": f"{type(error).__name__}: {error}"[:4000], "program": own}, []
            self.channel.send({**answer, "seq": seq}, parts)

    def answer(self, head: dict[str, Any], body: bytes) -> tuple[dict[str, Any], list[bytes]]:
        do = head["do"]
        if do == "open":
            self.plugin = module(self.where).connect(head["options"])
            describe = getattr(self.plugin, "describe", None)
            return {"describe": {} if describe is None else describe()}, []
        if do == "prepare":
            payload, *arrays = self.wire.unpack(head["arrays"], body, self.arenas.get("in"))
            form, options = head["form"], head["options"]
            handle = self.handles[head["id"]] = self.plugin.prepare(form, payload.tobytes(), options, arrays)
            return {"info": getattr(handle, "info", {})}, [bytes(getattr(handle, "artifact", b""))]
        if do == "run":
            import numpy as np

            given = self.wire.unpack(head["arrays"], body, self.arenas.get("in"), own=False)
            self.results = [np.asarray(a) for a in self.plugin.run(self.handles[head["id"]], given)]
        if do in ("run", "again"):
            there = self.arenas.get("out")
            needed = self.wire.room(self.results)
            if needed > (0 if there is None else there.size):
                return {"needs": needed}, []
            rows, parts = self.wire.pack(self.results, there)
            self.results = []
            return {"arrays": rows}, parts
        if do == "probe":
            probe = getattr(self.plugin, "probe", None)
            return {"right": True if probe is None else bool(probe())}, []
        if do == "drop":
            gone = self.handles.pop(head["id"], None)
            drop = getattr(self.plugin, "drop", None)
            if gone is not None and drop is not None:
                drop(gone)
            return {}, []
        raise ValueError(f"no such request: {do}")


def main(where: str) -> None:
    wire = module(str(Path(__file__).with_name("wire.py")))
    sock = socket.socket(fileno=int(os.environ.pop("NXJAX_CHANNEL")))
    sock.set_inheritable(False)
    sys.path[:] = json.loads(os.environ.pop("NXJAX_PATH", "null")) or sys.path
    with contextlib.suppress(ImportError):
        importlib.import_module("ml_dtypes")  # its dtypes have names from now on
    end_with(sock)
    Server(wire, wire.Channel(sock), where).serve()


if __name__ == "__main__":
    main(sys.argv[1])
    # Destructors of what a plug-in has loaded have nothing to add.
    os._exit(0)
