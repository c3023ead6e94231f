"""What stands between jaxlib's client and the coordinator: bytes go through, a lost coordinator does not.

jaxlib ends the process (with a stack trace) as soon as its connection to the coordinator breaks. It is connected to a
thread of this process instead, which passes everything on; where the coordinator goes, that thread says so and keeps
jaxlib's end open, so that the program gets an error it can catch. Whoever else connects is turned away: the end of a
stranger's connection says nothing of the coordinator.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from collections.abc import Callable
from typing import final


@final
class Relay:
    """A port of the loopback that is the coordinator's.

    Attributes:
        address: what jaxlib connects to.
    """

    def __init__(self, host: str, port: int, lost: Callable[[str], None]) -> None:
        self._upstream = (host, port)
        self._lost = lost
        self._kept: list[socket.socket] = []  # never closed: jaxlib would notice
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        self._start(self._serve)

    def _start(self, target: Callable[..., None], *args: socket.socket) -> None:
        threading.Thread(target=target, args=args, name="nxjax-relay", daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                inner, (_, port) = self._server.accept()
            except OSError:
                return
            if not _is_own(port, self._server.getsockname()[1]):
                inner.close()
                continue
            self._kept.append(inner)
            try:
                outer = socket.create_connection(self._upstream, timeout=30)
            except OSError as error:
                self._lost(str(error))
                continue
            outer.settimeout(None)
            for one in (inner, outer):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._start(self._out, inner, outer)
            self._start(self._in, outer, inner)

    def _out(self, inner: socket.socket, outer: socket.socket) -> None:
        """What jaxlib says. It closes when it has left, and then the coordinator may know."""
        with contextlib.suppress(OSError):
            while data := inner.recv(1 << 16):
                outer.sendall(data)
            outer.shutdown(socket.SHUT_WR)

    def _in(self, outer: socket.socket, inner: socket.socket) -> None:
        """What the coordinator says."""
        reason = "the connection is closed"
        try:
            while data := outer.recv(1 << 16):
                inner.sendall(data)
        except OSError as error:
            reason = str(error)
        outer.close()
        self._lost(reason)


def _is_own(port: int, server: int) -> bool:
    """Whether a port of the loopback belongs to a socket of this process; yes where the system does not say.

    Args:
        server: a port that does. A system that does not list it has no list of use.
    """
    sockets: dict[str, set[str]] = {}
    for kind in ("tcp", "tcp6"):  # jaxlib's sockets are of the latter, for addresses of both
        with contextlib.suppress(OSError, ValueError), open(f"/proc/self/net/{kind}", encoding="ascii") as file:
            for row in (line.split() for line in file):
                if len(row) > 9:
                    sockets.setdefault(row[1][-13:], set()).add(f"socket:[{row[9]}]")
    loopback = f"{int.from_bytes(socket.inet_aton('127.0.0.1'), sys.byteorder):08X}"
    wanted = sockets.get(f"{loopback}:{port:04X}", set())
    if f"{loopback}:{server:04X}" not in sockets:
        return True
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}") in wanted:
                return True
    return False
