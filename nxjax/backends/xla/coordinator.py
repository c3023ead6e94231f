"""The meeting point of several processes, in a process of its own: run as a script, it imports jaxlib only.

It stands apart so that no process that computes takes the others down: jaxlib ends whoever loses the coordinator. Its
life hangs on its standard input: a line ends it at once. Where the input ends without one, its parent died, and it
stays long enough for the others to notice.

    python coordinator.py ADDRESS PROCESSES HEARTBEAT SHUTDOWN
"""

from __future__ import annotations

import sys
import time


def main(address: str, processes: int, heartbeat: int, shutdown: int) -> None:
    """Serve until told otherwise; says ``ready`` on standard output."""
    from jaxlib import _jax  # type: ignore[import-not-found]

    jaxlib: object = _jax
    service = jaxlib.get_distributed_runtime_service(  # type: ignore[attr-defined]
        address, processes, heartbeat_timeout=heartbeat, shutdown_timeout=shutdown, recoverable=True
    )
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    if not sys.stdin.readline():
        time.sleep(2 * heartbeat + 10)
    service.shutdown()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]))
