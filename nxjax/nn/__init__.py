"""`nx.nn`: activations, normalizations, attention and initializers of neural networks; names and values as `jax.nn`.

`layer_norm`, `rms_norm` and `batch_norm_inference` are additions: each is one equation that devices know. So are the
modules (`Sequential`, `Conv2d`, `Linear`, ...): networks as pytrees over these functions; images are ``[n, c, h, w]``.
"""

from __future__ import annotations

import importlib as _importlib
from typing import Any as _Any

_FILES = {
    "activations": "celu elu gelu glu hard_sigmoid hard_silu hard_swish hard_tanh identity leaky_relu log1mexp "
    "log_sigmoid mish relu relu6 selu sigmoid silu soft_sign softplus sparse_plus sparse_sigmoid squareplus swish tanh",
    "softmaxes": "log_softmax logmeanexp logsumexp softmax",
    "norms": "batch_norm_inference layer_norm rms_norm standardize",
    "encodings": "one_hot",
    "attention": "dot_product_attention",
    "scaled": "get_scaled_dot_general_config scaled_dot_general scaled_matmul",
    "modules.base": "Module seed",
    "modules.containers": "Dropout Flatten Identity Lambda Residual Sequential",
    "modules.convolution": "Conv2d ConvTranspose2d",
    "modules.dense": "Embedding Linear",
    "modules.activation": "GELU ReLU ReLU6 SiLU Sigmoid Softmax Tanh",
    "modules.pooling": "AdaptiveAvgPool2d AvgPool2d MaxPool2d",
    "modules.normalization": "BatchNorm2d LayerNorm fold_batch_norms",
}
_HOMES = {name: file for file, names in _FILES.items() for name in names.split()}

__all__ = sorted((*_HOMES, "initializers"))


def __getattr__(name: str) -> _Any:
    file = _HOMES.get(name)
    if file is not None:
        found = getattr(_importlib.import_module(f"nxjax.nn.{file}"), name)
    elif name == "initializers":
        found = _importlib.import_module("nxjax.nn.initializers")
    else:
        raise AttributeError(f"module 'nxjax.nn' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*__all__]
