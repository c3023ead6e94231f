"""`nx.nn`: activations, normalizations, attention and initializers of neural networks; names and values as `jax.nn`.

`layer_norm`, `rms_norm` and `batch_norm_inference` are additions: each is one equation that devices know. So are the
modules (`Sequential`, `Conv2d`, `Linear`, ...): networks as pytrees over these functions; images are ``[n, c, h, w]``.
"""

from __future__ import annotations

from nxjax.trace.lazy import lazy as _lazy
from nxjax.trace.lazy import module_of_name as _homes

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
_HOMES = _homes(_FILES)

__all__ = sorted((*_HOMES, "initializers"))
__getattr__, __dir__ = _lazy(__name__, _HOMES, ("initializers",))
