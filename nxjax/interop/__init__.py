"""Programs of others as functions of nxjax, and back: JAX, ONNX, TFLite, PyTorch, StableHLO, weights; nxjax as `jax`.

What is imported is an ordinary function of arrays: it traces into nxjax's ops, so `jit`, `grad`, `vmap`, `quantize` and
`compile` work on it as on one that was written here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nxjax.trace.lazy import lazy as _lazy
from nxjax.trace.lazy import module_of_name as _homes

if TYPE_CHECKING:
    from nxjax.interop.alias import Alias as Alias
    from nxjax.interop.alias import as_jax as as_jax
    from nxjax.interop.jax import from_jax as from_jax
    from nxjax.interop.jax import to_jax as to_jax
    from nxjax.interop.onnx import OnnxFunction as OnnxFunction
    from nxjax.interop.onnx import from_onnx as from_onnx
    from nxjax.interop.state_dict import load_torch as load_torch
    from nxjax.interop.tflite import TFLiteFunction as TFLiteFunction
    from nxjax.interop.tflite import from_tflite as from_tflite
    from nxjax.interop.torch import TorchFunction as TorchFunction
    from nxjax.interop.torch import from_torch as from_torch
    from nxjax.interop.torch import to_torch as to_torch
    from nxjax.interop.weights import LazyWeights as LazyWeights
    from nxjax.interop.weights import load_gguf as load_gguf
    from nxjax.interop.weights import load_npz as load_npz
    from nxjax.interop.weights import load_safetensors as load_safetensors
    from nxjax.stablehlo import StablehloFunction as StablehloFunction
    from nxjax.stablehlo import from_stablehlo as from_stablehlo

# One format needs none of the others.
_FILES = {
    "alias": "Alias as_jax",
    "jax": "from_jax to_jax",
    "onnx": "OnnxFunction from_onnx",
    "nxjax.stablehlo": "StablehloFunction from_stablehlo",
    "tflite": "TFLiteFunction from_tflite",
    "torch": "TorchFunction from_torch to_torch",
    "state_dict": "load_torch",
    "weights": "LazyWeights load_gguf load_npz load_safetensors",
}
_HOMES = _homes(_FILES)
__all__ = [*_HOMES]
__getattr__, __dir__ = _lazy(__name__, _HOMES)
