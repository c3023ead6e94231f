"""Real models as pure functions, with seeded weights: what quantizing, compiling and placing are measured on.

Each module of `MODELS` has ``init(seed) -> params``, ``apply(params, x) -> logits``, ``example(seed) -> x`` and
``DESCRIPTION``. Batch norm is folded, so weights are those that a deployed model has.
"""

from __future__ import annotations

from types import ModuleType

from benchmarks.models import (
    ds_cnn,
    efficientnet_lite0,
    encoder,
    mobilenet_v2,
    resnet18,
    resnet50,
    tcn,
    vit,
)

MODELS: dict[str, ModuleType] = {
    "mobilenet_v2": mobilenet_v2,
    "resnet18": resnet18,
    "resnet50": resnet50,
    "efficientnet_lite0": efficientnet_lite0,
    "ds_cnn": ds_cnn,
    "vit": vit,
    "tcn": tcn,
    "encoder": encoder,
}
