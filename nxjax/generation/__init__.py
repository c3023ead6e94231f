"""`nx.generation`: text from a decoder-only transformer, token by token, here and in ONNX Runtime.

A decoder is a `DecoderConfig` and a tree of parameters; `forward` and `extend` are pure functions of it. `Generator`
compiles them for writing. `export_genai` gives what runs without nxjax.
"""

from __future__ import annotations

import importlib as _importlib
from typing import Any as _Any

_FILES = {
    "config": "DecoderConfig",
    "model": "init forward extend loss",
    "cache": "Cache init_cache",
    "sampling": "Sampler adjusted sample",
    "generator": "Generator",
    "result": "Generated",
    "beam": "Beam beam_search",
    "text": "TextStream",
    "tokenizer": "Tokenizer",
    "weights": "quantize_weights nbytes save load",
    "genai": "export_genai load_genai GenaiModel",
}
_HOMES = {name: file for file, names in _FILES.items() for name in names.split()}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> _Any:
    file = _HOMES.get(name)
    if file is None:
        raise AttributeError(f"module 'nxjax.generation' has no attribute {name!r}")
    found = getattr(_importlib.import_module(f"nxjax.generation.{file}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*__all__]
