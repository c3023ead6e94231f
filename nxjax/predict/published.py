"""Published times of networks on the Edge TPU, to fit and to judge models of a chip that is not here.

Times: coral.ai/docs/edgetpu/benchmarks, table 1, a desktop with the USB Accelerator on USB 3.0, the model alone. Work
and parameters: OpenVINO's Open Model Zoo, models/public/index.md, where a multiply-accumulate is two operations; of
ResNets at 299 x 299 pixels counted from their layers, as Keras has them. Left out are networks of which a part runs on
the host (SSD, DeepLab, U-Net), those without a published count (EfficientNet-EdgeTPU), and Inception-ResNet V2, on
whose parameters sources disagree.
"""

from __future__ import annotations

from typing import Final

from nxjax.lower.npu.chips import chip
from nxjax.predict.samples import Sample

# Name, pixels, multiply-accumulates and parameters by 1e9 and 1e6, milliseconds.
_ROWS: Final = (
    ("DenseNet-121", 224, 2.864, 7.971, 20.0),
    ("Inception v1", 224, 1.508, 6.619, 3.4),
    ("Inception v4", 299, 12.292, 42.648, 85.0),
    ("MobileNet v1", 224, 0.574, 4.221, 2.4),
    ("MobileNet v2", 224, 0.3075, 3.489, 2.6),
    ("ResNet-50 v1", 299, 7.212, 25.504, 49.0),
    ("ResNet-50 v2", 299, 6.536, 25.504, 50.0),
    ("ResNet-152 v2", 299, 20.211, 60.041, 128.0),
    ("SqueezeNet", 224, 0.8685, 1.248, 2.1),
    ("VGG16", 224, 15.487, 138.358, 296.0),
    ("VGG19", 224, 19.65, 143.667, 308.0),
)
SOURCE: Final = "published: coral.ai/docs/edgetpu/benchmarks"


def edge_tpu() -> list[Sample]:
    """The networks as samples for ``nx.predict.fit("edgetpu", edge_tpu())``, with the roofline from nxjax's table of
    chips.

    >>> samples = edge_tpu()
    >>> len(samples), samples[-1].name, samples[-1].seconds
    (11, 'VGG19', 0.308)
    """
    on = chip("edgetpu")
    found: list[Sample] = []
    for name, pixels, macs, parameters, milliseconds in _ROWS:
        work, weights = macs * 1e9, parameters * 1e6
        sent, moved = max(weights - on.cache, 0.0), 3.0 * pixels**2 + 1000
        values = {"runs": 1.0, "macs": work, "bytes of weights sent": sent, "bytes of inputs and results": moved}
        modelled = (on.launch or 0.0) + max(work / on.macs["int8"], sent / on.bandwidth) + moved / on.link
        found.append(Sample(name, values, modelled, milliseconds / 1e3, "measured"))
    return found
