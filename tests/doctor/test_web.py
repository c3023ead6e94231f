"""The page: every section, every text escaped, nothing loaded, tables that sort in a browser."""

import os
import re
import shutil
import subprocess
from html.parser import HTMLParser

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.deploy.divergence import Divergence
from nxjax.deploy.report import Report
from nxjax.doctor.diagnosis import Diagnosis
from nxjax.doctor.findings import Fix, TargetDiagnosis, seconds
from nxjax.doctor.picture import MOST, PictureNode, strip, svg
from nxjax.doctor.style import SCRIPT
from nxjax.lower.placement import Placement
from nxjax.quant.comparison import LayerDifference

EVIL = "<script>alert('x')</script>\"&"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def diagnosis(word: str = "plain") -> Diagnosis:
    """One of everything, with a word in each text that comes from a file or a tool."""
    rows = [
        Placement(f"conv {word}", f"a {word}", "npu", macs=100),
        Placement(f"sort {word}", f"b {word}", "host", reason=f"why {word}", suggestion=f"fix {word}"),
        Placement("add", "c", "unknown", decided_by="nobody"),
    ]
    report = Report("first", "First", "emitted", rows, notes=[f"note {word}"])
    report.cost.add("latency", 0.002, "s", "model")
    report.cost.add("peak memory", 5000, "bytes", "model")
    one = TargetDiagnosis(
        f"first {word}", f"title {word}", "part", f"said {word}", "int8", report, {f"file {word}": 1200},
        f"runs {word}", None, [], 12.5, f"runs {word}", 4, None,
        Divergence(f"sort {word}", f"b {word}", f"at {word}", 1, 3, f"far {word}", "", "", 4, True), "",
        [f"rewrite {word}"], [Fix(f"fix {word}", True, f"before {word}", f"after {word}")], [(0, 1), (1, 2)],
    )  # fmt: skip
    two = TargetDiagnosis("second", "Second", "failed", f"error {word}")
    layers = [
        LayerDifference(f"layer {word}", f"op {word}", None, 0.1, 100.0, 1.0),
        LayerDifference("b", "op", None, None),
    ]
    layers.append(LayerDifference("low", "op", None, 0.1, 1.0, 1.0))
    return Diagnosis(f"model {word}", [f"x {word}"], f"data {word}", [one, two], layers, [f"told {word}"])


class Tags(HTMLParser):
    """Every tag with its attributes, and that those with an end are closed."""

    def __init__(self):
        super().__init__()
        self.seen, self.open = [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))


def tags(page: str) -> Tags:
    parsed = Tags()
    parsed.feed(page)
    assert not parsed.open
    return parsed


def test_every_section_is_there():
    page = diagnosis().html()
    for words in (
        "<h1>model plain</h1>", "x plain", "data plain", "told plain", "Targets", "takes a part", "Error by layer",
        "layer plain", "Graph", "Left to the host", "why plain", "fix plain", "Could be written otherwise",
        "rewrite plain", "Rewrites that were tried", "before plain", "after plain", "Cost and files", "5 kB", "2 ms",
        "leaves the reference at sort plain", "note plain", "said plain", "error plain", "12.5",
    ):  # fmt: skip
        assert words in page, words
    tags(page)


def test_every_text_is_escaped():
    page = diagnosis(EVIL).html()
    assert EVIL not in page and "<script>alert" not in page
    assert [tag for tag, _ in tags(page).seen].count("script") == 1
    # The same parts as without it: no text became a tag or an attribute.
    shape = lambda p: [(tag, sorted(a)) for tag, a in tags(p).seen]
    assert shape(page) == shape(diagnosis().html())


def test_nothing_is_loaded():
    parsed = tags(diagnosis().html())
    for tag, attributes in parsed.seen:
        assert tag not in ("link", "iframe", "object", "embed", "img", "base", "form")
        assert not {"src", "srcset", "action", "style" if tag == "body" else "onclick"} & attributes.keys()
        assert attributes.get("href", "#").startswith("#")
    page = diagnosis().html()
    assert "default-src 'none'" in page and "'unsafe-inline'; script-src 'sha256-" in page
    assert not re.search(r"url\(|@import|https?://(?!www\.w3\.org/2000/svg)", page)


def test_links_lead_to_their_targets():
    parsed = tags(diagnosis().html())
    ids = {a["id"] for _, a in parsed.seen if "id" in a}
    assert {a["href"][1:] for t, a in parsed.seen if t == "a"} == ids and len(ids) == 2


