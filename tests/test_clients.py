"""Programs written for JAX, run on nxjax with nothing changed but the imports: they print what JAX printed.

Each program in `tests/clients` stands beside the text that it prints on JAX 0.10. Numbers may differ in the last digits
of float32; all else, dtypes, weak types and the order of keys among it, is the same.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

PROGRAMS = sorted(Path(__file__).with_name("clients").glob("*.py"))
NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|inf|nan)(?![\w.])")


def on_nxjax(source: str) -> str:
    source = re.sub(r"^import jax$", "import nxjax as jax", source, flags=re.MULTILINE)
    return re.sub(r"^(import|from) jax\b", r"\1 nxjax", source, flags=re.MULTILINE)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_prints_what_it_prints_on_jax(path: Path, capsys: pytest.CaptureFixture[str]):
    code = compile(on_nxjax(path.read_text()), str(path), "exec", dont_inherit=True)
    exec(code, {"__name__": path.stem})
    printed, golden = capsys.readouterr().out, path.with_suffix(".txt").read_text()
    words, expected = (re.sub(r"\s+", "", NUMBER.sub("#", text)) for text in (printed, golden))
    assert words == expected
    numbers, wanted = ([float(n) for n in NUMBER.findall(text)] for text in (printed, golden))
    np.testing.assert_allclose(numbers, wanted, rtol=2e-3, atol=2e-5)
