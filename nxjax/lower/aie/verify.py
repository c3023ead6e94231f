"""Checks a design, as it was read back from its text, against the limits of the array.

What is checked without running it: tiles and what stands there, memory, buffer descriptors, locks and DMA channels, the
ends and element types of fifos and links, what cores acquire and release on every way through their loops, copies'
dimensions, alignment and bounds. Deadlocks and left-over objects are found by running it
(`vendors.amd.aie.model.run`). Counts are those of mlir-aie's lowering of object fifos: at each end with memory, as
many BDs as objects and a pair of locks; a link shares its buffers. Every refusal names the thing and the limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, NoReturn, final

from nxjax.errors import NxError, ProgramError
from nxjax.kernels.aie.chip import FOREVER, ITERATIONS, LIMITS, of_device
from nxjax.kernels.aie.spec import named
from nxjax.lower.aie.design import (
    AcquireOp,
    CallOp,
    CoreOp,
    Design,
    Dimensions,
    DmaMemcpyOp,
    DmaWaitOp,
    ForOp,
    ObjectFifoOp,
    Port,
    ReleaseOp,
    Statement,
    TileOp,
    statements,
)  # fmt: skip

_WORD: Final = 4
# Bytes of a core's stack: the default of `aie.core`.
LEAST_STACK: Final = 1024


def verify(design: Design) -> Design:
    """The design itself, if it holds every limit.

    Raises:
        ProgramError: the first limit that does not hold.

    >>> from nxjax.kernels.aie.chip import NPU1
    >>> from nxjax.lower.aie.build import matmul_design
    >>> from nxjax.lower.aie.plan import MatmulProblem
    >>> from nxjax.lower.aie.planner import matmul_plan
    >>> verify(matmul_design(matmul_plan(MatmulProblem(64, 64, 64), NPU1, columns=1))).device
    'npu1_1col'
    """
    _Check(design).all()
    return design


@final
class _Check:
    def __init__(self, design: Design) -> None:
        self.design = design
        self.array, self.columns = of_device(design.device)
        self.tiles = {t.name: t for t in design.tiles}
        self.fifos = {f.name: f for f in design.fifos}
        self.incoming = {s: link for link in design.links for s in link.sources}
        self.outgoing = {t: link for link in design.links for t in link.targets}

    def refuse(self, what: str, name: str, got: object, expected: object = None) -> NoReturn:
        line = self.design.line(name)
        where = f", line {line}" if line else ""
        raise ProgramError(f"AIE design{where}: {what}", got=got, expected=expected)

    def all(self) -> None:
        self.check_tiles()
        self.check_fifos()
        self.check_links()
        self.check_channels()
        self.check_resources()
        self.check_functions()
        self.check_cores()
        self.check_sequence()

    # --- tiles and fifos ---

    def check_tiles(self) -> None:
        seen: dict[tuple[int, int], str] = {}
        for t in self.design.tiles:
            if not (0 <= t.column < self.columns and 0 <= t.row < 6):
                self.refuse(
                    f"%{t.name} is not on {self.design.device}", t.name, (t.column, t.row),
                    f"columns 0 to {self.columns - 1}, rows 0 to 5",
                )  # fmt: skip
            if (t.column, t.row) in seen:
                self.refuse(f"%{t.name} and %{seen[t.column, t.row]} are one tile", t.name, (t.column, t.row))
            seen[t.column, t.row] = t.name
        for b in self.design.buffers:
            if self.tiles[b.tile].kind == "shim":
                self.refuse(f"%{b.name}: a shim has no memory for buffers", b.name, b.tile)

    def check_fifos(self) -> None:
        for f in self.design.fifos:
            ends = [self.tiles[t].kind for t in (f.producer, *f.consumers)]
            if not f.consumers or f.depth < 1:
                self.refuse(f"@{f.name}: a fifo needs a consumer and a depth", f.name, f"{ends[1:]}, {f.depth}")
            if len({f.producer, *f.consumers}) != len(f.consumers) + 1:
                self.refuse(f"@{f.name} goes to a tile twice", f.name, (f.producer, *f.consumers))
            if "shim" in ends[1:] and (len(f.consumers) > 1 or ends[0] == "shim"):
                self.refuse(f"@{f.name}: to a shim a fifo goes alone, from a memory tile or core", f.name, ends)
            if f.type.nbytes % _WORD:
                self.refuse(f"@{f.name}: an object is not of whole 32-bit words", f.name, f"{f.type.nbytes} bytes")
            if f.to_stream:
                self.check_dimensions(f, f.to_stream)

    def check_dimensions(self, f: ObjectFifoOp, dimensions: Dimensions) -> None:
        limits, width = LIMITS[self.tiles[f.producer].kind], f.type.dtype.itemsize
        if self.tiles[f.producer].kind == "shim":
            self.refuse(f"@{f.name}: a shim's order is the copies', not the fifo's", f.name, dimensions)
        if len(dimensions) > limits.dimensions:
            kind = self.tiles[f.producer].kind
            self.refuse(f"@{f.name}: more dimensions than a {kind} tile's BDs have", f.name, len(dimensions),
                        limits.dimensions)  # fmt: skip
        count, last = 1, 0
        for size, stride in dimensions:
            if size < 1 or stride < 1:
                self.refuse(f"@{f.name}: a size or stride that is not positive", f.name, (size, stride))
            count, last = count * size, last + (size - 1) * stride
        if count != f.type.size or last >= f.type.size:
            self.refuse(f"@{f.name}: its dimensions do not go through an object once", f.name,
                        f"{count} elements up to {last}", f"{f.type.size} elements")  # fmt: skip
        *outer, inner = dimensions
        if inner[1] != 1 or inner[0] * width % _WORD or any(s * width % _WORD for n, s in outer if n > 1):
            self.refuse(f"@{f.name}: a dimension is not of whole 32-bit words", f.name, dimensions)
        if inner[0] * width // _WORD >= 1 << limits.wrap_bits or any(n >= 1 << limits.wrap_bits for n, _ in outer[1:]):
            self.refuse(f"@{f.name}: a size that a BD does not hold", f.name, dimensions,
                        f"at most {(1 << limits.wrap_bits) - 1}")  # fmt: skip
        if any(s * width // _WORD > 1 << limits.step_bits for _, s in outer):
            self.refuse(f"@{f.name}: a stride that a BD does not hold", f.name, dimensions,
                        f"at most {1 << limits.step_bits} words")  # fmt: skip

    def check_links(self) -> None:
        for link in self.design.links:
            name = link.sources[0] if link.sources else "?"
            if not link.sources or not link.targets or min(len(link.sources), len(link.targets)) != 1:
                self.refuse("a link has one fifo on one side", name, f"{link.sources} -> {link.targets}")
            ins, outs = [self.fifos[n] for n in link.sources], [self.fifos[n] for n in link.targets]
            tile = outs[0].producer
            if any(f.consumers != (tile,) for f in ins) or any(f.producer != tile for f in outs):
                self.refuse(f"the link of @{name} is not through one tile", name, f"{link.sources} -> {link.targets}")
            if self.tiles[tile].kind == "shim":
                self.refuse(f"the link of @{name} is through a shim", name, tile)
            for n in (*link.sources, *link.targets):
                owner = self.incoming if n in link.sources else self.outgoing
                if owner[n] is not link:
                    self.refuse(f"@{n} is in two links", n, n)
            for whole, parts, offsets in ((ins[0], outs, link.target_offsets), (outs[0], ins, link.source_offsets)):
                if len(parts) > 1 or (offsets and parts[0].type != whole.type):
                    self.check_parts(whole, parts, offsets)
            if len(ins) == len(outs) == 1 and ins[0].type.nbytes != outs[0].type.nbytes:
                self.refuse(f"@{ins[0].name} and @{outs[0].name} are linked and differ", name,
                            f"{ins[0].type} and {outs[0].type}")  # fmt: skip

    def check_parts(self, whole: ObjectFifoOp, parts: Sequence[ObjectFifoOp], offsets: Sequence[int]) -> None:
        if len(offsets) != len(parts):
            self.refuse(f"the link of @{whole.name} needs an offset for each part", whole.name, offsets, len(parts))
        if any(p.type.element != whole.type.element for p in parts):
            self.refuse(f"the link of @{whole.name} has parts of other elements", whole.name, whole.type)
        at = 0
        for offset, part in sorted(zip(offsets, parts, strict=True), key=lambda p: p[0]):
            if offset != at:
                self.refuse(f"the link of @{whole.name}: parts overlap or leave a gap", whole.name, offset, at)
            at += part.type.size
        if at != whole.type.size:
            self.refuse(f"the link of @{whole.name}: parts are not the whole", whole.name, at, whole.type.size)

    # --- what tiles have ---

    def check_channels(self) -> None:
        incoming = Counter(c for f in self.design.fifos for c in f.consumers)
        outgoing = Counter(f.producer for f in self.design.fifos)
        for t in self.design.tiles:
            limits = LIMITS[t.kind]
            for words, count, most in (
                ("incoming (S2MM)", incoming[t.name], limits.incoming),
                ("outgoing (MM2S)", outgoing[t.name], limits.outgoing),
            ):
                if count > most:
                    self.refuse(f"%{t.name} has too few {words} DMA channels", t.name, count, f"at most {most}")

    def ends(self, t: TileOp) -> Iterator[tuple[int, int, int]]:
        """(bytes, BDs, locks) of each fifo's end or link at a tile."""
        for link in self.design.links:
            ins, outs = [self.fifos[n] for n in link.sources], [self.fifos[n] for n in link.targets]
            if outs[0].producer == t.name:
                depth = max(f.depth for f in (*ins, *outs))
                parts = max(len(ins), len(outs))
                yield depth * max(f.type.nbytes for f in (*ins, *outs)), depth * (1 + parts), 2 * parts
        for f in self.design.fifos:
            if f.producer == t.name and f.name not in self.outgoing:
                yield f.depth * f.type.nbytes, f.depth, 2
            if t.name in f.consumers and f.name not in self.incoming:
                yield f.depth * f.type.nbytes, f.depth, 2

    def check_resources(self) -> None:
        stacks = {c.tile: c.stack for c in self.design.cores}
        for t in self.design.tiles:
            if t.kind == "shim":
                continue
            limits = LIMITS[t.kind]
            ends = list(self.ends(t))
            memory = sum(e[0] for e in ends) + stacks.get(t.name, 0)
            memory += sum(b.type.nbytes for b in self.design.buffers if b.tile == t.name)
            for words, got, most in (
                ("bytes of memory", memory, limits.memory),
                ("buffer descriptors", sum(e[1] for e in ends), limits.descriptors),
                ("locks", sum(e[2] for e in ends), limits.locks),
            ):
                if got > most:
                    self.refuse(f"%{t.name} has too few {words}", t.name, got, f"at most {most}")

    # --- cores ---

    def check_functions(self) -> None:
        for f in self.design.functions:
            try:
                kernel = named(f.name)
            except NxError:
                self.refuse(f"@{f.name} is no kernel that is known", f.name, f.name)
            if kernel.arguments != f.arguments:
                self.refuse(f"@{f.name} has other arguments than its kernel", f.name,
                            ", ".join(map(str, f.arguments)), ", ".join(map(str, kernel.arguments)))  # fmt: skip

    def check_cores(self) -> None:
        seen: set[str] = set()
        used: dict[tuple[str, Port], str] = {}
        for core in self.design.cores:
            if self.tiles[core.tile].kind != "core" or core.tile in seen:
                self.refuse(f"%{core.tile} cannot have this core", core.tile, self.tiles[core.tile].kind, "one core")
            seen.add(core.tile)
            if core.stack < LEAST_STACK:
                self.refuse(f"the core of %{core.tile} has too small a stack", core.tile, core.stack, LEAST_STACK)
            held: dict[tuple[str, Port], str] = {}
            self.check_body(core, core.body, held)
            if held:
                self.refuse(f"the core of %{core.tile} ends with objects that it holds", core.tile, _words(held))
            for s in statements(core.body):
                if isinstance(s, AcquireOp):
                    used[s.fifo, s.port] = core.tile
        for f in self.design.fifos:
            if (
                self.tiles[f.producer].kind != "shim"
                and f.name not in self.outgoing
                and (f.name, "Produce") not in used
            ):
                self.refuse(f"nothing is put into @{f.name}", f.name, f"no core of %{f.producer} acquires it")
            for c in f.consumers:
                core = next((k for k in self.design.cores if k.tile == c), None)
                takes = core is not None and any(
                    isinstance(s, AcquireOp) and s.fifo == f.name and s.port == "Consume" for s in statements(core.body)
                )
                if self.tiles[c].kind != "shim" and f.name not in self.incoming and not takes:
                    self.refuse(f"nothing takes @{f.name} at %{c}", f.name, f"no core of %{c} acquires it")

    def check_body(self, core: CoreOp, body: Sequence[Statement], held: dict[tuple[str, Port], str]) -> None:
        for s in body:
            if isinstance(s, ForOp):
                if not 0 <= s.count <= FOREVER:
                    self.refuse(f"the core of %{core.tile} loops {s.count} times", core.tile, s.count)
                before = dict(held)
                self.check_body(core, s.body, held)
                if held != before:
                    self.refuse(f"a loop of the core of %{core.tile} does not give back what it takes", core.tile,
                                f"{_words(held)} after it", f"{_words(before)}, as before it")  # fmt: skip
            elif isinstance(s, AcquireOp):
                self.check_port(core, s.fifo, s.port)
                if (s.fifo, s.port) in held:
                    self.refuse(f"the core of %{core.tile} acquires @{s.fifo} twice", core.tile, _words(held))
                held[s.fifo, s.port] = s.value
            elif isinstance(s, ReleaseOp):
                self.check_port(core, s.fifo, s.port)
                if (s.fifo, s.port) not in held:
                    self.refuse(f"the core of %{core.tile} releases @{s.fifo} and does not hold it", core.tile,
                                _words(held))  # fmt: skip
                del held[s.fifo, s.port]
            else:
                self.check_call(core, s, held)

    def check_port(self, core: CoreOp, fifo: str, port: Port) -> None:
        f = self.fifos[fifo]
        if (port == "Produce" and f.producer != core.tile) or (port == "Consume" and core.tile not in f.consumers):
            self.refuse(f"the core of %{core.tile} is not where @{fifo} is {port.lower()}d", core.tile,
                        f"from %{f.producer} to {', '.join('%' + c for c in f.consumers)}")  # fmt: skip

    def check_call(self, core: CoreOp, call: CallOp, held: dict[tuple[str, Port], str]) -> None:
        function = self.design.function(call.function)
        kernel = named(call.function)
        values = {value: end for end, value in held.items()}
        buffers = {b.name: b for b in self.design.buffers if b.tile == core.tile}
        for i, a in enumerate(call.arguments):
            end = values.get(a)
            if end is None and a not in buffers:
                self.refuse(f"the core of %{core.tile} calls @{call.function} with %{a}, which it does not hold",
                            core.tile, _words(held))  # fmt: skip
            have = self.fifos[end[0]].type if end is not None else buffers[a].type
            if have != function.arguments[i]:
                self.refuse(f"@{call.function} takes {function.arguments[i]}", core.tile, f"%{a}: {have}")
            if end is not None and end[1] == "Consume" and i in kernel.writes:
                self.refuse(f"@{call.function} writes %{a}, an object that is only consumed here", core.tile, end[0])

    # --- the host ---

    def check_sequence(self) -> None:
        types = dict(self.design.sequence.arguments)
        tokens: Counter[str] = Counter()
        for step in self.design.sequence.body:
            f = self.fifos[step.fifo]
            ends = [self.tiles[t].kind for t in (f.producer, f.consumers[0])]
            if "shim" not in ends:
                self.refuse(f"@{f.name} does not end at a shim", f.name, " to ".join(ends))
            if isinstance(step, DmaWaitOp):
                if not tokens[step.fifo]:
                    self.refuse(f"a wait for @{step.fifo}, of which no copy has a token left", f.name, step.fifo)
                tokens[step.fifo] -= 1
                continue
            tokens[step.fifo] += step.token
            self.check_copy(step, types[step.argument].size, types[step.argument].element, f)
        left = sorted(n for n, count in tokens.items() if count)
        outs = {s.fifo for s in self.design.sequence.body if isinstance(s, DmaMemcpyOp)}
        unwaited = [n for n in outs if self.tiles[self.fifos[n].producer].kind != "shim" and n in left]
        never = [n for n in outs if self.tiles[self.fifos[n].producer].kind != "shim" and not self.waited(n)]
        if unwaited or never:
            name = sorted([*unwaited, *never])[0]
            self.refuse(f"the sequence ends without waiting for @{name}", name, f"{len(unwaited + never)} fifos")

    def waited(self, fifo: str) -> bool:
        return any(isinstance(s, DmaWaitOp) and s.fifo == fifo for s in self.design.sequence.body)

    def check_copy(self, c: DmaMemcpyOp, size: int, element: str, f: ObjectFifoOp) -> None:
        limits, width = LIMITS["shim"], f.type.dtype.itemsize
        wrap, step = (1 << limits.wrap_bits) - 1, 1 << limits.step_bits
        say = f"a copy of %{c.argument} and @{f.name}"
        if element != f.type.element:
            self.refuse(f"{say}: elements of another type", f.name, element, f.type.element)
        if not 0 <= c.id < limits.descriptors:
            self.refuse(f"{say}: a BD that a shim has not", f.name, c.id, f"0 to {limits.descriptors - 1}")
        if min(c.sizes) < 1:
            self.refuse(f"{say}: a size that is not positive", f.name, c.sizes)
        if min(c.offsets) < 0 or min(c.strides) < 0 or any(
            s < 1 for n, s in zip(c.sizes[1:], c.strides[1:], strict=True) if n > 1
        ):  # fmt: skip
            self.refuse(f"{say}: only the outermost stride may be 0", f.name, f"{c.offsets}, {c.strides}")
        if c.strides[3] != 1 and c.sizes[3] > 1:
            self.refuse(f"{say}: the innermost elements are not side by side", f.name, c.strides)
        moving = [s for n, s in zip(c.sizes[:3], c.strides[:3], strict=True) if n > 1]
        if c.start * width % _WORD or c.sizes[3] * width % _WORD or any(s * width % _WORD for s in moving):
            self.refuse(f"{say}: not aligned to 4 bytes", f.name, f"{c.offsets} {c.sizes} {c.strides}")
        if c.sizes[0] > ITERATIONS:
            self.refuse(f"{say}: too many iterations", f.name, c.sizes[0], f"at most {ITERATIONS}")
        if not c.linear and (c.sizes[3] * width // _WORD > wrap or c.sizes[2] > wrap):
            self.refuse(f"{say}: a size that a BD does not hold", f.name, c.sizes, f"at most {wrap} (words innermost)")
        if any(s * width // _WORD > step for s in moving):
            self.refuse(f"{say}: a stride that a BD does not hold", f.name, c.strides, f"at most {step} words")
        if c.last >= size:
            self.refuse(f"{say}: out of the buffer's bounds", f.name, f"element {c.last}", f"{size} elements")


def _words(held: dict[tuple[str, Port], str]) -> str:
    return ", ".join(f"@{fifo} ({port})" for fifo, port in held) or "nothing held"
