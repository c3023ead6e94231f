"""From a program to the compiler's answer: StableHLO with shardings and the user's lines, compiled, analysed.

Knows programs and the compiler, no artifact; `target` makes files of what this gives, `ahead` executables that `jit`
asks for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from nxjax.backends.tpu import compiler
from nxjax.backends.tpu.analysis import TpuAnalysis, analysed
from nxjax.backends.tpu.chips import Topology
from nxjax.backends.tpu.topologies import device_ids
from nxjax.errors import DeviceMemoryError
from nxjax.lower.passes.narrow import narrow
from nxjax.lower.stablehlo.builder import lower
from nxjax.lower.stablehlo.sharding import Shardings, partitioning
from nxjax.ops.dimension_numbers import ConvDimensionNumbers
from nxjax.ops.quant_integer import integer_products
from nxjax.trace.program import Equation, Program
from nxjax.trace.types import ArrayType
from nxjax.transforms.inline import inlined

_LOOPS: Final = ("while", "scan")


def written(program: Program, ins: Shardings, outs: Shardings, donate: Sequence[int]) -> str:
    """The StableHLO that the compiler is given."""
    ins, outs = ins or (None,) * len(program.inputs), outs or (None,) * len(program.outputs)
    return lower(program, donate=donate, in_shardings=ins, out_shardings=outs, located=True)[0]


def narrowed(program: Program) -> Program:
    """A program as it is written: flat, and in the types that TPUs compute in."""
    with integer_products():
        return narrow(inlined(program))


def built(
    program: Program,
    topology: Topology,
    ins: Shardings = (),
    outs: Shardings = (),
    donate: Sequence[int] = (),
    *,
    options: Mapping[str, Any] | None = None,
    timeout: float = compiler.TIMEOUT,
) -> tuple[str, TpuAnalysis]:
    """The text that was compiled, and what the compiler says.

    Args:
        ins, outs: a sharding or None per input and result; empty where there are none.

    Raises:
        DeviceMemoryError: it does not fit; the largest values are named with the user's lines.
        LoweringError: the compiler refused it. ShardingError: it is sharded over other devices than the topology's.
    """
    program = narrowed(program)
    spread = partitioning(program, ins, outs)
    devices = device_ids(topology, spread)
    text = written(program, ins, outs, donate)
    try:
        made = compiler.compile_text(text, topology, devices=devices, options=options, timeout=timeout)
    except DeviceMemoryError as error:
        raise _blamed(error, program, spread.size) from None
    analysis = analysed(topology, made, spread.size)
    analysis.image_layouts = list(_images(program))
    analysis.loops_written = sum(1 for e in _everything(program) if e.op.name in _LOOPS)
    analysis.advise()
    return text, analysis


def _everything(program: Program) -> Iterator[Equation]:
    for e in program.equations:
        yield e
        for held in e.programs():
            yield from _everything(held)


def _images(program: Program) -> Iterator[tuple[str, str]]:
    """Lines and layouts of the convolutions whose images do not have their channels last."""
    for e in _everything(program):
        numbers = e.params.get("dimension_numbers")
        if not isinstance(numbers, ConvDimensionNumbers):
            continue
        batch, channels, *spatial = numbers.lhs_spec
        rank = len(numbers.lhs_spec)
        if channels != rank - 1 and rank >= 3:
            letters = {batch: "N", channels: "C", **dict(zip(spatial, "DHW"[-len(spatial) :], strict=False))}
            where = f" at {e.source}" if e.source is not None else ""
            yield where, "".join(letters.get(d, "?") for d in range(rank))


def _blamed(error: DeviceMemoryError, program: Program, devices: int) -> DeviceMemoryError:
    """The error with the largest values of the program, where the compiler named none itself."""
    found: list[tuple[int, str]] = list(error.buffers)
    if not found:
        size = lambda t: t.size * max(t.dtype.itemsize, 1) if isinstance(t, ArrayType) else 0
        found = [(size(v.type), f"argument {i}, {v.type}") for i, v in enumerate(program.inputs)]
        for e in program.equations:
            where = f" at {e.source}: {e.source.text}" if e.source is not None else ""
            found += [(size(v.type), f"{v.type} of {e.op.name}{where}") for v in e.outputs]
        found = sorted(found, key=lambda f: -f[0])[:5]
    over = f" over {devices} devices" if devices > 1 else ""
    listed = "".join(f"\n    - {n:,} bytes{over}: {text}" for n, text in found)
    made = DeviceMemoryError(
        f"{error.what}; its largest values, before padding:{listed}",
        got=error.got,
        expected=error.expected,
        fix=error.fix,
    )
    made.required, made.available, made.buffers = error.required, error.available, tuple(found)
    return made
