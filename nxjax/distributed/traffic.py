"""`communication`: what each device sends in one run of a compiled program, read from its collectives.

Bytes are those of the ring algorithms (Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms, 2009): of S bytes
over n devices, an all-reduce sends 2 (n - 1) / n S from each, a gather or a scattered sum (n - 1) / n S. What a runtime
does may differ: figures of a network are to be measured. Knows the compiler's text alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, final

from nxjax.backends.tpu.hlo import HloModule, Instruction
from nxjax.display.columns import columns
from nxjax.errors import ParameterError

# Of a whole of S bytes over n devices: bytes that each sends, and the messages one after another.
_RING: Final[dict[str, tuple[Callable[[int], float], Callable[[int], int]]]] = {
    "all-reduce": (lambda n: 2 * (n - 1) / n, lambda n: 2 * (n - 1)),
    "all-gather": (lambda n: (n - 1) / n, lambda n: n - 1),
    "reduce-scatter": (lambda n: (n - 1) / n, lambda n: n - 1),
    "all-to-all": (lambda n: (n - 1) / n, lambda n: n - 1),
    "ragged-all-to-all": (lambda n: (n - 1) / n, lambda n: n - 1),
    "collective-permute": (lambda n: 1.0, lambda n: 1),
    "collective-broadcast": (lambda n: 1.0, lambda n: 1),
}
_LISTED: Final = re.compile(r"replica_groups=\{\{([\d,]*)\}")
_REGULAR: Final = re.compile(r"replica_groups=\[(\d+),(\d+)\]")
_TRIPS: Final = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')


@final
@dataclass(frozen=True)
class Collective:
    """One collective of a program.

    Attributes:
        kind: HLO's name: "all-reduce", ...
        dtypes: of what is sent, by HLO's names: "f32", "s8", ...
        size: bytes of the whole that is summed or gathered.
        devices: how many communicate with each other.
        times: how often it runs; loops of unknown length count once.
        sure: whether ``times`` is known.
    """

    kind: str
    dtypes: tuple[str, ...]
    size: int
    devices: int
    times: int = 1
    sure: bool = True

    @property
    def sent(self) -> float:
        """Bytes that each device sends in one run of the program."""
        return self.times * self.size * _RING[self.kind][0](self.devices)

    @property
    def steps(self) -> int:
        """Messages that each device sends one after another."""
        return self.times * _RING[self.kind][1](self.devices)


@final
@dataclass(frozen=True)
class Communication:
    """All collectives of a program, in the order of its text."""

    collectives: tuple[Collective, ...]

    @property
    def sent(self) -> int:
        """Bytes that each device sends in one run."""
        return round(sum(c.sent for c in self.collectives))

    @property
    def steps(self) -> int:
        """Messages that each device sends one after another."""
        return sum(c.steps for c in self.collectives)

    def seconds(self, bandwidth: float, latency: float = 0.0) -> float:
        """The shortest time of a run's communication: ``steps * latency + sent / bandwidth``.

        Args:
            bandwidth: bytes per second that a device sends.
            latency: seconds of an empty message.

        Raises:
            ParameterError: no bandwidth.
        """
        if not bandwidth > 0 or latency < 0:
            raise ParameterError(
                "communication: seconds", got=(bandwidth, latency), expected="bandwidth > 0, latency >= 0"
            )
        return self.steps * latency + self.sent / bandwidth

    def by_kind(self) -> dict[str, int]:
        """Bytes that each device sends, by kind and dtype: ``{"all-reduce f32": 1024}``."""
        found: dict[str, float] = {}
        for c in self.collectives:
            name = f"{c.kind} {'+'.join(c.dtypes)}"
            found[name] = found.get(name, 0.0) + c.sent
        return {k: round(v) for k, v in found.items()}

    def __str__(self) -> str:
        if not self.collectives:
            return "nothing is sent"
        rows = [("collective", "dtype", "devices", "times", "bytes", "sent by each")]
        for c in self.collectives:
            times = f"{c.times}" if c.sure else f"{c.times} or more"
            rows.append((c.kind, "+".join(c.dtypes), f"{c.devices}", times, f"{c.size:,}", f"{round(c.sent):,}"))
        rows.append(("", "", "", "", "", f"{self.sent:,}"))
        return "\n".join(columns(rows, right=range(2, 6)))

    __repr__ = __str__


def communication(compiled: Any) -> Communication:
    """What devices send each other in one run of a compiled program.

    Args:
        compiled: from ``nx.jit(f).lower(...).compile()``, for devices here or for a slice elsewhere; or its
            ``as_text()``. The compiler has added the collectives for shardings, and merged and widened some: the CPU's
            sums bfloat16 as float32.

    Raises:
        ParameterError: it has no such text. A program that nxjax compiled for one device sends nothing.

    >>> from nxjax.distributed import communication
    >>> text = '''
    ... ENTRY %main (a: f32[8]) -> f32[8] {
    ...   %a = f32[8]{0} parameter(0)
    ...   ROOT %s = f32[8]{0} all-reduce(%a), replica_groups={{0,1,2,3}}, to_apply=%add
    ... }'''
    >>> print(communication(text))
    collective  dtype  devices  times  bytes  sent by each
    all-reduce  f32          4      1     32            48
                                                        48
    """
    text = compiled if isinstance(compiled, str) else compiled.as_text()
    if "ENTRY" not in text:
        if "stablehlo" in text or "module @" in text:
            raise ParameterError(
                "communication: not compiled yet",
                got="StableHLO",
                fix="nx.jit(f).lower(...).compile() has the collectives",
            )
        return Communication(())
    module = HloModule(text)
    return Communication(tuple(_collectives(module, module.entry, 1, True, _devices(text))))


def _devices(text: str) -> int:
    """Of the whole program, for collectives that name no groups."""
    head = text[: text.find("\n\n")] if "\n\n" in text else text[:4000]
    counts = [int(n) for n in re.findall(r"(?:num_partitions|replica_count)=(\d+)", head)]
    return max(counts, default=1)


def _collectives(module: HloModule, name: str, times: int, sure: bool, every: int) -> Iterator[Collective]:
    for i in module.computations.get(name, ()):
        kind = i.opcode.removesuffix("-start")
        if kind in _RING:
            yield _collective(i, kind, times, sure, every)
        elif i.opcode == "while":
            trips = _TRIPS.search(i.attributes)
            for called in i.called:
                yield from _collectives(
                    module, called, times * int(trips[1]) if trips else times, sure and bool(trips), every
                )
        elif i.opcode != "fusion":
            for called in i.called:
                # One of several branches may not be taken.
                yield from _collectives(module, called, times, sure and i.opcode != "conditional", every)


def _collective(i: Instruction, kind: str, times: int, sure: bool, every: int) -> Collective:
    results = i.results
    if i.opcode.endswith("-start") and len(results) > 1 and kind != "all-reduce":
        # (operands, results, contexts): half of the arrays are results.
        arrays = [s for s in results if s.dims]
        results = tuple(arrays[len(arrays) // 2 :])
    listed, regular = _LISTED.search(i.attributes), _REGULAR.search(i.attributes)
    devices = len(listed[1].split(",")) if listed and listed[1] else int(regular[2]) if regular else every
    size = sum(s.logical for s in results) * (devices if kind == "reduce-scatter" else 1)
    dtypes = tuple(dict.fromkeys(s.dtype for s in results))
    return Collective(kind, dtypes, size, max(devices, 1), times, sure)
