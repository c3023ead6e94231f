"""A small convolutional network as pure functions over a parameter tree."""

from __future__ import annotations

from typing import Any

import nxjax as nx
from nxjax import lax, nn

Params = dict[str, Any]


def init(key: Any) -> Params:
    """Parameters: two convolutions and two dense layers, He-initialized."""
    weights = nn.initializers.he_normal()
    conv = nn.initializers.he_normal(in_axis=-2, out_axis=-1)
    keys = nx.random.split(key, 4)
    return {
        "conv1": {"w": conv(keys[0], (3, 3, 1, 16), nx.float32), "b": nx.zeros(16)},
        "conv2": {"w": conv(keys[1], (3, 3, 16, 32), nx.float32), "b": nx.zeros(32)},
        "dense": {"w": weights(keys[2], (4 * 4 * 32, 64), nx.float32), "b": nx.zeros(64)},
        "out": {"w": weights(keys[3], (64, 10), nx.float32), "b": nx.zeros(10)},
    }


def predict(params: Params, images: Any) -> Any:
    """Logits [n, 10] of images [n, 8, 8, 1]."""
    x = images
    for name, stride in (("conv1", 1), ("conv2", 2)):
        with nx.named_scope(name):
            layer = params[name]
            x = lax.conv_general_dilated(
                x, layer["w"], (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            x = nn.relu(x + layer["b"])
    x = x.reshape(x.shape[0], -1)
    with nx.named_scope("dense"):
        x = nn.relu(x @ params["dense"]["w"] + params["dense"]["b"])
    with nx.named_scope("out"):
        return x @ params["out"]["w"] + params["out"]["b"]


def loss(params: Params, images: Any, labels: Any) -> Any:
    """Mean cross-entropy."""
    log_p = nn.log_softmax(predict(params, images))
    return -nx.mean(nx.sum(log_p * nn.one_hot(labels, 10), axis=-1))
