"""Writes the pages of the API reference, one per room of a face, from the tables of public names.

Sphinx fills in signatures and docstrings; here is only which names stand on which page. `missing` is what a test asks:
every public name of these faces is on a page.
"""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

import nxjax

# Faces, in the order of the table of contents: module -> (title, what it is).
FACES: dict[str, tuple[str, str]] = {
    "nxjax": ("nxjax", "Transforms, devices, quantization and deployment."),
    "nxjax.numpy": ("nxjax.numpy", "NumPy's functions on immutable arrays. All of them are names of `nxjax` as well."),
    "nxjax.numpy.linalg": ("nxjax.numpy.linalg", "Linear algebra."),
    "nxjax.numpy.fft": ("nxjax.numpy.fft", "Discrete Fourier transforms."),
    "nxjax.lax": ("nxjax.lax", "The strict layer: no promotion, no broadcasting; control flow and collectives."),
    "nxjax.lax.linalg": ("nxjax.lax.linalg", "Decompositions, as LAPACK gives them."),
    "nxjax.nn": ("nxjax.nn", "Activations, normalizations and attention."),
    "nxjax.nn.initializers": ("nxjax.nn.initializers", "Functions that make first weights."),
    "nxjax.random": ("nxjax.random", "Random numbers of explicit keys."),
    "nxjax.scipy": ("nxjax.scipy", "SciPy's functions on these arrays."),
    "nxjax.tree": ("nxjax.tree", "Trees of arrays."),
    "nxjax.tree_util": ("nxjax.tree_util", "Trees of arrays, under JAX's older names."),
    "nxjax.image": ("nxjax.image", "Resizing."),
    "nxjax.debug": ("nxjax.debug", "Looking into running programs."),
    "nxjax.dtypes": ("nxjax.dtypes", "Element types and promotion."),
    "nxjax.quant": ("nxjax.quant", "Calibration, observers, analysis of quantized functions."),
    "nxjax.generation": ("nxjax.generation", "Text from a decoder-only transformer."),
    "nxjax.sharding": ("nxjax.sharding", "Meshes and shardings."),
    "nxjax.export": ("nxjax.export", "Functions as files."),
    "nxjax.nas": ("nxjax.nas", "Architecture search with a target's own costs."),
    "nxjax.nas.blocks": ("nxjax.nas.blocks", "Layers that NPUs take whole, and a space of classifiers."),
    "nxjax.checkpoints": ("nxjax.checkpoints", "Training state as files."),
    "nxjax.custom_derivatives": ("nxjax.custom_derivatives", "Derivative rules of one's own."),
    "nxjax.experimental.ode": ("nxjax.experimental.ode", "Initial value problems."),
    "nxjax.custom_batching": ("nxjax.custom_batching", "Batching rules of one's own."),
    "nxjax.ad_checkpoint": ("nxjax.ad_checkpoint", "What is kept for the backward pass, and what is computed again."),
    "nxjax.ops": ("nxjax.ops", "Sums and other reductions of segments."),
    "nxjax.experimental.checkify": ("nxjax.experimental.checkify", "Checks in functions that are compiled."),
    "nxjax.experimental.jet": ("nxjax.experimental.jet", "Taylor series."),
    "nxjax.example_libraries.optimizers": ("nxjax.example_libraries.optimizers", "Optimizers that older programs use."),
    "nxjax.example_libraries.stax": ("nxjax.example_libraries.stax", "Layers that older programs use."),
    "nxjax.stages": ("nxjax.stages", "What `jit` gives on the way to a compiled program."),
    "nxjax.distributed": ("nxjax.distributed", "Several processes as one."),
    "nxjax.distributed.compress": ("nxjax.distributed.compress", "Gradients in fewer bytes."),
    "nxjax.profiler": ("nxjax.profiler", "Traces of host time."),
    "nxjax.flatten_util": ("nxjax.flatten_util", "A tree as one vector."),
    "nxjax.interop": ("nxjax.interop", "JAX functions and StableHLO as ours."),
    "nxjax.testing": ("nxjax.testing", "The laws an op keeps, as functions."),
    "nxjax.hardware": ("nxjax.hardware", "Chips by the names that guides use."),
    "nxjax.hardware.power": ("nxjax.hardware.power", "The power modes of an NPU."),
    "nxjax.hardware.thermal": ("nxjax.hardware.thermal", "Less power and other chips where one is hot."),
    "nxjax.hardware.hybrid": ("nxjax.hardware.hybrid", "Managers of several chips, by the names of guides."),
    "nxjax.hardware.amd": ("nxjax.hardware.amd", "AMD's NPU by its own tools."),
    "nxjax.hybrid": ("nxjax.hybrid", "One function over NPU, GPU and CPU."),
    "nxjax.hybrid.schedules": ("nxjax.hybrid.schedules", "Schedules of works that are given as numbers."),
    "nxjax.predict": ("nxjax.predict", "How long programs take, learned."),
    "nxjax.errors": ("nxjax.errors", "What is raised; [with an example and a fix for each](../errors.md)."),
}


def public(module: ModuleType) -> list[str]:
    """Names of a face: its `__all__`, those of its parts, or what it defines itself; submodules have their pages."""
    listed = getattr(module, "__all__", None)
    if module is nxjax:
        listed = sorted(nxjax._HOMES)
    if module.__name__ == "nxjax.ops":
        # The rest of it is the vocabulary, which docs/ops.md lists.
        listed = importlib.import_module("nxjax.lax.segments").__all__
    if listed is None:
        listed = [n for n, v in vars(module).items() if getattr(v, "__module__", None) == module.__name__]
    return [n for n in sorted(listed) if not n.startswith("_") and not inspect.ismodule(getattr(module, n))]


