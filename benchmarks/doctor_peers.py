"""What others say of a file that the doctor examines: winml-cli's rules, and Qualcomm's own compiler and simulator.

    python benchmarks/doctor_peers.py --winml PATH/TO/winml model.onnx [input=1,3,48,192 ...] [other.onnx ...]

Inputs get whole shapes first, and shapes are inferred, since neither of the others takes open ones. Each line is of one
file: how many nodes ONNX Runtime gives the QNN provider and why not the others, what ``winml analyze`` says of its
nodes (supported, partly, not, unknown), and how many ops the doctor finds on the chip, in float and in int8.
"""

import argparse
import collections
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx

import nxjax as nx
from nxjax.vendors.qualcomm.worker import Provider, QnnRefusal


def whole(path: str, shapes: dict[str, tuple[int, ...]], folder: str) -> Path:
    """A copy with these input shapes, and the shapes of all values that follow."""
    model = onnx.load(path)
    for x in model.graph.input:
        for d, n in zip(x.type.tensor_type.shape.dim, shapes.get(x.name, ()), strict=False):
            d.ClearField("dim_param")
            d.dim_value = n
    del model.graph.value_info[:]
    for i, node in enumerate(model.graph.node):
        node.name = node.name or f"node_{i}"
    for y in model.graph.output:
        y.type.tensor_type.ClearField("shape")
    found = Path(folder, Path(path).name)
    onnx.save(onnx.shape_inference.infer_shapes(model, data_prop=True), found)
    return found


def of_winml(winml: str, path: Path, provider: str) -> str:
    done = subprocess.run(
        [winml, "--no-color", "analyze", "-m", path, "--ep", provider, "-d", "npu"], capture_output=True, text=True
    )
    # Its tables go to standard error.
    found = re.findall(r"ExecutionProvider \(NPU\): ([0-9/]+)", done.stdout + done.stderr)
    error = re.search(r"Error: (.*)", done.stdout + done.stderr)
    return found[-1] if found else f"error: {error[1]}" if error else "no answer"


def of_qualcomm(provider: Provider, path: Path) -> str:
    """ONNX Runtime with the QNN provider: where it puts each node of this very file."""
    try:
        options = {"backend_type": "htp", "htp_arch": "73", "soc_model": "43"}
        answer, _ = provider.load({"id": 0, "options": options}, path.read_bytes())
    except QnnRefusal as error:
        return f"refused: {str(error)[:150]}"
    types = {n.name: n.op_type for n in onnx.load(path).graph.node}
    # ONNX Runtime folds constants before it asks the provider: what is gone is nobody's.
    where = collections.Counter(provider for provider, _ in answer["where"].values())
    left = collections.Counter(
        f"{op}: {answer['reasons'].get(name, 'no reason given')}"
        for name, (provider, op) in answer["where"].items()
        if "QNN" not in provider
    )
    return f"{dict(where)} of {len(types)}; " + "; ".join(f"{n} {k[:90]}" for k, n in left.most_common(6))


def of_doctor(path: Path, targets: tuple[str, ...]) -> str:
    found = [
        (policy, t)
        for policy in ("float32", "int8")
        for t in nx.deploy.doctor(path, targets=targets, policy=policy, progress=False).targets
    ]
    words = lambda t: f"{t.placement} {dict(collections.Counter(r[0] for r in t.refused)) or ''}"
    return "; ".join(f"{t.target} {policy}: {t.state}, {words(t)}" for policy, t in found)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--winml", default="winml")
    parser.add_argument("model", nargs="+")
    given = parser.parse_args(arguments)
    files: list[tuple[str, dict[str, tuple[int, ...]]]] = []
    for word in given.model:
        name, equals, sizes = word.rpartition("=")
        if equals:
            files[-1][1][name] = tuple(map(int, sizes.split(",")))
        else:
            files.append((word, {}))
    np.seterr(all="ignore")
    qualcomm = Provider()
    with tempfile.TemporaryDirectory() as folder:
        for path, shapes in files:
            file = whole(path, shapes, folder)
            print(f"{file.name}: {len(onnx.load(file).graph.node)} nodes")
            for provider in ("qnn", "openvino"):
                print(f"  winml {provider}: {of_winml(given.winml, file, provider)}")
            print(f"  ONNX Runtime with QNN: {of_qualcomm(qualcomm, file)}")
            print(f"  doctor: {of_doctor(file, ('qualcomm-htp', 'intel-npu'))}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