@pytest.mark.parametrize("count", [1, 20, 200, 3000])
def test_a_graph_of_any_length_is_read(count):
    nodes = [PictureNode(f"op{i % 7}", ("chip", "host")[i % 9 == 0], marked=i == count // 2) for i in range(count)]
    edges = [(i, i + 1) for i in range(count - 1)] + [(i, i + 5) for i in range(0, count - 5, 3)]
    drawn = svg(nodes, edges)
    boxes = drawn.count("<rect")
    assert boxes <= MOST and (count > 24 or boxes == count)
    assert drawn.count("marked") == 1


def test_a_chain_is_one_box_and_a_branch_is_not():
    chain = [PictureNode("add", "chip")] * 40
    drawn = svg(chain, [(i, i + 1) for i in range(39)])
    assert drawn.count("<rect") == 1 and "add x40" in drawn
    # What two read, and what reads two, ends a chain.
    nodes = [PictureNode(f"o{i}", "chip") for i in range(40)]
    edges = [(i, i + 1) for i in range(39)] + [(10, 20)]
    assert svg(nodes, edges).count("<rect") == 3
    nodes[30] = PictureNode("x", "host")
    assert svg(nodes, edges).count("<rect") == 5


def test_the_strip_has_every_op_once():
    nodes = [PictureNode(f"op{i}", ("chip", "host")[i % 100 == 99], marked=i == 150) for i in range(300)]
    drawn = strip(nodes)
    assert 'viewBox="0 0 300 1"' in drawn and sum(map(int, re.findall(r' width="(\d+)"', drawn))) == 300
    assert drawn.count("<rect") == 8 and drawn.count('class="marked"') == 1 and "ops 1 to 99: chip" in drawn


def test_a_host_is_no_chip_that_takes_it():
    found = nx.deploy.doctor(lambda x: nx.nn.relu(x * 2), jnp.ones((1, 3)), targets=["tflite"], progress=False)
    page = found.html()
    assert found["tflite"].verdict == "runs on the host" and "<b>1</b><span>run on the host</span>" in page
    assert "<span>take it</span>" not in page and "runs on the host" in str(found)


def test_figures_lose_no_digits_and_all_memory_is_shown():
    one = diagnosis()
    one.targets[0].report.cost.add("cycles", 1120831, "cycles", "vendor-estimate")
    one.targets[0].report.cost.add("sram peak", 36192, "bytes", "vendor-estimate")
    page = one.html()
    assert "1,120,831 cycles" in page and "36.2 kB<small>sram peak" in page and "5 kB<small>peak memory" in page
    assert "0 records of tools, 1 note<" in page


def test_times_are_read():
    assert [seconds(x) for x in (2.0, 0.0015, 2e-7)] == ["2 s", "1.5 ms", "200 ns"]


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_tables_sort_in_a_browser(tmp_path):
    """Presses each heading of the first table, and writes down what its rows then are."""
    press = """
      const table = document.querySelector("table.sorts"), rows = () => [...table.tBodies[0].rows];
      const said = [...table.tHead.rows[0].cells].map((head) => [1, 2].map(() => {
        head.firstChild.click();
        return head.getAttribute("aria-sort") + " " + rows().map((r) => r.cells[0].dataset.key).join(" ");
      }));
      location.hash = "t1";
      document.title = JSON.stringify([said, document.styleSheets.length]);
    """
    a = jnp.ones((2, 3))
    found = nx.deploy.doctor(lambda x: nx.nn.relu(x * 2), a, targets=["tflite", "onnx", "edgetpu"], progress=False)
    page = found.html()
    # The page's own policy lets no other script run: its copy for this test names another digest.
    assert page.count(SCRIPT) == 1
    page = re.sub(r"script-src 'sha256-[^']*'", "script-src 'unsafe-inline'", page)
    page = page.replace(f"<script>{SCRIPT}</script>", f"<script>{SCRIPT}</script><script>{press}</script>")
    (tmp_path / "page.html").write_text(page)
    dom = browsed(tmp_path, "page.html", "--dump-dom")
    title = re.search(r"<title>(.*?)</title>", dom)[1]
    import html
    import json

    said, sheets = json.loads(html.unescape(title))
    assert sheets == 1 and len(said) >= 9
    assert said[0] == ["ascending edgetpu onnx tflite", "descending tflite onnx edgetpu"]
    sizes = {t.target: next(iter(t.files.values())) for t in found.targets}
    by_size = sorted(sizes, key=sizes.__getitem__)
    assert said[6][0].split()[1:] == by_size or len(set(sizes.values())) < 3
    assert all(set(row.split()[1:]) == set(sizes) for pair in said for row in pair)


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.parametrize("width", [320, 1280])
def test_nothing_leaves_the_window(tmp_path, width):
    """In a frame of a phone's and of a desktop's width, with long names, and every section open."""
    page = diagnosis("n" * 300).html().replace("<details", "<details open")
    (tmp_path / "page.html").write_text(page)
    measure = "const d = f.contentDocument; "
    measure += "document.title = [d.documentElement.scrollWidth, d.querySelectorAll('table').length]"
    frame = f'<iframe id=f src=page.html style="width:{width}px;height:900px;border:0" onload="{measure}"></iframe>'
    (tmp_path / "outer.html").write_text(frame)
    dom = browsed(tmp_path, "outer.html", "--dump-dom", "--allow-file-access-from-files")
    across, tables = map(int, re.search(r"<title>(\d+),(\d+)</title>", dom).groups())
    assert across <= width and tables >= 5


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_the_policy_lets_the_own_script_run_and_no_other(tmp_path):
    page = diagnosis().html()
    press = "<script>document.title = 'foreign'</script>"
    (tmp_path / "page.html").write_text(page.replace("</body>", press + "</body>"))
    dom = browsed(tmp_path, "page.html#t1", "--dump-dom")
    assert "<title>model plain" in dom and "foreign</title>" not in dom
    # The own one opened what the address names.
    assert re.search(r'<details id="t1" open', dom) and not re.search(r'<details id="t0" open', dom)


def browsed(folder, page, *more) -> str:
    flags = (
        "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
        "--disable-component-update --disable-sync --disable-dev-shm-usage"
    )
    command = [str(CHROMIUM), *flags.split(), f"--user-data-dir={folder / 'profile'}", *more, f"file://{folder}/{page}"]
    environment = {k: v for k, v in os.environ.items() if k != "DBUS_SESSION_BUS_ADDRESS"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_notebook_shows_the_summary():
    shown = diagnosis(EVIL)._repr_html_()
    assert "takes a part" in shown and EVIL not in shown
    assert np.all([w in str(diagnosis()) for w in ("model plain", "first plain", "leaves the reference at")])