def rooms(module: ModuleType) -> dict[str, list[str]]:
    """Title of a page -> names on it: by file where a face has many, else all on one page."""
    names = public(module)
    table: dict[str, str] = dict(getattr(module, "_HOMES", {}))
    if len(names) <= 60 or module is nxjax:
        return {"": names}
    found: dict[str, list[str]] = {}
    for name in names:
        home = table.get(name) or getattr(getattr(module, name), "__module__", "") or ""
        found.setdefault(home.rsplit(".", 1)[-1], []).append(name)
    small = [room for room, held in found.items() if len(held) < 3]
    for room in small:
        found.setdefault("other", []).extend(found.pop(room))
    return {room.replace("_", " "): sorted(held) for room, held in sorted(found.items())}


def faces() -> dict[str, tuple[str, str]]:
    """All faces, those of `nxjax.scipy` in their order below it."""
    below = importlib.import_module("nxjax.scipy")
    found: dict[str, tuple[str, str]] = {}
    for module, said in FACES.items():
        found[module] = said
        if module == "nxjax.scipy":
            for name in sorted(n for n in dir(below) if inspect.ismodule(getattr(below, n, None))):
                if getattr(below, name).__name__.startswith("nxjax.scipy."):
                    found[f"nxjax.scipy.{name}"] = (f"nxjax.scipy.{name}", f"`scipy.{name}` on these arrays.")
    return found


BORROWED = ("numpy", "ml_dtypes", "builtins", "enum")


def entry(module: str, name: str, again: bool) -> str:
    """The directive that describes one name; ``again``: the index has it from another page."""
    value = getattr(importlib.import_module(module), name)
    options = "\n   :no-index:" if again else ""
    home = getattr(value, "__module__", None) or type(value).__module__
    if home.split(".")[0] in BORROWED:
        # What NumPy defines is described there.
        return f".. py:data:: {module}.{name}{options}\n\n   {borrowed(value, home)}\n"
    if inspect.isclass(value):
        return f".. autoclass:: {module}.{name}{options}\n   :members:\n"
    if callable(value):
        return f".. autofunction:: {module}.{name}{options}\n"
    return f".. autodata:: {module}.{name}{options}\n   :no-value:\n"


def borrowed(value: Any, home: str) -> str:
    """What NumPy and others define, by their name for it or as it is written."""
    if inspect.isclass(value):
        return f"`{home}.{value.__qualname__}`"
    written = repr(value)
    return f"an `{home.split('.')[0]}.{type(value).__qualname__}`" if " object at " in written else f"`{written}`"


def summary(value: Any) -> str:
    """The first line of a docstring, as a cell of a table; what NumPy defines has its place there."""
    home = getattr(value, "__module__", None) or type(value).__module__
    if home.split(".")[0] in BORROWED:
        return borrowed(value, home)
    if not callable(value) and inspect.getdoc(value) is None:
        return ""
    line = (inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
    return line if len(line) <= 160 else line[:160].rsplit(" ", 1)[0] + " ..."


def overview(module: str) -> str:
    """All names of a face by the alphabet, a line for each."""
    values = importlib.import_module(module)
    names = sorted(public(values), key=str.lower)
    rows = [f"| {{py:obj}}`{name} <{module}.{name}>` | {summary(getattr(values, name))} |" for name in names]
    return "\n".join(["| name | what it is |", "|---|---|", *rows]) + "\n" if rows else ""


def page(module: str, title: str, said: str, names: list[str], seen: set[int]) -> str:
    values = {name: getattr(importlib.import_module(module), name) for name in names}
    body = "\n".join(entry(module, name, id(values[name]) in seen) for name in names)
    seen.update(map(id, values.values()))
    return f"# {title}\n\n{said}\n\n```{{eval-rst}}\n{body}```\n" if names else f"# {title}\n\n{said}\n"


def pages() -> dict[str, str]:
    """File name -> text of every page."""
    found: dict[str, str] = {}
    seen: set[int] = set()
    for module, (title, said) in faces().items():
        parts = rooms(importlib.import_module(module))
        if len(parts) == 1:
            said = f"{said}\n\n{overview(module)}"
            found[f"{module}.md"] = page(module, title, said, next(iter(parts.values())), seen)
            continue
        files = {room: f"{module}-{room.replace(' ', '-')}" for room in parts}
        contents = "\n".join(files.values())
        tree = f"```{{toctree}}\n:hidden:\n:maxdepth: 1\n\n{contents}\n```"
        found[f"{module}.md"] = f"# {title}\n\n{said}\n\n{tree}\n\n{overview(module)}"
        for room, names in parts.items():
            found[f"{files[room]}.md"] = page(module, f"{title}: {room}", "", names, seen)
    contents = "\n".join(faces())
    rows = "\n".join(f"| [{title}]({module}.md) | {said} |" for module, (title, said) in faces().items())
    table = f"| module | what it has |\n|---|---|\n{rows}"
    found["index.md"] = f"# API reference\n\n```{{toctree}}\n:hidden:\n:maxdepth: 1\n\n{contents}\n```\n\n{table}\n"
    return found


def write(folder: Path) -> None:
    """Write the pages that changed, and remove those of names that are gone."""
    folder.mkdir(exist_ok=True)
    wanted = pages()
    for old in folder.glob("*.md"):
        if old.name not in wanted:
            old.unlink()
    for name, text in wanted.items():
        path = folder / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


if __name__ == "__main__":
    write(Path(__file__).parent / "reference")
