"""Execute notebooks of docs/notebooks and save them with their outputs: ``python docs/run_notebooks.py [name ...]``.

What is saved depends on the notebook only: no times of execution, no paths of this machine, pictures small. The site
shows the saved outputs; a test executes the cells.
"""

import base64
import io
import os
import re
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
NOTEBOOKS = ROOT / "docs" / "notebooks"
# Pictures are drawn with few colours, and a palette of these is a third of their bytes.
COLOURS = 128
LARGEST_PICTURE = 60_000
# What differs between two runs on two machines, and what stands in its place.
MACHINE = [
    (re.compile(r"[^\s\"'<>(]*ipykernel_\d+/\d+\.py"), "notebook"),
    (re.compile(r"\b\d{6,10}\.py(?=:\d)"), "notebook"),
    (re.compile(re.escape(str(ROOT)) + "/"), ""),
    (re.compile(r"\b\d{5,}\.py:(?=\d)"), "notebook:"),
]
# Folders of whoever runs this, and addresses.
PLACES = (str(Path.home()), tempfile.gettempdir(), sys.prefix, "site-packages")
FORBIDDEN = re.compile("|".join((*map(re.escape, PLACES), r"\bat 0x[0-9a-f]{6,}")))


def cleaned(text: str) -> str:
    for pattern, instead in MACHINE:
        text = pattern.sub(instead, text)
    return text


def smaller(png: str) -> str:
    """A PNG picture (base64) with a palette and without what its writer said of itself."""
    from PIL import Image

    with Image.open(io.BytesIO(base64.b64decode(png))) as image:
        flat = Image.new("RGB", image.size, "white")
        flat.paste(image, mask=image.getchannel("A") if "A" in image.getbands() else None)
    y = io.BytesIO()
    flat.quantize(COLOURS, dither=Image.Dither.NONE).save(y, "PNG", optimize=True)
    return base64.b64encode(y.getvalue()).decode()


def clean_output(output, where: str) -> None:
    """In place: an output without what belongs to this machine or this run."""
    output.pop("transient", None)
    if output["output_type"] == "error":
        raise ValueError(f"{where}: {output['ename']}: {output['evalue']}")
    if "text" in output:
        output["text"] = cleaned(output["text"])
    data = output.get("data", {})
    for kind, value in data.items():
        if kind == "image/png":
            data[kind] = value = smaller(value)
            if len(value) * 3 // 4 > LARGEST_PICTURE:
                raise ValueError(f"{where}: a picture of {len(value) * 3 // 4} bytes; at most {LARGEST_PICTURE}")
        elif isinstance(value, str):
            data[kind] = cleaned(value)
    shown = [output.get("text", ""), *(v for k, v in data.items() if isinstance(v, str) and k != "image/png")]
    for text in shown:
        if found := FORBIDDEN.search(text):
            raise ValueError(f"{where}: prints {text[max(0, found.start() - 40) : found.end() + 40]!r}")


def clean(notebook, name: str) -> None:
    """In place: an executed notebook as it is stored."""
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for i, cell in enumerate(notebook.cells):
        cell.id = f"cell-{i}"
        cell.metadata.pop("execution", None)
        if cell.cell_type != "code":
            continue
        joined = []
        for output in cell.outputs:
            clean_output(output, f"{name}, cell {i}")
            # Prints reach the kernel's client in pieces that differ from run to run.
            if joined and "name" in output and output["name"] == joined[-1].get("name"):
                joined[-1]["text"] += output["text"]
            else:
                joined.append(output)
        cell.outputs = joined


def run(path: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    start = time.perf_counter()
    # Bars have times in them. The kernel has these variables.
    os.environ["NXJAX_PROGRESS"] = "0"
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=240, kernel_name="python3", resources={"metadata": {"path": str(ROOT)}}).execute()
    clean(notebook, path.name)
    nbformat.validate(notebook)
    nbformat.write(notebook, path)
    print(f"{path.name}: {time.perf_counter() - start:.1f} s, {path.stat().st_size // 1000} KB")


def main() -> None:
    names = [name.removesuffix(".ipynb") for name in sys.argv[1:]]
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        if not names or path.stem in names:
            run(path)


if __name__ == "__main__":
    main()
