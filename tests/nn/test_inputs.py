"""What networks take, where their layers say it."""

import numpy as np
import pytest

from nxjax import nn
from nxjax.errors import ParameterError
from nxjax.nn.modules.inputs import input_shape, random_inputs


def network(channels, size):
    half = nn.Conv2d(channels, channels, 3, stride=2, padding=1)
    return nn.Sequential(nn.Conv2d(1, channels, 3, padding=1), half, nn.Linear(channels * size * size // 4, 4))


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (nn.Sequential(nn.Linear(7, 3)), (1, 7)),
        (network(16, 32), (1, 1, 32, 32)),
        (nn.Sequential(nn.Residual(nn.Conv2d(3, 3, 1)), nn.Linear(3 * 13 * 13, 2)), (1, 3, 13, 13)),
        (nn.Sequential(nn.Sequential(nn.Conv2d(1, 2, 5)), nn.Linear(2 * 24 * 24, 2)), (1, 1, 28, 28)),
    ],
)
def test_input_shapes_that_layers_say(model, shape):
    assert input_shape(model) == shape


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.ReLU()),
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Linear(4, 2)),
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.Linear(1009, 2)),
        lambda x: x,
    ],
)
def test_input_shapes_that_they_do_not(model):
    with pytest.raises(ParameterError, match="pass input_shape"):
        input_shape(model)


def test_random_inputs_are_what_the_first_layer_takes():
    first, second = random_inputs(nn.Sequential(nn.Residual(nn.Embedding(7, 4))), (3, 50), 2)
    assert first.dtype == np.int32 and first.min() >= 0 and first.max() < 7 and not np.array_equal(first, second)
    (x,) = random_inputs(lambda v: v, (2, 3), 1)
    assert x.dtype == np.float32 and x.shape == (2, 3)
