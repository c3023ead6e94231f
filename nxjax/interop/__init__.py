"""Programs of others as functions of nxjax, and back: JAX, ONNX, TFLite, PyTorch, StableHLO, weights; nxjax as `jax`.

What is imported is an ordinary function of arrays: it traces into nxjax's ops, so `jit`, `grad`, `vmap`, `quantize` and
`compile` work on it as on one that was written here.
"""

from nxjax.interop.alias import Alias, as_jax
from nxjax.interop.jax import from_jax, to_jax
from nxjax.interop.onnx import OnnxFunction, from_onnx
from nxjax.interop.stablehlo import StablehloFunction, from_stablehlo
from nxjax.interop.tflite import TFLiteFunction, from_tflite
from nxjax.interop.torch import TorchFunction, from_torch, to_torch
from nxjax.interop.weights import LazyWeights, load_gguf, load_npz, load_safetensors, load_torch

__all__ = [
    "Alias",
    "LazyWeights",
    "OnnxFunction",
    "StablehloFunction",
    "TFLiteFunction",
    "TorchFunction",
    "as_jax",
    "from_jax",
    "from_onnx",
    "from_stablehlo",
    "from_tflite",
    "from_torch",
    "load_gguf",
    "load_npz",
    "load_safetensors",
    "load_torch",
    "to_jax",
    "to_torch",
]
