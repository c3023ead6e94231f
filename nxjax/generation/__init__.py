"""`nx.generation`: text from a decoder-only transformer, token by token, here and in ONNX Runtime.

A decoder is a `DecoderConfig` and a tree of parameters. `forward` and `extend` are pure functions of it. `Generator`
compiles them to generate text. `export_genai` writes files that run without nxjax.
"""

from __future__ import annotations

from nxjax.trace.lazy import lazy as _lazy
from nxjax.trace.lazy import module_of_name as _homes

_FILES = {
    "config": "DecoderConfig",
    "model": "init forward extend loss",
    "cache": "Cache init_cache",
    "sampling": "Sampler Earlier adjusted sample",
    "generator": "Generator",
    "draft": "Draft PromptLookup",
    "session": "Session",
    "result": "Generated",
    "judging": "perplexity Perplexity",
    "beam": "Beam beam_search",
    "text": "TextStream",
    "tokenizer": "Tokenizer",
    "weights": "quantize_weights pack_weights nbytes save load",
    "pretrained": "from_pretrained",
    "written": "save_pretrained",
    "lora": "Adapter AdaptedMatrix lora_init lora_apply lora_merge",
    "lora_files": "lora_from_pretrained lora_save_pretrained",
    "chips": "tokens_on TokenMatrix ChipTokens",
    "genai": "export_genai load_genai GenaiModel",
}
_HOMES = _homes(_FILES)

__all__ = sorted(_HOMES)
__getattr__, __dir__ = _lazy(__name__, _HOMES)
