"""A design as AIE MLIR text, which mlir-aie's ``aiecc`` takes.

The text is what users get: `parse` reads it back to an equal design, and everything that is checked or run here is what
was read back. ``aie.runtime_sequence`` is the name since 2025; ``legacy`` writes ``aiex.runtime_sequence``, and the
object file at the cores instead of at the functions, as earlier releases have it.
"""

from __future__ import annotations

from collections.abc import Sequence

from nxjax.lower.aie.design import (
    AcquireOp,
    CallOp,
    CoreOp,
    Design,
    Dimensions,
    DmaMemcpyOp,
    DmaWaitOp,
    ForOp,
    ObjectFifoLinkOp,
    ObjectFifoOp,
    ReleaseOp,
    Statement,
    statements,
)  # fmt: skip


def mlir(design: Design, *, legacy: bool = False) -> str:
    """The module.

    Args:
        legacy: for releases of mlir-aie before ``aie.runtime_sequence``.
    """
    lines = ["module {", f"  aie.device({design.device}) {{"]
    for f in design.functions:
        link = "" if legacy else f' attributes {{link_with = "{f.object_file}"}}'
        lines.append(f"    func.func private @{f.name}({', '.join(map(str, f.arguments))}){link}")
    lines += [f"    %{t.name} = aie.tile({t.column}, {t.row})" for t in design.tiles]
    for b in design.buffers:
        values = "" if b.values is None else f' = dense<"0x{b.values.hex().upper()}">'
        lines.append(f'    %{b.name} = aie.buffer(%{b.tile}) {{sym_name = "{b.name}"}} : {b.type}{values}')
    lines += [_fifo(f) for f in design.fifos]
    lines += [_link(link) for link in design.links]
    for c in design.cores:
        lines += _core(c, design, legacy)
    lines += _sequence(design, legacy)
    return "\n".join([*lines, "  }", "}", ""])


def _dimensions(d: Dimensions) -> str:
    return " dimensionsToStream [" + ", ".join(f"<size = {n}, stride = {s}>" for n, s in d) + "]" if d else ""


def _fifo(f: ObjectFifoOp) -> str:
    consumers = ", ".join(f"%{c}" for c in f.consumers)
    head = f"aie.objectfifo @{f.name}(%{f.producer}{_dimensions(f.to_stream)}, {{{consumers}}}, {f.depth} : i32)"
    return f"    {head} : !aie.objectfifo<{f.type}>"


def _link(link: ObjectFifoLinkOp) -> str:
    names = [", ".join(f"@{n}" for n in side) for side in (link.sources, link.targets)]
    offsets = [", ".join(map(str, side)) for side in (link.source_offsets, link.target_offsets)]
    return f"    aie.objectfifo.link [{names[0]}] -> [{names[1]}]([{offsets[0]}] [{offsets[1]}])"


def _core(core: CoreOp, design: Design, legacy: bool) -> list[str]:
    counts = sorted({0, 1} | {s.count for s in statements(core.body) if isinstance(s, ForOp)})
    lines = [f"    %core_{core.tile} = aie.core(%{core.tile}) {{"]
    lines += [f"      %c{n} = arith.constant {n} : index" for n in counts]
    lines += _body(core.body, design, 6, [0])
    files = {design.function(s.function).object_file for s in statements(core.body) if isinstance(s, CallOp)}
    attributes = [f'link_with = "{f}"' for f in sorted(files)] if legacy else []
    # Loops go round any number of times: which of a fifo's objects is next is found at run time, not by unrolling.
    attributes += ["dynamic_objfifo_lowering = true", f"stack_size = {core.stack} : i32"]
    return [*lines, "      aie.end", f"    }} {{{', '.join(attributes)}}}"]


def _body(body: Sequence[Statement], design: Design, indent: int, made: list[int]) -> list[str]:
    pad, lines = " " * indent, list[str]()
    for s in body:
        if isinstance(s, ForOp):
            lines.append(f"{pad}scf.for %i{made[0]} = %c0 to %c{s.count} step %c1 {{")
            made[0] += 1
            lines += [*_body(s.body, design, indent + 2, made), pad + "}"]
        elif isinstance(s, AcquireOp):
            t = design.fifo(s.fifo).type
            view = f"!aie.objectfifosubview<{t}>"
            lines.append(f"{pad}%{s.value}_view = aie.objectfifo.acquire @{s.fifo}({s.port}, 1) : {view}")
            lines.append(f"{pad}%{s.value} = aie.objectfifo.subview.access %{s.value}_view[0] : {view} -> {t}")
        elif isinstance(s, ReleaseOp):
            lines.append(f"{pad}aie.objectfifo.release @{s.fifo}({s.port}, 1)")
        else:
            types = ", ".join(map(str, design.function(s.function).arguments))
            given = ", ".join(f"%{a}" for a in s.arguments)
            lines.append(f"{pad}func.call @{s.function}({given}) : ({types}) -> ()")
    return lines


def _sequence(design: Design, legacy: bool) -> list[str]:
    s = design.sequence
    types = dict(s.arguments)
    arguments = ", ".join(f"%{n}: {t}" for n, t in s.arguments)
    lines = [f"    {'aiex' if legacy else 'aie'}.runtime_sequence @{s.name}({arguments}) {{"]
    for step in s.body:
        if isinstance(step, DmaWaitOp):
            lines.append(f"      aiex.npu.dma_wait {{symbol = @{step.fifo}}}")
        else:
            lines.append(f"      {_copy(step)} : {types[step.argument]}")
    return [*lines, "    }"]


def _copy(c: DmaMemcpyOp) -> str:
    where = "".join(f"[{', '.join(map(str, part))}]" for part in (c.offsets, c.sizes, c.strides))
    token = ", issue_token = true" if c.token else ""
    return f"aiex.npu.dma_memcpy_nd(%{c.argument}{where}) {{id = {c.id} : i64{token}, metadata = @{c.fifo}}}"
