"""The look of the doctor's page, in light and in dark, and the script that sorts its tables."""

from __future__ import annotations

from typing import Final

STYLE: Final = """
:root{color-scheme:light dark;--back:#f6f7f9;--card:#fff;--ink:#1c2330;--quiet:#5d6779;--line:#dfe3ea;--chip:#1d8a56;
--host:#c86a12;--unknown:#7a8394;--bad:#c2313f;--accent:#2c6fbb;--chipback:#dff3e8;--hostback:#fdebd8;--unback:#e9ecf1;
--badback:#fbe1e3}
@media(prefers-color-scheme:dark){:root{--back:#12161d;--card:#1a2029;--ink:#e4e8ef;--quiet:#97a1b2;--line:#2c3542;
--chip:#4cc38a;--host:#f0a04b;--unknown:#8d97a8;--bad:#f0707c;--accent:#6cabf0;--chipback:#173a2a;--hostback:#41290f;
--unback:#29303b;--badback:#451c22}}
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{overflow-wrap:anywhere;max-width:1240px;margin:0 auto;padding:28px 20px 60px}
header,section{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:18px 22px;margin:0 0 14px}
h1{font-size:24px;margin:0;overflow-wrap:anywhere}h2{font-size:18px;margin:0 0 8px}h3{font-size:14px;margin:18px 0 6px}
p{margin:4px 0;overflow-wrap:anywhere}.quiet,small{color:var(--quiet)}
small{display:block;font-size:11px;line-height:1.3}
ul{margin:8px 0 0;padding-left:20px}.notes{color:var(--quiet);font-size:13px}
a{color:var(--accent);text-decoration:none;font-weight:600}a:hover{text-decoration:underline}
.tiles{display:flex;flex-wrap:wrap;gap:10px;margin-top:12px}
.tile{padding:8px 16px;border-radius:10px;min-width:112px}.tile b{display:block;font-size:24px;line-height:1.2}
.tile span{font-size:12px}
.host{background:var(--unback);color:var(--accent)}tr.host{background:none;color:inherit}
.strip{width:100%;height:18px;margin:6px 0 10px;border-radius:5px;overflow:hidden}
.strip .chip{fill:var(--chip)}.strip .host{fill:var(--host)}.strip .unknown{fill:var(--unknown)}
.strip .marked{fill:var(--bad)}
.all,.key.chip{background:var(--chipback);color:var(--chip)}
.part,.none,.key.host{background:var(--hostback);color:var(--host)}
.unknown{background:var(--unback);color:var(--unknown)}
.refused,.failed,.wrong,.key.marked{background:var(--badback);color:var(--bad)}
.pill,.key{display:inline-block;border-radius:99px;padding:1px 10px;font-size:12px;font-weight:600;white-space:nowrap}
.key{margin-right:8px}
.scroll{overflow:auto;max-width:100%}.tall{max-height:620px;border:1px solid var(--line);border-radius:8px;padding:10px}
table{border-collapse:collapse;width:100%;font-size:13px;font-variant-numeric:tabular-nums}
th,td{padding:6px 12px 6px 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--line)}
td{max-width:420px;overflow-wrap:break-word}td.number{white-space:nowrap}
td:first-child{min-width:7em}td small{min-width:9em}
@media(max-width:700px){main{padding:12px 8px 40px}header,section{padding:14px 12px}
.sorts td:first-child,.sorts th:first-child{position:sticky;left:0;background:var(--card)}
td{min-width:6em;max-width:240px}section>details>summary{list-style-position:inside}}
th button{all:unset;cursor:pointer;font-weight:600;color:var(--quiet);font-size:12px;white-space:nowrap}
th button:hover{color:var(--ink)}th button:focus-visible{outline:2px solid var(--accent);border-radius:3px}
th[aria-sort=ascending] button::after{content:" \\2191"}th[aria-sort=descending] button::after{content:" \\2193"}
tr.host td:nth-child(4){color:var(--host);font-weight:600}tr.chip td:nth-child(4){color:var(--chip);font-weight:600}
tr.unknown{background:none;color:inherit}
.bar{display:inline-block;width:64px;height:8px;border-radius:4px;background:var(--unback);overflow:hidden}
.bar i{display:block;height:100%;background:var(--chip)}
.poor{color:var(--bad);font-weight:700}
summary{cursor:pointer;padding:3px 0}section>details>summary{list-style-position:outside}
svg{display:block}.graph{margin:0 auto}
.node rect{stroke-width:1.3}
.node text{font:11px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;text-anchor:middle}
.node text{fill:var(--ink)}.node.unknown,.node.host{background:none}
.node.chip rect{fill:var(--chipback);stroke:var(--chip)}.node.host rect{fill:var(--hostback);stroke:var(--host)}
.node.unknown rect,.node.mixed rect{fill:var(--unback);stroke:var(--unknown)}
.node.mixed rect{stroke-dasharray:5 3}
.node.marked rect{stroke:var(--bad);stroke-width:3}
.edge{fill:none;stroke:var(--quiet);stroke-opacity:.55;stroke-width:1.2}
.levels rect.fine{fill:var(--accent)}.levels rect.poor{fill:var(--bad)}
.levels path{stroke:var(--line);fill:none}.levels text{font-size:10px;fill:var(--quiet)}
@media print{body{background:#fff}section,header{break-inside:avoid}}
"""

SCRIPT: Final = """
for (const table of document.querySelectorAll("table.sorts")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  heads.forEach((head, column) => head.firstChild.addEventListener("click", () => {
    const up = head.getAttribute("aria-sort") !== "ascending";
    const key = (row) => {
      const cell = row.cells[column], text = cell.dataset.key ?? cell.textContent;
      const number = text === "inf" ? Infinity : text === "-inf" ? -Infinity : Number(text);
      return text !== "" && !Number.isNaN(number) ? number : text;
    };
    const order = (a, b) => typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
    const rows = [...body.rows].sort((a, b) => (up ? 1 : -1) * order(key(a), key(b)));
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    body.append(...rows);
  }));
}
const open = () => {
  const part = location.hash && document.getElementById(location.hash.slice(1));
  if (part instanceof HTMLDetailsElement) { part.open = true; part.scrollIntoView(); }
};
addEventListener("hashchange", open);
open();
"""
