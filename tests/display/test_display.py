"""Pages and pictures for notebooks: well formed, self-contained, escaped, without ids; what they show is there."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

import nxjax as nx
from nxjax.display import layers, page

SVG = "{http://www.w3.org/2000/svg}"
VOID = {"meta", "br", "image", "path", "rect"}


class Page(HTMLParser):
    """Checks what every page must be, and keeps its words."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        assert not self.open, self.open
        assert "http" not in text.replace("http://www.w3.org/2000/svg", "")

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert tag not in ("script", "link", "iframe"), tag
        names = dict(attrs)
        assert "id" not in names and not any(n.startswith("on") for n in names)
        assert all(names[k].startswith("data:image/png") for k in ("href", "src") if k in names)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.words)


def shown(x: Any) -> str:
    return Page(x._repr_html_()).text


def model(w: Any, x: Any) -> Any:
    with nx.named_scope("dense<script>alert(1)</script>"):
        y = nx.tanh(x @ w)
        with nx.named_scope("inner"):
            y = y * y + 1.0
    return nx.lax.cond(y.sum() > 0, lambda y: y * 2, nx.sin, y)


def boxes(svg: str) -> list[tuple[float, float, float, float]]:
    found = []
    for rect in ET.fromstring(svg).iter(f"{SVG}rect"):
        if "stroke-dasharray" not in rect.attrib:
            found.append(tuple(float(rect.attrib[k]) for k in ("x", "y", "width", "height")))
    return found


def test_a_program_is_drawn_with_its_scopes_types_and_inner_programs():
    program = nx.make_jaxpr(model)(nx.ones((3, 4)), nx.ones((2, 3)))
    text = shown(program)
    for word in ("dense<script>alert(1)</script>", "inner", "dot_general", "c:f32[2,4]", "branches[1]", "sin", "cond"):
        assert word in text
    assert f"{__name__.rpartition('.')[2]}.py:" in text  # a tip names the user's line
    root = ET.fromstring(program.to_svg())
    labels = [t.text for t in root.iter(f"{SVG}text")]
    assert [labels.count(e.op.name) for e in program.equations] == [
        sum(e.op.name == f.op.name for f in program.equations) for e in program.equations
    ]
    assert {f"{v.type}" for v in program.inputs} <= {(t or "").partition(":")[2] for t in labels}


def test_boxes_of_a_hundred_equations_do_not_overlap():
    def f(x: Any, y: Any) -> Any:
        for i in range(12):
            with nx.named_scope(f"block{i % 3}"):
                x, y = nx.sin(x) * y + x, nx.cos(y) - x.sum() * 3.0
        return x, y

    program = nx.make_jaxpr(f)(nx.ones(3), nx.ones(3))
    assert 80 < len(program.equations) <= 110
    found = sorted(boxes(program.to_svg()))
    assert len(found) == len(program.equations) + 4
    for i, (x, y, w, h) in enumerate(found):
        for a, b, _, d in found[i + 1 :]:
            assert a >= x + w or b >= y + h or y >= b + d


@pytest.mark.parametrize("scoped", [True, False])
def test_a_large_program_is_folded_and_says_so(scoped):
    def f(x: Any) -> Any:
        for i in range(40):
            with nx.named_scope(f"block{i}" if scoped else ""):
                for _ in range(15):
                    x = nx.sin(x) + x
        return x

    program = nx.make_jaxpr(f)(nx.ones(3))
    assert len(program.equations) == 1200
    assert len(boxes(program.to_svg())) <= 112
    page_text = program._repr_html_()
    assert len(page_text) < 1_500_000
    text = Page(page_text).text
    assert "30 equations" in text if scoped else "equations 61 to 120" in text
    assert text.count("sin") >= 1200 or "Not drawn" in text


def test_programs_of_odd_shapes():
    for program in (
        nx.make_jaxpr(lambda: ())(),
        nx.make_jaxpr(lambda x: x)(1.0),
        nx.make_jaxpr(lambda x: (x, x, 3.0))(1.0),
        nx.make_jaxpr(lambda x: nx.numpy.linalg.qr(x))(nx.eye(3)),
        nx.make_jaxpr(nx.grad(lambda x: nx.lax.scan(lambda c, _: (nx.sin(c), c), x, None, 5)[0]))(1.0),
        nx.make_jaxpr(lambda x: x + np.arange(100_000.0))(1.0),
    ):
        shown(program)
        ET.fromstring(program.to_svg())


