"""One traced type signature of a jitted function, and how its calls run.

A call on concrete arrays is direct (nothing was put anywhere), at a place, or watched while somebody debugs. Direct
calls settle once how they run: what depends on closed-over arrays alone is computed before the second one. Knows no
signature of Python's and no options; those are `jit_arguments`' and `jit_options`'.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, final

from nxjax.config import current_settings
from nxjax.config.named_tuple import NamedTuple
from nxjax.trace.array import DeviceArray, copied, donate_arguments, place_of
from nxjax.trace.axes import axes_in_scope
from nxjax.trace.boundary import api_boundary
from nxjax.trace.core import Arrays, Tracer, current_trace, current_watcher
from nxjax.trace.mesh import current_mesh
from nxjax.trace.shortcuts import is_allowed
from nxjax.transforms import retrace
from nxjax.transforms.jit_stages import ExecutableProtocol, Repeated, Traced, current_compiler
from nxjax.transforms.jit_trace import TracedCall

# The numbers of calls at which an executor learns how often its program runs: 2, 3, then powers of 4.
_SHORTCUT_CALLS: Final = frozenset((2, 3, *(4**n for n in range(2, 16))))
# Bytes of consts from which on they are prepared before the first call.
_LARGE: Final = 1 << 20


class _Prepared(NamedTuple):
    """How calls run.

    Attributes:
        executable, leading: what runs, and the arrays that it takes before the arguments.
        donate: which of all are gone after a call.
        final: whether further calls run like this.
    """

    executable: ExecutableProtocol
    leading: Sequence[Any]
    donate: tuple[int, ...]
    final: bool


@final
class Entry:
    """One traced type signature, and how it runs once that was needed."""

    __slots__ = (
        "by_placement", "calls", "captures_tracers", "consts", "direct", "donate", "flat", "hoisted", "out_tree",
        "prepared", "record", "state", "traced", "types",
    )  # fmt: skip

    def __init__(self, traced: Traced, call: TracedCall) -> None:
        self.traced = traced
        self.types = list(call.types)
        self.state = call.state
        self.calls = 0
        self.hoisted, consts = traced.program.hoist_consts()
        # Its own: what a function closes over lives on when the array is deleted, or donated to the function itself.
        self.consts = tuple(map(copied, consts))
        self.out_tree = traced.out_tree
        self.donate = tuple(i + len(self.consts) for i in traced.donate)
        # What `retrace` knows of this signature.
        self.record: retrace.TraceRecord | None = None
        # How direct calls run, once they did.
        self.prepared: _Prepared | None = None
        # A function that closes over tracers of a surrounding trace is good for that trace only.
        self.captures_tracers = any(isinstance(c, Tracer) for c in self.consts)
        self.by_placement: dict[Any, ExecutableProtocol] = {}
        placed = bool(traced.asked) or any(place_of(c) is not None for c in self.consts)
        # Whether a call with arguments that are nowhere in particular is one on the default device.
        self.direct = not (self.captures_tracers or placed or current_compiler().is_placed(self.hoisted, traced.device))
        # Whether calls of arrays by position may be known by their types alone.
        self.flat = (
            is_allowed("recent entry")
            and current_settings().mode is None
            and self.direct
            and call.statics is None
            and not call.kwargs
            and len(call.args) == len(call.types) == call.in_tree.num_nodes - 3
        )

    def run(self, values: list[Any], device: Any) -> list[DeviceArray]:
        """The results for arguments that are nowhere in particular."""
        prepared = self.prepared
        if prepared is None or (self.calls and not prepared.final):
            prepared = self.prepared = self._prepare(device)
        inputs: list[Any] = [*prepared.leading, *values] if prepared.leading else values
        if prepared.donate:
            inputs = donate_arguments(inputs, prepared.donate)
        out = prepared.executable(inputs)
        self.calls += 1
        return out

    def ready(self, device: Any) -> None:
        """Compile for direct calls, if no call has."""
        if self.prepared is None and self.direct:
            self.prepared = self._prepare(device)

    def _prepare(self, device: Any) -> _Prepared:
        """How the next call runs. From the second on, what depends on consts alone was done before; where they are
        large, such as a network's weights, from the first on, so that one program is compiled and not two."""
        if not self.calls:
            self.traced.check_donated()
        bound = self.calls > 0 or sum(x.size * x.dtype.itemsize for x in self.consts) >= _LARGE
        with retrace.time_compilation(self.record):
            executable = current_compiler().compile(self.hoisted, device=device, donate=self.donate)
            may = bound and self.consts and is_allowed("held arguments")
            held = executable.bind_leading(self.consts) if may else None
            (executable if held is None else held[0]).ready()
        if held is None:
            return _Prepared(executable, self.consts, self.donate, final=bound or not self.consts)
        shift = len(held[1]) - len(self.consts)
        return _Prepared(*held, tuple(i + shift for i in self.donate), final=True)

    def _placed_executable(self, inputs: Sequence[Any]) -> ExecutableProtocol:
        """The executable for where these arguments were put."""
        key = tuple(map(place_of, inputs))
        found = self.by_placement.get(key)
        if found is None:
            placement = self.traced.place(key)
            self.traced.check_donated()
            with retrace.time_compilation(self.record):
                found = self.by_placement[key] = current_compiler().compile_placed(self.hoisted, placement, self.donate)
        return found

    def offer_shortcut(
        self,
        jitted: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        leaves: Sequence[Any],
        statics: frozenset[Any] = frozenset(),
    ) -> None:
        """Now and then: let the executor know of a repeated call, which it may answer before it gets here."""
        if self.calls not in _SHORTCUT_CALLS or not is_allowed("plan"):
            return
        prepared = self.prepared
        assert prepared is not None
        prepared.executable.shortcut(
            jitted,
            Repeated(
                args=args,
                kwargs=kwargs,
                statics=statics,
                leaves=leaves,
                types=self.types,
                in_tree=self.traced.in_tree,
                consts=prepared.leading,
                donate=prepared.donate,
                out_tree=self.out_tree,
                out_types=self.traced.program.out_types,
            ),
        )

    @api_boundary
    def run_watched(self, values: list[Any], device: Any, name: str) -> Arrays:
        """The results, while somebody looks at everything that runs; arguments live until they have."""
        watcher, inputs = current_watcher(), list[Any]([*self.consts, *values])
        assert watcher is not None
        if self.direct and are_uncommitted(values):
            executable = current_compiler().compile(self.hoisted, device=device)
        else:
            key = tuple(map(place_of, inputs))
            executable = current_compiler().compile_placed(self.hoisted, self.traced.place(key))
        names = self.traced.asked.names or [f"argument {i}" for i in range(len(values))]
        out = watcher.call(self.hoisted, inputs, lambda: executable(inputs), name, names)
        donate_arguments(inputs, self.donate)
        return out

    @api_boundary
    def run_placed(self, values: Sequence[Any]) -> Arrays:
        """The results where the arguments were put, or the function was told to run."""
        inputs: list[Any] = [*self.consts, *values]
        executable = self._placed_executable(inputs)
        return executable(donate_arguments(inputs, self.donate) if self.donate else inputs)

    def is_valid(self) -> bool:
        """True when every borrowed tracer belongs to a trace we are in."""
        around = current_trace().ancestors()
        return all(c.owner in around for c in self.consts if isinstance(c, Tracer))


def are_uncommitted(values: Arrays) -> bool:
    """Whether all are concrete and nowhere in particular."""
    for x in values:  # noqa: SIM110 (`all` takes twice the time)
        if type(x) is not DeviceArray or x.place is not None:
            return False
    return True


def trace_context() -> Any:
    """What a program depends on besides its arguments."""
    return axes_in_scope(), current_mesh(), current_settings().call
