"""`export`: a jitted function to a portable, versioned StableHLO module with its signature.

Calling convention of the module, which is JAX's: function ``main`` takes the flat arguments in order, before them the
index of the platform where there are several; random keys as two words, float0 as a bool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from nxjax.backends import registry
from nxjax.errors import LoweringError, ParameterError
from nxjax.export.body import physical
from nxjax.export.exported import DisabledSafetyCheck, Exported, _need_jaxlib
from nxjax.lower.passes.dce import dead_code_eliminated
from nxjax.lower.passes.order import in_order
from nxjax.lower.stablehlo.builder import ModuleBuilder, Row
from nxjax.lower.stablehlo.sharding import Partitioning, partitioning
from nxjax.ops.random import random_unwrap, random_wrap
from nxjax.trace import dtypes
from nxjax.trace.boundary import api_boundary
from nxjax.trace.core import Array
from nxjax.trace.program import Equation, Program, run
from nxjax.trace.sharding import NamedSharding, Sharding
from nxjax.trace.stage import stage
from nxjax.trace.types import ArrayType, ShapeDtypeStruct
from nxjax.transforms.grad import vjp
from nxjax.transforms.jit import Jitted, Traced, jit

# Module arguments are numbered by 16 bits in the file.
MOST_ARGUMENTS: Final = 65_535
_INDEX: Final = ArrayType((), dtypes.int32)


def default_export_platform() -> str:
    """The platform of the default executor, by JAX's name.

    >>> default_export_platform()
    'cpu'
    """
    return registry.default().platform


def export(
    fun_jit: Jitted,
    *,
    platforms: Sequence[str] | None = None,
    disabled_checks: Sequence[DisabledSafetyCheck] = (),
) -> Callable[..., Exported]:
    """Export a jitted function to save it and call it in nxjax, in JAX, or with any StableHLO compiler.

    Args:
        fun_jit: made by `nx.jit`.
        platforms: where it will run: a subset of "cpu", "tpu", "cuda", "rocm", or names of plug-ins. By default this
            platform. For "cpu" alone the module may call LAPACK; otherwise it is only StableHLO.
        disabled_checks: see `DisabledSafetyCheck`.

    Returns:
        A function of arrays or `nx.ShapeDtypeStruct` that returns an `Exported` for their types.

    Raises:
        ParameterError: not a jitted function, or no platforms.
        LoweringError: the function calls back into Python; the message has the user's lines.
        MissingExtraError: jaxlib is not installed.

    >>> exported = export(nx.jit(lambda x: {"y": nx.sin(x)}))(nx.ShapeDtypeStruct((4,), nx.float32))
    >>> exported.in_avals, exported.platforms
    ((f32[4],), ('cpu',))
    >>> float(exported.call(nx.zeros(4))["y"][0])
    0.0
    """
    if not isinstance(fun_jit, Jitted):
        raise ParameterError(
            "export: needs a jitted function", got=repr(fun_jit)[:80], fix="nx.export.export(nx.jit(function))(...)"
        )
    chosen = _platforms((default_export_platform(),) if platforms is None else platforms)
    checks = tuple(disabled_checks)
    if not all(isinstance(c, DisabledSafetyCheck) for c in checks):
        raise ParameterError(
            "export: disabled_checks",
            got=checks,
            expected="nx.export.DisabledSafetyCheck.platform() or .custom_call(name)",
        )

    @api_boundary
    def exported(*args: Any, **kwargs: Any) -> Exported:
        _need_jaxlib()
        return _exported(fun_jit.trace(*args, **kwargs), fun_jit.arguments.name, chosen, checks)

    return exported


def _platforms(platforms: Any) -> tuple[str, ...]:
    if isinstance(platforms, str):
        raise ParameterError("export: platforms is a sequence", got=repr(platforms), fix=f"platforms=({platforms!r},)")
    chosen = tuple(platforms)
    if not chosen or len(set(chosen)) != len(chosen) or not all(isinstance(p, str) and p for p in chosen):
        raise ParameterError("export: platforms", got=chosen, expected='different names, such as ("cpu", "tpu")')
    if "gpu" in chosen:
        raise ParameterError('export: "gpu" is two platforms', got=chosen, fix='name "cuda" or "rocm"')
    return chosen


def _exported(
    traced: Traced, name: str, platforms: tuple[str, ...], checks: tuple[DisabledSafetyCheck, ...]
) -> Exported:
    from nxjax.backends.xla import guard, portable

    program = traced.program
    if len(program.inputs) > MOST_ARGUMENTS:
        raise LoweringError("export: too many arguments", got=len(program.inputs), expected=f"up to {MOST_ARGUMENTS}")
    asked = [traced.asked.ins or traced.given, traced.asked.outs]
    ins, outs = (list(s) or [None] * n for s, n in zip(asked, (len(program.inputs), len(program.outputs)), strict=True))
    text, devices = _text(program, name, platforms, ins, outs)
    data, _ = portable.serialized(portable.legalized(text))
    guard.trust(data)

    def derivative(primal: Exported) -> Exported:
        return _vjp(program, primal, ins, outs)

    return Exported(
        fun_name=name,
        in_tree=traced.in_tree,
        in_avals=tuple(t.strong() for t in program.in_types),
        out_tree=traced.out_tree,
        out_avals=tuple(t.strong() for t in program.out_types),
        platforms=platforms,
        mlir_module_serialized=data,
        module_kept_var_idx=tuple(range(len(program.inputs))),
        nr_devices=devices,
        in_shardings=tuple(map(_abstract, ins)),
        out_shardings=tuple(map(_abstract, outs)),
        uses_global_constants=len(platforms) > 1,
        disabled_safety_checks=checks,
        _get_vjp=derivative,
    )


def _abstract(sharding: Sharding | None) -> NamedSharding | None:
    """A sharding without its devices, which are others where the function is called."""
    if not isinstance(sharding, NamedSharding):
        return None
    return sharding.update(mesh=sharding.mesh.abstract_mesh)


def _text(
    program: Program,
    name: str,
    platforms: tuple[str, ...],
    ins: Sequence[Sharding | None],
    outs: Sequence[Sharding | None],
) -> tuple[str, int]:
    """The module by the calling convention, and for how many devices it is."""
    _refuse_callbacks(program, name)
    several = len(platforms) > 1

    def main(*xs: Array) -> list[Array]:
        rest = xs[1:] if several else xs
        keyed = zip(rest, program.in_types, strict=True)
        ys = run(program, [random_wrap(x) if t.dtype == dtypes.key else x for x, t in keyed])
        return [random_unwrap(y) if y.dtype == dtypes.key else y for y in ys]

    types = [t if t.dtype == dtypes.float0 else physical(t) for t in program.in_types]
    whole = in_order(dead_code_eliminated(stage(main, [_INDEX] * several + types, name)))
    spread = partitioning(whole, ins, outs)
    takes = ['jax.global_constant = "_platform_index"'] * several + _attributes(spread, ins, types)
    gives = _attributes(spread, outs, whole.out_types)
    module = ModuleBuilder(_rows(platforms), spread)
    module.function(whole, "main", True, takes, gives)
    if module.callbacks:
        raise LoweringError(f"export: {name} calls back into Python", fix="leave the callback out of what is exported")
    symbol = "".join(c if c.isalnum() and c.isascii() else "_" for c in f"jit_{name}")
    text = module.text(symbol)
    one = f"mhlo.num_partitions = {spread.size} : i32, mhlo.num_replicas = 1 : i32"
    marks = f"jax.uses_shape_polymorphism = {str(several).lower()}, {one}"
    return text.replace(f"module @{symbol} {{", f"module @{symbol} attributes {{{marks}}} {{", 1), spread.size


def _attributes(spread: Partitioning, shardings: Sequence[Sharding | None], types: Sequence[ArrayType]) -> list[str]:
    if spread.size == 1:
        return [""] * len(types)
    return [spread.attribute(s, t.ndim) for s, t in zip(shardings, types, strict=True)]


def _rows(platforms: tuple[str, ...]) -> dict[str, Row]:
    """Rules of the CPU for it alone: its custom calls have no meaning elsewhere."""
    if platforms != ("cpu",):
        return {}
    from nxjax.backends.xla.rows import ROWS

    return ROWS


def _equations(program: Program) -> Iterator[Equation]:
    for equation in program.equations:
        yield equation
        for inner in equation.programs():
            yield from _equations(inner)


def _refuse_callbacks(program: Program, name: str) -> None:
    """Python functions stay in this process."""
    found = [e for e in _equations(dead_code_eliminated(program)) if e.op.has("host")]
    if found:
        lines = dict.fromkeys(f"{e.op.name} at {e.source}" if e.source else e.op.name for e in found)
        raise LoweringError(
            f"export: {name} calls back into Python, which a file cannot hold",
            got="\n            ".join(lines),
            source=found[0].source,
            fix="leave the callback out of what is exported, or write it with nx.numpy functions",
        )


def _vjp(
    program: Program, primal: Exported, ins: Sequence[Sharding | None], outs: Sequence[Sharding | None]
) -> Exported:
    """The derivative, exported for the same platforms; cotangents lie as what they belong to."""
    n = len(program.inputs)

    def fun_vjp(*args_and_cts: Array) -> tuple[Array, ...]:
        def flat(*xs: Array) -> list[Array]:
            return run(program, xs)

        _, pull = vjp(flat, *args_and_cts[:n])
        return pull(list(args_and_cts[n:]))

    fun_vjp.__name__ = f"vjp_{primal.fun_name}"
    cts = [
        t.strong() if dtypes.is_differentiable(t.dtype) else ArrayType(t.shape, dtypes.float0)
        for t in program.out_types
    ]
    specs = [ShapeDtypeStruct(t.shape, t.dtype) for t in (*(t.strong() for t in program.in_types), *cts)]
    places: dict[str, Any] = {"in_shardings": (*ins, *outs), "out_shardings": tuple(ins)} if any((*ins, *outs)) else {}
    jitted = jit(fun_vjp, **places)
    return export(jitted, platforms=primal.platforms, disabled_checks=primal.disabled_safety_checks)(*specs)
