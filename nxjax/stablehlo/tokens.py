"""Modules without tokens: effects here keep the order of the program, and loops and branches carry arrays only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nxjax.lower.stablehlo.module import Block, FunctionDef, Opaque, Operation, StablehloModule, Value

_MAKERS: Final = ("stablehlo.after_all", "stablehlo.create_token")


def without_tokens(module: StablehloModule) -> StablehloModule:
    """The module without its tokens, and without what only makes one."""
    functions = {name: _function(f) for name, f in module.functions.items()}
    return StablehloModule(module.name, functions, module.meshes)


def _function(f: FunctionDef) -> FunctionDef:
    named = zip(f.names, f.body.arguments, strict=True)
    return FunctionDef(f.name, _block(f.body), f.public, tuple(n for n, v in named if not _token(v)))


def _block(block: Block) -> Block:
    made = [_operation(op) for op in block.operations if op.name not in _MAKERS]
    return Block(_arrays(block.arguments), made, _arrays(block.results))


def _operation(op: Operation) -> Operation:
    op.operands, op.results = _arrays(op.operands), _arrays(op.results)
    op.regions = [_block(r) for r in op.regions]
    return op


def _arrays(values: Sequence[Value]) -> list[Value]:
    return [v for v in values if not _token(v)]


def _token(v: Value) -> bool:
    return isinstance(v.type, Opaque) and v.type.text == "!stablehlo.token"
