"""Several processes, on one machine or many, as one: they see each other's devices and compute together."""

from __future__ import annotations

import ipaddress
import os
from typing import Any, Final

from nxjax.errors import ParameterError

_SHUTDOWN: Final[list[float]] = [60.0]


def _given(value: Any, *names: str) -> Any:
    """The argument, else the first of the environment's variables."""
    if value is not None:
        return value
    return next((os.environ[n] for n in names if os.environ.get(n)), None)


def _number(what: str, value: Any, low: int) -> int:
    try:
        found = int(value)
    except (TypeError, ValueError):
        found = low - 1
    if isinstance(value, bool) or found < low or (isinstance(value, float) and value != found):
        raise ParameterError(
            f"distributed.initialize: {what}", got=repr(value), expected=f"an integer, at least {low}"
        ) from None
    return found


def _is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def initialize(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    local_device_ids: Any = None,
    cluster_detection_method: str | None = None,
    initialization_timeout: int = 300,
    heartbeat_timeout_seconds: int = 30,
    shutdown_timeout_seconds: int = 60,
    coordinator_bind_address: str | None = None,
    *,
    coordinator_secret: str | None = None,
    collective_timeout_seconds: int = 1800,
    cpu_collectives: str = "gloo",
    slice_index: Any = None,
    partition_index: Any = None,
) -> None:
    """Join other processes. Each process must call it before it uses any device.

    Afterwards `nx.devices` lists the devices of all processes, `nx.local_devices` those of this one, and a jitted call
    on arrays over several of them is one computation, which every process must call.

    Args:
        coordinator_address: ``host:port`` of process 0; ``NXJAX_COORDINATOR_ADDRESS``.
        num_processes: the number of processes; ``NXJAX_NUM_PROCESSES``.
        process_id: of this process, from 0; ``NXJAX_PROCESS_ID``. Variables of these names with ``JAX_`` work, too.
        local_device_ids, cluster_detection_method, slice_index, partition_index: accepted for JAX programs; without
            effect here.
        initialization_timeout: seconds to wait for all processes.
        heartbeat_timeout_seconds: seconds after which a silent process counts as lost. The others then get a
            `ProcessLostError` when they wait for it.
        shutdown_timeout_seconds: seconds that a process waits for the others when it ends.
        coordinator_bind_address: the address that process 0 listens at, if it is not the coordinator's address:
            ``0.0.0.0:port`` for all addresses of its machine; ``NXJAX_COORDINATOR_BIND_ADDRESS``.
        coordinator_secret: a secret text of 16 letters or more, the same in all processes. Each proves that it knows
            it. ``NXJAX_COORDINATOR_SECRET``, which `nxjax.launch` sets. Optional if the coordinator only listens at
            this machine's loopback.
        collective_timeout_seconds: how long a computation may wait for a process that lives but does not join; then it
            is a `ProcessLostError`.
        cpu_collectives: ``"gloo"`` (over TCP), or ``"mpi"``.

    Raises:
        ParameterError: a number is missing or wrong.
        ExecutionError: devices were used before, or not all processes joined in time.
    """
    from nxjax.backends.xla import distributed

    address = _given(coordinator_address, "NXJAX_COORDINATOR_ADDRESS", "JAX_COORDINATOR_ADDRESS")
    count = _given(num_processes, "NXJAX_NUM_PROCESSES", "JAX_NUM_PROCESSES")
    number = _given(process_id, "NXJAX_PROCESS_ID", "JAX_PROCESS_ID")
    missing = [
        name
        for name, value in (("coordinator_address", address), ("num_processes", count), ("process_id", number))
        if value is None
    ]
    if missing:
        raise ParameterError(
            f"distributed.initialize: {' and '.join(missing)} not given",
            expected="arguments, or the variables NXJAX_COORDINATOR_ADDRESS, NXJAX_NUM_PROCESSES and NXJAX_PROCESS_ID",
        )
    host, colon, port = str(address).rpartition(":")
    if not colon or not host or not port.isdigit():
        raise ParameterError("distributed.initialize: coordinator_address", got=repr(address), expected="host:port")
    count, number = _number("num_processes", count, 1), _number("process_id", number, 0)
    if number >= count:
        raise ParameterError(
            "distributed.initialize: process_id", got=f"{number} of {count} processes", expected=f"0 to {count - 1}"
        )
    bind_address = str(_given(coordinator_bind_address, "NXJAX_COORDINATOR_BIND_ADDRESS") or address)
    secret = str(_given(coordinator_secret, "NXJAX_COORDINATOR_SECRET") or "")
    if len(secret) < 16 and (secret or not (_is_loopback(str(address)) and _is_loopback(bind_address))):
        raise ParameterError(
            "distributed.initialize: coordinator_secret",
            got=f"{len(secret)} letters" if secret else f"none, for a coordinator at {address}",
            expected="at least 16 letters, the same in all processes, where other machines can reach the coordinator",
            fix="make one with `openssl rand -hex 16` and set NXJAX_COORDINATOR_SECRET to it for all processes",
        )
    _SHUTDOWN[0] = shutdown_timeout_seconds
    distributed.join(
        str(address),
        count,
        number,
        bind_address=bind_address,
        secret=secret,
        initialization_timeout=_number("initialization_timeout", initialization_timeout, 1),
        heartbeat_timeout=_number("heartbeat_timeout_seconds", heartbeat_timeout_seconds, 1),
        shutdown_timeout=_number("shutdown_timeout_seconds", shutdown_timeout_seconds, 1),
        collective_timeout=_number("collective_timeout_seconds", collective_timeout_seconds, 1),
        collectives=cpu_collectives,
    )


def shutdown() -> None:
    """Leave the other processes when all have called it. The end of the program does the same."""
    from nxjax.backends.xla import distributed

    distributed.leave(_SHUTDOWN[0])


def is_initialized() -> bool:
    """Whether `initialize` has been called in this process, and `shutdown` has not.

    >>> is_initialized()
    False
    """
    from nxjax.backends.xla import distributed

    return distributed.group() is not None


def barrier(name: str, timeout_seconds: float | None = None) -> None:
    """Wait until every process gets here.

    Args:
        name: of the barrier, the same in all processes.
        timeout_seconds: how long to wait; by default as long as all processes live.

    Raises:
        ProcessLostError: another process is gone.
        ExecutionError: the time is over, or another process waits at another barrier.
    """
    from nxjax.backends.xla import distributed

    group = distributed.group()
    if group is not None and group.processes > 1:
        group.barrier(name, timeout_seconds)


def check_peers() -> None:
    """Raise a `ProcessLostError` if another process is known to be gone. It takes no time.

    >>> check_peers()
    """
    from nxjax.backends.xla import distributed

    group = distributed.group()
    if group is not None:
        group.check("check_peers")
