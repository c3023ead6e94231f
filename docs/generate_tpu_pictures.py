"""Draw the pictures of docs/tpu.md from what Google's compiler says. ``python docs/generate_tpu_pictures.py``."""

from pathlib import Path

import nxjax as nx
from nxjax.backends.tpu import picture

IMAGES = Path(__file__).parent / "images"


def dense(params, x):
    return nx.nn.relu(x @ params["w"] + params["b"])


def main() -> None:
    types = {"w": nx.ShapeDtypeStruct((300, 70), "bfloat16"), "b": nx.ShapeDtypeStruct((70,), "bfloat16")}
    report = nx.explain(dense, target="tpu-v5e")(types, nx.ShapeDtypeStruct((1000, 300), "bfloat16"))
    analysis = report.analysis
    largest = sorted(analysis.arguments + analysis.results, key=lambda b: -b.padded)[:3]
    (IMAGES / "tpu_layout.svg").write_text(picture.layouts(largest) + "\n")
    (IMAGES / "tpu_roofline.svg").write_text(analysis.roofline.svg() + "\n")


if __name__ == "__main__":
    main()
