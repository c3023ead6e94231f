"""One compilation by Intel's NPU compiler in a process of its own, run as a script.

The compiler is C++ that ends its process on some models, and it says its estimates only on standard output. This file
knows OpenVINO's Python interface alone and imports nothing of nxjax. It reads ``request.json`` and ``model.xml`` in
the folder it is told, writes ``report.json`` after every step, and ``model.blob`` last. "refused" in the report are
the compiler's words; whatever else fails is this file's own failure, or OpenVINO's, and ends the process.
"""

import json
import sys
from pathlib import Path
from typing import Any


def main(folder: str) -> None:
    """Ask what the NPU plugin takes, then compile."""
    # Without it OpenVINO sends no message home when it is imported.
    modules: dict[str, Any] = sys.modules
    modules["openvino_telemetry"] = None
    import openvino  # type: ignore[import-not-found]

    place = Path(folder)
    config: dict[str, Any] = json.loads((place / "request.json").read_text())
    report: dict[str, Any] = {"version": "", "devices": [], "supported": None, "refused": "", "compiled": False}

    def write() -> None:
        (place / "report.json").write_text(json.dumps(report))

    core: Any = openvino.Core()
    report["version"] = str(getattr(openvino, "__version__", ""))
    report["devices"] = [str(d) for d in core.available_devices]
    model: Any = core.read_model(str(place / "model.xml"))
    write()
    try:
        report["supported"] = sorted(core.query_model(model, "NPU", config))
        write()
        compiled: Any = core.compile_model(model, "NPU", config | {"LOG_LEVEL": "LOG_INFO"})
    except RuntimeError as error:
        report["refused"] = str(error)
        write()
        return
    blob: Any = compiled.export_model()
    # A stream from OpenVINO 2026.4 on, bytes before.
    (place / "model.blob").write_bytes(bytes(blob.getbuffer() if hasattr(blob, "getbuffer") else blob))
    report["compiled"] = True
    write()


if __name__ == "__main__":
    main(sys.argv[1])
