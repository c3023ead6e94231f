"""StableHLO modules written elsewhere, made fit to be functions of a module of ours.

Sharding annotations go (one device computes the whole), a platform index becomes a constant, dynamic dimensions become
those of a call, symbols get a prefix. What could run code outside the program is refused. Knows jaxlib's MLIR bindings,
no op. Modules must have passed `guard.checked` where they are not trusted: MLIR's reader may end the process on damage.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

from nxjax.backends.xla import lapack
from nxjax.errors import LoweringError, ParameterError
from nxjax.lower.stablehlo import types as mlir
from nxjax.trace.types import ArrayType

# Custom calls that say something about a program and compute nothing.
MARKS: Final = frozenset(("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "annotate_device_placement"))
# Custom calls that the refinement of dynamic shapes answers.
REFINED: Final = frozenset(
    ("shape_assertion", "stablehlo.dynamic_reduce_window", "stablehlo.dynamic_rng_bit_generator",
     "stablehlo.dynamic_top_k", "stablehlo.dynamic_approx_top_k")
)  # fmt: skip
_SHARDING: Final = ("sdy.sharding", "mhlo.sharding", "sdy.sharding_rule", "mhlo.frontend_attributes")


@final
@dataclass(frozen=True)
class PrivateFunctions:
    """Text of private functions, the symbol of the one to call, and the tensor types that it takes and gives."""

    text: str
    main: str
    in_types: tuple[str, ...]
    out_types: tuple[str, ...]


def _context() -> Any:
    from jaxlib.mlir import ir  # type: ignore[import-not-found]
    from jaxlib.mlir._mlir_libs import _jax_mlir_ext  # type: ignore[import-not-found]
    from jaxlib.mlir.dialects import chlo, sdy, stablehlo  # type: ignore[import-not-found]

    context: Any = ir.Context()
    dialects: Any = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(dialects)
    context.append_dialect_registry(dialects)
    context.load_all_available_dialects()
    for dialect in (chlo, stablehlo, sdy):
        dialect.register_dialect(context)
    return context


def _module(data: bytes) -> Any:
    """The module of a portable artifact, or of MLIR text."""
    from jaxlib import _jax  # type: ignore[import-not-found]
    from jaxlib.mlir import ir  # type: ignore[import-not-found]

    jax: Any = _jax
    with _context() as context:
        try:
            if data.startswith(b"ML\xefR"):
                return jax.mlir.deserialize_portable_artifact(data, context)
            return ir.Module.parse(data.decode(), context)
        except Exception as error:  # of several classes, none of them promised
            raise LoweringError("stablehlo: the module cannot be read", got=str(error)[:500]) from None


def text_of(data: bytes) -> str:
    """The StableHLO text of a portable artifact, Shardy's operations included.

    Raises:
        LoweringError: it is none.
    """
    return str(_module(data))


def signature(data: bytes) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Tensor types that ``main`` takes and gives, and the targets of the module's custom calls."""
    module = _module(data)
    takes, gives = _signature(_main(module))
    return takes, gives, tuple(sorted({_target(op) for op in _operations(module) if _name(op) == CUSTOM_CALL}))


CUSTOM_CALL: Final = "stablehlo.custom_call"


def _name(op: Any) -> str:
    return op.operation.name


def _target(op: Any) -> str:
    from jaxlib.mlir import ir  # type: ignore[import-not-found]

    return ir.StringAttr(op.attributes["call_target_name"]).value


def _operations(root: Any) -> Iterator[Any]:
    """Every operation below ``root``, inner ones first; each may be erased when it is given."""
    for region in root.operation.regions:
        for block in region:
            for op in list(block):
                yield from _operations(op)
                yield op


def _functions(module: Any) -> list[Any]:
    return [op for op in module.body if _name(op) == "func.func"]


def _symbol(function: Any) -> str:
    from jaxlib.mlir import ir  # type: ignore[import-not-found]

    return ir.StringAttr(function.attributes["sym_name"]).value


