"""What the TPU compiler's answer says about a program: layouts and their waste, copies, loops, collectives, roofline.

Everything here is read from the compiler's optimized program and its statistics; `advice` turns it into sentences.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, final

from nxjax.backends.tpu import picture
from nxjax.backends.tpu.advice import advice
from nxjax.backends.tpu.chips import Topology
from nxjax.backends.tpu.compiler import CompiledModule, ModuleMemory
from nxjax.backends.tpu.hlo import FREE, HloModule, Instruction
from nxjax.backends.tpu.layout import Shape
from nxjax.backends.tpu.loops import BYTES, FLOPS, SECONDS, HloLoops
from nxjax.backends.tpu.perfetto import trace
from nxjax.backends.tpu.roofline import Roofline
from nxjax.config.forks import cached_property

COLLECTIVES: Final = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
# The largest of each kind that a report lists.
_MOST: Final = 8
_INTEGERS: Final = ("s8", "u8", "s4", "u4")


@final
@dataclass
class HloBuffer:
    """An argument or a result as it lies in a device's memory."""

    name: str
    shape: Shape

    @property
    def logical(self) -> int:
        """Bytes of its numbers alone."""
        return self.shape.logical

    @property
    def padded(self) -> int:
        """Bytes that it takes, after padding."""
        return self.shape.padded

    @property
    def waste(self) -> float:
        """Share of the bytes that holds nothing, 0 to 1."""
        return self.shape.waste

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name, "shape": list(self.shape.dims), "dtype": self.shape.dtype, "layout": self.shape.layout,
            "logical_bytes": self.logical, "padded_bytes": self.padded, "waste": self.waste,
        }  # fmt: skip


@final
@dataclass(frozen=True)
class HloInstruction:
    """An instruction that moves or computes something, with the bytes that it reads and writes in one run.

    ``times``: how often it runs, inside of loops whose turns are known; ``cycles`` are of each time.
    """

    name: str
    opcode: str
    bytes: int
    at: tuple[str, int] | None
    scope: str
    cycles: int
    rank: int
    times: int = 1

    def __str__(self) -> str:
        where = f" at {_short(self.at)}" if self.at else ""
        scope = f" [{self.scope}]" if self.scope else ""
        cycles = f", {self.cycles:,} cycles (compiler's estimate)" if self.cycles else ""
        times = f" in {self.times:,} turns" if self.times > 1 else ""
        return f"{self.name} ({self.opcode}){scope}: {self.bytes:,} bytes{times}{cycles}{where}"


