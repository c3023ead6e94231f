"""The house keeps its order: who may import whom, what import costs, what every file has."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "nxjax"
FILES = sorted(PACKAGE.rglob("*.py"))

# room -> rooms it may import
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "whole": set(),
    "display": set(),
    "config": {"errors"},
    "trace": {"errors", "config", "display"},
    "ops": {"errors", "config", "display", "trace"},
    "transforms": {"errors", "config", "display", "trace", "ops"},
    "kernels": {"errors", "config", "display", "whole", "trace", "ops"},
    "lower": {"errors", "config", "display", "whole", "trace", "ops", "transforms", "kernels"},
    "backends": {"errors", "config", "display", "whole", "trace", "ops", "transforms", "kernels", "lower"},
}
CORE = set(ALLOWED)
FACES = {
    "numpy", "lax", "nn", "random", "scipy", "tree", "tree_util", "flatten_util", "dtypes", "debug", "typing", "core",
    "custom_derivatives", "ad_checkpoint", "experimental", "example_libraries", "ops", "sharding",
}  # fmt: skip
VENDORS = {
    "jax", "jaxlib", "libtpu", "scipy", "sklearn", "matplotlib", "tqdm", "torch", "tensorflow", "safetensors",
    "openvino", "onnx", "onnxruntime", "onnxruntime_qnn", "ai_edge_litert", "ethosu", "coremltools", "flatbuffers",
}  # fmt: skip
# Where a vendor's package may be named, inside functions.
NPU = ("lower/npu/formats", "backends/npu")
VENDOR_ROOMS = {
    "jaxlib": ("backends/xla", "backends/tpu"),
    "libtpu": ("backends/xla", "backends/tpu"),
    "jax": ("trace/tree.py", "interop/jax.py"),
    "sklearn": ("demo",),
    "matplotlib": ("demo", "quant", "deploy", "profiling"),
    "tqdm": ("demo", "debug", "progress.py"),
    "safetensors": ("quant",),
    **dict.fromkeys(
        (
            "openvino",
            "onnx",
            "onnxruntime",
            "onnxruntime_qnn",
            "ai_edge_litert",
            "ethosu",
            "coremltools",
            "flatbuffers",
        ),
        NPU,
    ),
}


def room(path: Path) -> str:
    part = path.relative_to(PACKAGE).parts[0]
    return part.removesuffix(".py")


def imports(path: Path) -> list[tuple[str, bool]]:
    """Imported modules, and whether the import stands at the top of the file."""
    tree = ast.parse(path.read_text())
    found = []
    for node in ast.walk(tree):
        top = node in tree.body
        if isinstance(node, ast.Import):
            found += [(alias.name, top) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.append((node.module or "", top))
            if node.module in ("nxjax", "nxjax.trace", "nxjax.ops"):
                found += [(f"{node.module}.{alias.name}", top) for alias in node.names]
    return found


@pytest.mark.parametrize("path", [f for f in FILES if room(f) in CORE], ids=lambda p: str(p.relative_to(PACKAGE)))
def test_rooms_import_only_what_lies_below_them(path: Path):
    own = room(path)
    for name, _ in imports(path):
        parts = name.split(".")
        if parts[0] == "nxjax" and len(parts) > 1:
            assert parts[1] in ALLOWED[own] | {own}, f"{path.name} imports {name}"


@pytest.mark.parametrize("path", [f for f in FILES if room(f) in FACES], ids=lambda p: str(p.relative_to(PACKAGE)))
def test_faces_do_not_reach_for_backends(path: Path):
    for name, _ in imports(path):
        assert not name.startswith(("nxjax.backends", "nxjax.lower")), f"{path.name} imports {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_vendor_packages_stay_in_their_room(path: Path):
    relative = str(path.relative_to(PACKAGE))
    for name, top in imports(path):
        vendor = name.split(".")[0]
        if vendor in VENDORS:
            assert relative.startswith(VENDOR_ROOMS.get(vendor, ("nowhere",))), f"{relative} imports {name}"
            assert not top, f"{relative} imports {name} at the top"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_files_say_what_they_are_for_and_stay_short(path: Path):
    text = path.read_text()
    assert ast.get_docstring(ast.parse(text)), "a module docstring is missing"
    assert text.count("\n") <= 700, "more than one subject?"


def test_import_loads_no_vendor_package():
    code = "import sys, nxjax, nxjax.numpy; print(sorted({m.split('.')[0] for m in sys.modules}))"
    loaded = set(ast.literal_eval(subprocess.check_output([sys.executable, "-c", code], text=True)))
    assert not loaded & VENDORS


WORDS = ("/wo" + "rk/", "/op" + "t/", "/ro" + "ot/", "TO" + "DO", "FIX" + "ME")


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_no_file_names_a_machine_or_leaves_a_note_to_do(path: Path):
    text = path.read_text()
    assert not [w for w in WORDS if w in text]
