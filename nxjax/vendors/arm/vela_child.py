"""One compilation by Vela in a process of its own, run as a script: Vela is C++ and ends the process on some files.

Knows Vela's in-process interface alone and imports nothing of nxjax, so that it starts in milliseconds. Told by the
arguments where Vela lies and which folder holds the request; what Vela says goes to the streams, what it makes into
the folder, and its refusal into ``refused.txt`` there. Whatever else fails is not Vela's word, and ends the process.
"""

import json
import sys
from pathlib import Path
from typing import Any


def main(site: str, folder: str) -> None:
    """Compile ``model.tflite`` as ``request.json`` says; leave ``model_vela.tflite`` and ``report.json``."""
    sys.path.insert(0, site)
    from ethosu import regor  # type: ignore[import-not-found]

    place = Path(folder)
    request: dict[str, str] = json.loads((place / "request.json").read_text())
    model = (place / "model.tflite").read_bytes()
    try:
        made: Any = regor.compile(
            request["accelerator"], model, "TFLITE", request["system"], options=request["options"], verbose=False
        )
    except (RuntimeError, ValueError) as error:
        (place / "refused.txt").write_text(str(error))
        return
    report: Any = made.perf_report
    figures = {
        "layers": layers(made.opt_database.tables),
        "cycles": report.totalCycles,
        "npu_cycles": report.npuCycles,
        "macs": report.macCount,
        "weights": report.encodedWeights,
        "npu": report.npuOps,
        "host": report.cpuOps,
        "memories": {str(name): memory.peakUsage for name, memory in report.memories.items()},
    }
    (place / "model_vela.tflite").write_bytes(bytes(made.model))
    (place / "report.json").write_text(json.dumps(figures))


def layers(tables: Any) -> dict[str, int]:
    """Cycles of each operator of the file by its number there: of what it became, what it was fused with excepted."""
    if "perf" not in tables or "source" not in tables:
        return {}
    source, perf = tables["source"], tables["perf"]
    number = {row[source.header.index("id")]: row[source.header.index("ext_key")] for row in source.data}
    found = dict.fromkeys(number.values(), 0)
    for row in perf.data:
        key = number.get(row[perf.header.index("source_id")])
        if key is not None:
            found[key] += int(row[perf.header.index("op_cycles")])
    return found


if __name__ == "__main__":
    main(*sys.argv[1:3])