@final
@dataclass
class TpuAnalysis:
    """The compiler's answer about one program, per device.

    Attributes:
        topology: what it was compiled for.
        compiled: the executable, its text and its statistics.
        partitions: devices that the program is spread over.
        arguments, results: as they lie in memory.
        image_layouts: of the program's convolutions that have their channels elsewhere than last: the user's line and
            the order of dimensions, such as "NCHW".
        loops_written: loops of the program itself.
        advice: what to write instead, in sentences.
    """

    topology: Topology
    compiled: CompiledModule
    partitions: int
    module: HloModule = field(repr=False)
    arguments: list[HloBuffer] = field(default_factory=list[HloBuffer])
    results: list[HloBuffer] = field(default_factory=list[HloBuffer])
    image_layouts: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    loops_written: int = 0
    advice: list[str] = field(default_factory=list[str])

    @property
    def hlo(self) -> str:
        """The program after optimization, as the compiler prints it."""
        return self.compiled.hlo

    @property
    def memory(self) -> ModuleMemory:
        """Bytes on one device, after padding."""
        return self.compiled.memory

    @property
    def logical_arguments(self) -> int:
        """Bytes of the arguments' numbers alone."""
        return sum(b.logical for b in self.arguments)

    @property
    def logical_results(self) -> int:
        """Bytes of the results' numbers alone."""
        return sum(b.logical for b in self.results)

    @property
    def optimal_seconds(self) -> float | None:
        """The compiler's static estimate of one run; None where it has none for some part (it counts that below 0).

        It counts the body of a loop once; here the body's share is multiplied by the loop's turns, where they are
        known.
        """
        found = self.counts.get(SECONDS, 0.0)
        return found if found > 0 else None

    @cached_property
    def turns(self) -> HloLoops:
        """How often loops go round, and computations run."""
        return HloLoops(self.module)

    @cached_property
    def counts(self) -> dict[str, float]:
        """The compiler's counts of one run, with the turns of its loops. What it says itself is ``compiled.cost``."""
        g = self.topology.generation
        return self.turns.totals(self.compiled.cost, g.peak(False), g.bandwidth / g.cores)

    @cached_property
    def products(self) -> dict[str, int]:
        """How many matrix products and convolutions there are of each dtype of operands."""
        found: Counter[str] = Counter()
        for body in self.module.computations.values():
            known = {i.name: i for i in body}
            for i in body:
                if i.opcode in ("dot", "convolution"):
                    kinds = [known[o].results[0].dtype for o in i.operands if o in known and known[o].results]
                    found["x".join(dict.fromkeys(kinds))] += 1
        return dict(found)

    @property
    def integer_products(self) -> int:
        """How many of them multiply 8-bit (or 4-bit) integers."""
        return sum(n for kind, n in self.products.items() if all(k in _INTEGERS for k in kind.split("x")))

    @cached_property
    def copies(self) -> list[HloInstruction]:
        """Copies into another layout and transpositions that run on their own, the largest first."""
        return self._pieces(i for i in self.module.scheduled() if self._moves(i))

    def _moves(self, i: Instruction) -> bool:
        if i.opcode not in ("copy", "transpose") or not i.results or not i.results[0].dims:
            return False
        if i.opcode == "transpose":
            return True
        # Of a copy from one memory to another nothing is to be gained by writing the program otherwise.
        given = next((self._shapes[o] for o in i.operands if o in self._shapes), ())
        return not given or (given[0].order, given[0].tiles) != (i.results[0].order, i.results[0].tiles)

    @cached_property
    def loops(self) -> list[HloInstruction]:
        """Loops of the optimized program."""
        return self._pieces(i for i in self.module.scheduled() if i.opcode == "while")

    @cached_property
    def custom_calls(self) -> dict[str, int]:
        """How often each of the compiler's own kernels is called."""
        called = (i.target for i in self.module.everything() if i.opcode == "custom-call")
        return dict(Counter(filter(None, called)))

    @cached_property
    def collectives(self) -> dict[str, tuple[int, int]]:
        """Communication that was inserted: name -> (how often in one run, bytes of the results on one device)."""
        found: dict[str, tuple[int, int]] = {}
        for i in self.module.everything():
            name = i.opcode.removesuffix("-start")
            if name in COLLECTIVES:
                count, size = found.get(name, (0, 0))
                times = max(self.turns.times[self._places[i.name]], 1)
                found[name] = count + times, size + times * max((s.padded for s in i.results), default=0)
        return found

    @cached_property
    def top(self) -> list[HloInstruction]:
        """Instructions by the bytes that they read and write, the largest first."""
        return self._pieces(i for i in self.module.scheduled() if i.opcode not in FREE)

    def _pieces(self, found: Iterable[Instruction]) -> list[HloInstruction]:
        places, times = self._places, self.turns.times
        pieces = [
            HloInstruction(
                i.name, i.opcode, self._moved(i) * max(times[places[i.name]], 1), i.at, i.scope, i.cycles,
                max((len(s.dims) for s in i.results), default=0), times[places[i.name]],
            )
            for i in found
        ]  # fmt: skip
        return sorted(pieces, key=lambda p: -p.bytes)

    @cached_property
    def _shapes(self) -> dict[str, tuple[Shape, ...]]:
        # Names are unique in a module.
        return {i.name: i.results for i in self.module.everything()}

    def _moved(self, i: Instruction) -> int:
        # What a loop carries, since its inside is counted by itself.
        return i.bytes if i.opcode == "while" else self.turns.traffic(i, self._places[i.name])

    @cached_property
    def _places(self) -> dict[str, str]:
        """The computation that each instruction is of."""
        return {i.name: c for c, body in self.module.computations.items() for i in body}

    @cached_property
    def roofline(self) -> Roofline:
        """The published peaks of the chip beside the compiler's counts."""
        whole = sum(self.products.values())
        return Roofline(
            self.topology.generation, bool(whole) and 2 * self.integer_products > whole, self.counts.get(FLOPS, 0.0),
            self.counts.get(BYTES, 0.0), self.optimal_seconds,
        )  # fmt: skip

    def named(self, arguments: Sequence[str], results: Sequence[str]) -> None:
        """Call the buffers, and what the advice says of them, by names of the user's own."""
        for buffers, names in ((self.arguments, arguments), (self.results, results)):
            if len(buffers) == len(names):
                for b, name in zip(buffers, names, strict=True):
                    b.name = name
        self.advise()

    def advise(self) -> None:
        """Write the advice again."""
        self.advice = advice(self)

    def lines(self) -> list[str]:
        """What a report says of it."""
        m = self.memory
        found = [
            f"memory of one device, after padding: arguments {m.arguments:,} bytes ({self.logical_arguments:,} of "
            f"numbers), results {m.results:,} ({self.logical_results:,}), temporaries {m.temporaries:,}, code "
            f"{m.code:,}, aliased {m.aliased:,}; {m.total / self._hbm:.2%} of its HBM",
        ]
        if self.partitions > 1:
            found.append(f"spread over {self.partitions} devices of {self.topology}")
        inserted = [f"{n} {name} ({size:,} bytes)" for name, (n, size) in sorted(self.collectives.items())]
        if inserted:
            found.append("communication inserted by the compiler: " + ", ".join(inserted))
        if self.products:
            found.append("products: " + ", ".join(f"{n} of {kind}" for kind, n in sorted(self.products.items())))
        found += ["", "layout:", *_table(self.arguments + self.results)]
        if self.copies:
            total = sum(p.bytes for p in self.copies)
            found += ["", f"copies and transpositions inserted: {len(self.copies)}, {total:,} bytes read and written"]
            found += [f"  {p}" for p in self.copies[:_MOST]]
        if self.loops:
            found += ["", f"loops: {len(self.loops)}", *(f"  {p}" for p in self.loops[:_MOST])]
            found += [f"  {line}" for line in self.counted()]
        if self.custom_calls:
            called = ", ".join(f"{name} x{n}" for name, n in sorted(self.custom_calls.items()))
            found += ["", f"custom calls: {called}"]
        if self.top:
            found += ["", "largest by bytes read and written:", *(f"  {p}" for p in self.top[:_MOST])]
        found += ["", *self.roofline.lines()]
        if self.advice:
            found += ["", "advice:", *(f"  - {a}" for a in self.advice)]
        return found

    @property
    def open_loops(self) -> list[str]:
        """The loops whose number of turns is not known: a run's work and time are unknown then."""
        return [_named(x.instruction) for x in self.turns.found if x.turns is None]

    def counted(self) -> list[str]:
        """What the figures take of the loops."""
        known = [f"{_named(x.instruction)}: {x.turns:,}" for x in self.turns.found if x.turns is not None]
        found: list[str] = []
        if known:
            found.append(
                "the compiler counts the body of a loop once; FLOP, bytes and times here are its counts times the "
                f"turns: {'; '.join(known[:_MOST])}"
            )
        if self.open_loops:
            found.append(
                f"loops of unknown length are counted once: {'; '.join(self.open_loops[:_MOST])}; so the time, FLOP "
                "and bytes of a run are unknown"
            )
        return found

    @property
    def _hbm(self) -> float:
        g = self.topology.generation
        return g.hbm / g.cores

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        m = self.memory
        return {
            "topology": str(self.topology),
            "partitions": self.partitions,
            "memory": {
                "arguments": m.arguments, "results": m.results, "temporaries": m.temporaries, "code": m.code,
                "aliased": m.aliased, "peak": m.peak, "logical_arguments": self.logical_arguments,
                "logical_results": self.logical_results,
            },
            "arguments": [b.to_dict() for b in self.arguments],
            "results": [b.to_dict() for b in self.results],
            "copies": [str(p) for p in self.copies],
            "loops": [str(p) for p in self.loops],
            "turns": {x.instruction.name: x.turns for x in self.turns.found},
            "custom_calls": self.custom_calls,
            "collectives": {k: {"count": n, "bytes": b} for k, (n, b) in self.collectives.items()},
            "products": self.products,
            "roofline": self.roofline.to_dict(),
            "advice": list(self.advice),
        }  # fmt: skip

    def svg(self) -> str:
        """The layout of the largest arguments and results in tiles, and the roofline, as an SVG drawing."""
        largest = sorted(self.arguments + self.results, key=lambda b: -b.padded)[:6]
        return picture.together(picture.layouts(largest), self.roofline.svg())

    def trace(self) -> str:
        """The instructions by the compiler's estimate of their cycles, as Perfetto's JSON."""
        return trace(self.module, self.topology)

    def __repr__(self) -> str:
        return "\n".join(self.lines())