def _main(module: Any) -> Any:
    for function in _functions(module):
        if _symbol(function) == "main":
            return function
    raise LoweringError("stablehlo: the module has no function main", got=str(module)[:300])


def _signature(function: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    from jaxlib.mlir import ir  # type: ignore[import-not-found]

    kind = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
    return tuple(map(str, kind.inputs)), tuple(map(str, kind.results))


def functions(data: bytes, prefix: str, in_types: Sequence[ArrayType], platform: int | None = None) -> PrivateFunctions:
    """The functions of a module, to be called with arguments of ``in_types``.

    Args:
        data: portable artifact, or text.
        prefix: of every symbol.
        in_types: of the call; where ``main`` has dynamic dimensions, these are what they become.
        platform: the value of ``main``'s first argument, a platform index, if it has one.

    Raises:
        LoweringError: no StableHLO that one device can compute: custom calls of unknown meaning, manual sharding,
            effects.
        ParameterError: arguments that the module's assertions about its dimensions refuse.
    """
    module = _module(data)
    with module.context:
        _unsharded(module)
        wanted = [mlir.tensor(t) for t in in_types]
        takes, _ = _signature(_main(module))
        if platform is not None:
            takes = takes[1:]
        if len(takes) != len(wanted):
            raise LoweringError("stablehlo: main takes another number of arguments", got=len(takes), expected=wanted)
        if platform is not None and not any("?" in t for t in takes) and _dropped_index(module):
            platform = None
        if platform is not None or any("?" in t for t in takes):
            module = _refined(module, wanted, platform)
        _checked(module)
        for function in _functions(module):
            _rename(module, function, f"{prefix}_{_symbol(function)}")
        main = next(f for f in _functions(module) if _symbol(f) == f"{prefix}_main")
        takes, gives = _signature(main)
        if any("?" in t for t in (*takes, *gives)):
            raise LoweringError("stablehlo: a result has a dimension that the arguments do not determine", got=gives)
        text = "\n".join(_printed(function) for function in _functions(module))
        return PrivateFunctions(text, f"{prefix}_main", takes, gives)


def is_spread(data: bytes) -> bool:
    """Whether the module says somewhere what each of several devices computes."""
    # The name of an operation stands in bytecode as it is, and only where it occurs is the module worth a look.
    name = "sdy.manual_computation"
    return b"manual_computation" in data and any(_name(op) == name for op in _operations(_module(data)))


def _unsharded(module: Any) -> None:
    """Without annotations of shardings: what one device computes is the whole."""
    for op in list(_operations(module)):
        name = _name(op)
        if name == "sdy.manual_computation":
            raise LoweringError("stablehlo: the module says what each of several devices computes", got=name)
        marker = name == "sdy.sharding_constraint" or (name == CUSTOM_CALL and _target(op) in MARKS)
        if marker and len(op.operands) == len(op.results) == 1 and op.operands[0].type == op.results[0].type:
            op.results[0].replace_all_uses_with(op.operands[0])
            op.operation.erase()
        elif name == "sdy.mesh":
            op.operation.erase()
        else:
            for key in _SHARDING:
                if key in op.attributes:
                    del op.attributes[key]
    for key in list(module.operation.attributes):
        if key != "sym_name":
            del module.operation.attributes[key]
    for function in _functions(module):
        # Names of arguments, donation and shardings: of no meaning inside a program.
        for key in ("arg_attrs", "res_attrs"):
            if key in function.attributes:
                del function.attributes[key]


def _dropped_index(module: Any) -> bool:
    """Take the platform index away where nothing depends on it, which costs less than choosing a branch."""
    from jaxlib.mlir import ir  # type: ignore[import-not-found]

    main = _main(module)
    block = main.regions[0].blocks[0]
    if any(True for _ in block.arguments[0].uses):
        return False
    kind = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
    block.erase_argument(0)
    main.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(kind.inputs[1:], kind.results))
    return True


