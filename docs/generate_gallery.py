"""The small pictures of docs/gallery.md, from the notebooks' saved outputs: ``python docs/generate_gallery.py``.

With ``--check`` it says only whether the page has every notebook, and every picture is there. Each notebook's picture
is the one that its cell tagged ``gallery`` drew, or else its largest file.
"""

import base64
import io
import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
NOTEBOOKS = ROOT / "docs" / "notebooks"
IMAGES = ROOT / "docs" / "images"
WIDTH = 400
LARGEST_PICTURE = 30_000


def picture(path: Path) -> bytes:
    """The PNG that stands for a notebook."""
    drawn: list[bytes] = []
    for cell in json.loads(path.read_text())["cells"]:
        for output in cell.get("outputs", []):
            if png := output.get("data", {}).get("image/png"):
                y = base64.b64decode(png if isinstance(png, str) else "".join(png))
                if "gallery" in cell["metadata"].get("tags", []):
                    return y
                drawn.append(y)
    if not drawn:
        raise ValueError(f"{path.name} has no picture")
    return max(drawn, key=len)


def small(png: bytes) -> bytes:
    """A picture of the gallery's width, with a palette."""
    from PIL import Image

    with Image.open(io.BytesIO(png)) as image:
        rgb = image.convert("RGB")
        size = (WIDTH, round(rgb.height * WIDTH / rgb.width))
        y = io.BytesIO()
        palette = rgb.resize(size, Image.Resampling.LANCZOS).quantize(48, dither=Image.Dither.NONE)
        palette.save(y, "PNG", optimize=True)
    if len(y.getvalue()) > LARGEST_PICTURE:
        raise ValueError(f"a picture of {len(y.getvalue())} bytes; at most {LARGEST_PICTURE}")
    return y.getvalue()


def main() -> None:
    page = (ROOT / "docs" / "gallery.md").read_text()
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        if f"notebooks/{path.name}" not in page or f"images/gallery_{path.stem}.png" not in page:
            raise SystemExit(f"docs/gallery.md has no entry or no picture of {path.name}")
        file = IMAGES / f"gallery_{path.stem}.png"
        if "--check" not in sys.argv[1:]:
            file.write_bytes(small(picture(path)))
        elif not file.exists():
            raise SystemExit(f"{file.name} is missing: python docs/generate_gallery.py")


if __name__ == "__main__":
    main()
