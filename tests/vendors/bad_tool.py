"""A vendor's tool that does not do its work, run in the real one's place: ``bad_tool.py PLAN command...``.

Knows what each tool that nxjax starts is asked to leave, so that its lies are whole: the file, the log, the report.
What is asked to find a tool is answered well. ``PLAN`` is a folder with ``kind``, and the files that another network's
compilation would leave; ``work`` is there once work was asked. A command that has no row here ends with 99 and is
written to ``unknown``.
"""

import hashlib
import json
import os
import sys
import time
from pathlib import Path

FIGURES = {"layers": {}, "cycles": 5, "npu_cycles": 5, "macs": 1, "weights": 1, "npu": 3, "host": 0, "memories": {}}
MEMORY = ("argument_size", "output_size", "temp_size", "generated_code_size", "alias_size", "peak_memory")
PARTITION = "Partitioned subgraph<0>, selected 3 ops, from a total of 3 ops. resulted in 1\n"
ROW = "D RKNN: [10:00:00.000] {}    Conv    INT8    NPU    (1,3,8,8)    (1,16,8,8)    9/23/23    18    Conv:{}"


def flag(args: list[str], name: str) -> str:
    return next((a.partition("=")[2] for a in args if a.startswith(f"--{name}=")), "")


def finds(args: list[str]) -> str:
    """What a tool says where it is only looked for; empty where work is asked."""
    code = args[args.index("-c") + 1] if "-c" in args and args.index("-c") + 1 < len(args) else ""
    if "import popart" in code:
        return "DeviceManager"
    if "import rknn" in code:
        return "RKNN 2.5.0"
    if "--version" in args:
        return "version 1.0"
    if "--list-devices" in args:
        return " "
    sources = [Path(a) for a in args if a.endswith(".cpp")]
    text = "".join(p.read_text() for p in sources if p.exists())
    if len(sources) == 1 and text.startswith("#error"):
        raise SystemExit(1)
    if len(sources) == 1 and "class Smallest" in text:
        Path("codelets.gp").write_text(hashlib.sha256(text.encode()).hexdigest())
        return " "
    return ""


def asked(args: list[str]) -> tuple[list[str], dict[str, object], str, str] | None:
    """Files to leave, reports to leave, what to print, and the file that was given, by the command."""
    name = Path(args[0]).name
    scripts = {Path(a).parent.name + "/" + Path(a).name for a in args if a.endswith(".py")}
    if "arm/vela_child.py" in scripts:
        return ["model_vela.tflite"], {"report.json": FIGURES}, "", "model.tflite"
    if "intel/child.py" in scripts:
        report = {"version": "2026", "devices": ["NPU"], "supported": [], "refused": "", "compiled": True}
        return ["model.blob"], {"report.json": report}, "Estimated inference latency: 18.73 us", "model.xml"
    if "rockchip/child.py" in scripts:
        return ["model.rknn", "results.npz"], {"report.json": {"refused": "", "compiled": True}}, rows(), "model.onnx"
    if "tpu/child.py" in scripts:
        modules = json.loads(Path("request.json").read_text())["modules"]
        one = {"memory": dict.fromkeys(MEMORY, 1), "cost": {}, "seconds": 1.0, "switched_off": []}
        device = {"id": 0, "kind": "TPU", "coords": [0, 0, 0], "core": 0, "process": 0}
        answer = {"version": "1", "devices": [device] * 8, "modules": [one] * len(modules)}
        left = [f"{m}.{end}" for m in modules for end in ("bin", "hlo")]
        return left, {"answer.json": answer}, "", modules[0] if modules else "request.json"
    if name == "edgetpu_compiler":
        said = "Edge TPU Compiler version 16.0\nNumber of operations that will run on Edge TPU: 3\n"
        return ["model_edgetpu.tflite"], {}, said, "model.tflite"
    if name == "apply_plugin_main":
        return [flag(args, "o")], {}, PARTITION, flag(args, "model")
    if "run_popart.py" in args:
        model = next(iter(Path.cwd().glob("*.onnx"))).name
        return ["model.popef", *args[3:4]], {}, "", model if len(args) < 4 else args[2]
    if name == "clang++":
        return [args[args.index("-o") + 1]], {}, "", args[args.index("-c") + 1]
    if name == "aiecc":
        return [flag(args, "xclbin-name"), flag(args, "npu-insts-name")], {}, "", args[-1]
    if name == "popc":
        return ["codelets.gp"], {}, "", next(a for a in args if a.endswith(".cpp"))
    if args[:2] == ["sh", "build.sh"]:
        return ["codelets.gp", "program"], {}, "", "main.cpp"
    return None


def rows() -> str:
    import onnx

    try:
        return "\n".join(ROW.format(i, n.name) for i, n in enumerate(onnx.load("model.onnx").graph.node))
    except Exception:
        return ""


def another(plan: Path, name: str) -> bytes:
    """What the tool would leave of another network, by the end of the file's name."""
    held = plan / Path(name).suffix.lstrip(".")
    return held.read_bytes() if held.exists() else b"what is left of another network"


def main(plan: Path, args: list[str]) -> None:
    kind = (plan / "kind").read_text()
    if found := finds(args):
        print(found)
        return
    (plan / "work").touch()
    if kind == "fails":
        print("internal error", file=sys.stderr)
        raise SystemExit(1)
    if kind == "hangs":
        time.sleep(600)
    if kind == "writes nothing":
        print("Compiled successfully.")
        return
    if any("nxjax.vendors.qualcomm.worker" in a for a in args):
        # A child that is talked to: its input is a message, and so is what it answers.
        if kind == "copies":
            size = sys.stdin.buffer.read(8)
            head = sys.stdin.buffer.read(int.from_bytes(size, "little"))
            sys.stdout.buffer.write(size + head + sys.stdin.buffer.read(sum(json.loads(head)["blobs"])))
        elif kind == "garbage":
            sys.stdout.buffer.write(b"compiled " * 1000)
        else:
            head = json.dumps(
                {"where": {}, "reasons": {}, "targets": [], "hardware": True, "runtime": "1", "blobs": [5]}
            )
            sys.stdout.buffer.write(len(head).to_bytes(8, "little") + head.encode() + b"other")
        return
    found = asked(args)
    if found is None:
        with (plan / "unknown").open("a") as file:
            file.write(" ".join(args) + "\n")
        raise SystemExit(99)
    files, reports, said, given = found
    data = Path(given).read_bytes() if os.path.exists(given) else b""
    for name in files:
        Path(name).write_bytes({"garbage": b"garbage", "copies": data}.get(kind) or another(plan, name))
    for name, report in reports.items():
        Path(name).write_text(json.dumps(report))
    print(said)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