def _refined(module: Any, in_types: Sequence[str], platform: int | None) -> Any:
    """The module with every dimension known and the branch of its platform chosen."""
    from jaxlib import _jax  # type: ignore[import-not-found]
    from jaxlib.mlir import ir  # type: ignore[import-not-found]

    jax: Any = _jax
    takes, gives = _signature(_main(module))
    _rename(module, _main(module), "_dynamic_main")
    args, lines = list[str](), list[str]()
    if platform is not None:
        lines.append(f"%p = stablehlo.constant dense<{platform}> : {takes[0]}")
        args.append("%p")
        takes = takes[1:]
    for i, (given, taken) in enumerate(zip(in_types, takes, strict=True)):
        if given != taken:
            lines.append(f"%c{i} = stablehlo.convert %arg{i} : ({given}) -> {taken}")
        args.append(f"%arg{i}" if given == taken else f"%c{i}")
    header = ", ".join(f"%arg{i}: {t}" for i, t in enumerate(in_types))
    kinds = ", ".join(_signature_of_call(platform, takes))
    results = f"({', '.join(gives)})"
    left = f"%r:{len(gives)} = " if len(gives) > 1 else "%r = " if gives else ""
    lines.append(f"{left}func.call @_dynamic_main({', '.join(args)}) : ({kinds}) -> {results}")
    back = [f"%r#{i}" if len(gives) > 1 else "%r" for i in range(len(gives))]
    lines.append(f"return {', '.join(back)} : {', '.join(gives)}" if gives else "return")
    main = f"func.func public @main({header}) -> {results} {{\n" + "\n".join(lines) + "\n}\n"
    text = str(module).rstrip()
    assert text.endswith("}")
    try:
        found = jax.mlir.refine_polymorphic_shapes((text[:-1] + main + "}").encode(), True, True, False)
    except Exception as error:  # of several classes, none of them promised
        said = re.search(r"(Input shapes do not match.*|Expected.*)", str(error), re.S)
        raise ParameterError(
            "exported function: its dimensions do not fit the arguments",
            got=(said.group(0) if said else str(error))[:700],
        ) from None
    return ir.Module.parse(found, module.context)


def _signature_of_call(platform: int | None, takes: Sequence[str]) -> list[str]:
    return ["tensor<i32>"] * (platform is not None) + list(takes)


def _checked(module: Any) -> None:
    """No custom call but those that jaxlib answers on its own: LAPACK's."""
    wrong: list[str] = []
    for op in list(_operations(module)):
        name = _name(op)
        if name == CUSTOM_CALL:
            target = _target(op)
            if not (target.startswith("lapack_") and target in lapack.targets()):
                wrong.append(f"custom call {target!r}")
        elif not name.startswith(("stablehlo.", "func.", "chlo.")):
            wrong.append(f"operation {name!r}")
        elif name in ("stablehlo.send", "stablehlo.recv", "stablehlo.infeed", "stablehlo.outfeed"):
            wrong.append(f"{name}, which talks to a host")
    if wrong:
        raise LoweringError(
            "exported function: a part of it does not run here",
            got=", ".join(sorted(set(wrong))[:8]),
            expected="StableHLO, and LAPACK's routines on the CPU",
            fix="export it for the platform it is called on",
        )


def _rename(module: Any, function: Any, symbol: str) -> None:
    from jaxlib.mlir import ir  # type: ignore[import-not-found]

    old = _symbol(function)
    ir.SymbolTable.replace_all_symbol_uses(old, symbol, module.operation)
    function.attributes["sym_name"] = ir.StringAttr.get(symbol)
    function.attributes["sym_visibility"] = ir.StringAttr.get("private")


def _printed(function: Any) -> str:
    text: str = function.operation.get_asm(use_local_scope=True, large_elements_limit=None)
    return text