def analysed(topology: Topology, compiled: CompiledModule, partitions: int) -> TpuAnalysis:
    """The analysis of what the compiler made of one program."""
    module = HloModule(compiled.hlo)
    named = lambda kind, found: [HloBuffer(f"{kind} {i}", s) for i, s in enumerate(found)]
    return TpuAnalysis(
        topology, compiled, partitions, module, named("argument", module.arguments), named("result", module.results)
    )


def _table(buffers: Sequence[HloBuffer]) -> list[str]:
    shown = sorted(buffers, key=lambda b: b.logical - b.padded)[:12]
    shown = [b for b in buffers if b in shown]
    head = ("", "type", "layout", "bytes", "of numbers", "filled up")
    rows = [(b.name, b.shape.type, b.shape.layout, f"{b.padded:,}", f"{b.logical:,}", f"{b.waste:.1%}") for b in shown]
    widths = [max(len(r[i]) for r in (head, *rows)) for i in range(len(head))]
    line = lambda r: "  " + "  ".join(c.rjust(w) if i > 2 else c.ljust(w) for i, (c, w) in enumerate(zip(r, widths)))
    more = [f"  and {len(buffers) - len(shown)} more, which waste less"] if len(shown) < len(buffers) else []
    return [line(head).rstrip(), *(line(r).rstrip() for r in rows), *more]


def _named(i: Instruction) -> str:
    return f"{i.scope or i.name}{f' at {_short(i.at)}' if i.at else ''}"


def _short(at: tuple[str, int]) -> str:
    file, line = at
    return f"{file.replace(chr(92), '/').rsplit('/', 1)[-1]}:{line}"