def test_a_program_is_saved_as_picture_page_or_text(tmp_path):
    program = nx.make_jaxpr(nx.sin)(1.0)
    for name in ("x.svg", "x.html", "x.txt"):
        program.save(tmp_path / name)
    ET.parse(tmp_path / "x.svg")
    assert "sin" in Page((tmp_path / "x.html").read_text().replace("<!doctype html>", "")).text
    assert (tmp_path / "x.txt").read_text() == str(program)


ARRAYS: list[tuple[Any, list[str]]] = [
    (nx.arange(6.0).reshape(2, 3), ["float32", "(2, 3)", "24 bytes", "mean 2.5", "[3., 4., 5.]"]),
    (nx.float32(3.5), ["()", "value 3.5"]),
    (2 * nx.array(1.0), ["weak" if (2 * nx.array(1.0)).weak_type else "value 2.0"]),
    (nx.zeros((0, 3)), ["(0, 3)", "Array([]"]),
    (nx.array([[3 + 4j, 0]]), ["complex64", "|x| max 5"]),
    (nx.array([1.0, np.nan, np.inf, 3]), ["NaN 1", "infinite 1", "max 3"]),
    (nx.array([np.nan, np.nan]), ["NaN 2"]),
    (nx.eye(8) > 0, ["true 8", "false 56"]),
    (nx.random.key(0), ["random key"]),
    (nx.random.split(nx.random.key(0), 3), ["random key", "(3,)"]),
    (nx.ones((2, 3, 40, 50), nx.bfloat16), ["bfloat16", "mean 1", "x[0, 0], 40 x 50"]),
    (nx.arange(8).astype(nx.int4), ["int4", "min 0"]),
    (nx.array([2**63], dtype=nx.uint64), ["9,223,372,036,854,775,808"]),
    (nx.array([1.7e308, -1.7e308] * 20, dtype=nx.float64), ["1.7e+308"]),
    (nx.device_put(nx.ones(3), nx.devices()[0]), ["on "]),
]


@pytest.mark.parametrize("i", range(len(ARRAYS)))
def test_arrays(i):
    x, words = ARRAYS[i]
    text = re.sub(r"\s+", " ", shown(x))
    for word in words:
        assert word in text, text


def test_a_huge_array_is_sampled_and_says_so():
    x = nx.zeros((3000, 3000), nx.int8)
    assert "of a sample of 3,000,000" in shown(x)
    assert len(x._repr_html_()) < 10_000


def test_tracers_say_what_they_are():
    found: list[str] = []

    def f(x: Any) -> Any:
        found.append(shown(x))
        return x

    nx.jit(f)(1.0)
    nx.vmap(f)(nx.ones(3))
    nx.grad(f)(1.0)
    assert ["argument x" in found[0], "vmap" in found[1], "differentiated" in found[2]] == [True] * 3


def test_jitted_functions_and_their_stages():
    @nx.jit
    def named(x: Any, flag: bool = True) -> Any:
        return nx.sin(x) * 2

    assert "Not called yet" in shown(named)
    named(nx.ones(3))
    named(nx.ones((2, 2)))
    text = re.sub(r"\s+", " ", shown(named))
    assert "signatures kept 2" in text and "x: f32[3]" in text and "x: f32[2,2]" in text
    lowered = named.lower(nx.ones(3))
    assert "stablehlo" in shown(lowered) and "f32[3]" in shown(lowered)
    assert "flops" in shown(lowered.compile()) and "in bytes" in shown(lowered.compile())
    shown(named.trace(nx.ones(3)))


def test_long_text_is_cut_and_says_so():
    assert "... 90 more characters" in page.text("x" * 100, most=10)


def test_layers():
    """An edge over two layers goes around what stands between."""
    found = layers.place([(10, 10), (30, 10), (10, 10)], [(0, 1, 0), (1, 2, 0), (0, 2, 0)], between=20)
    assert [y for _, y in found.corners] == [0.0, 30.0, 60.0]
    bend = found.routes[2]
    left, width = found.corners[1][0], 30
    assert len(bend) == 2 and not left < bend[0][0] < left + width
