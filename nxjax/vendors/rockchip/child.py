"""RKNN Toolkit 2 in a process and a Python of its own, run as a script.

The toolkit wants older packages than nxjax does, and its compiler is C++ that ends the process on some files. This file
knows the toolkit's interface alone and imports nothing of nxjax. It reads ``request.json`` and ``model.onnx`` in the
folder that it is told, writes ``model.rknn`` and ``report.json``, and, where the request names inputs, the simulator's
``results.npz``. "refused" in the report is the toolkit's word against the model; whatever else fails ends the process.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def main(folder: str) -> None:
    """Load, build, export; then simulate."""
    import numpy as np
    from rknn.api import RKNN  # type: ignore[import-not-found]

    place = Path(folder)
    request: dict[str, Any] = json.loads((place / "request.json").read_text())
    toolkit: Any = RKNN(verbose=True)
    toolkit.config(**request["config"])
    dataset = request["dataset"] or None
    steps: dict[str, Callable[[], int]] = {
        "load_onnx": lambda: toolkit.load_onnx(model=str(place / "model.onnx")),
        "build": lambda: toolkit.build(do_quantization=dataset is not None, dataset=dataset),
        "export_rknn": lambda: toolkit.export_rknn(str(place / "model.rknn")),
    }
    refused = next((f"{what} ended with {status}" for what, step in steps.items() if (status := step())), "")
    (place / "report.json").write_text(json.dumps({"refused": refused, "compiled": not refused}))
    if refused or not request["inputs"]:
        return
    if toolkit.init_runtime(target=None):
        raise SystemExit("the simulator does not start")
    given = [np.load(place / name) for name in request["inputs"]]
    # "nchw" takes arrays as they are.
    made = toolkit.inference(inputs=given, data_format=["nchw"] * len(given))
    np.savez(place / "results.npz", **{str(i): y for i, y in enumerate(made)})


if __name__ == "__main__":
    main(sys.argv[1])
