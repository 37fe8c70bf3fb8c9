"""A topology as one self-contained HTML page: the drawing, a table of shared layers, Mermaid's source."""

from __future__ import annotations

from html import escape
from typing import Final

from netns.chart.branches import Branch
from netns.chart.drawing import Switches, drawing
from netns.chart.mermaid import mermaid
from netns.inventory.layers import short_name
from netns.inventory.nodes import HOSTNAME_LABEL

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1d2733; --paper: #fff; --line: #9aa7b4; --soft: #f2f5f8; }
@media (prefers-color-scheme: dark) { :root { --ink: #e3e9ef; --paper: #14191f; --line: #5a6875; --soft: #1e262e; } }
body { margin: 2rem; font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); }
h1 { font-size: 1.4rem; margin: 0 0 .3rem; } h2 { font-size: 1.05rem; margin: 1.6rem 0 .5rem; }
table { border-collapse: collapse; } td, th { padding: .2rem .9rem .2rem 0; text-align: left; }
td.number { text-align: right; }
.picture { overflow-x: auto; background: var(--soft); border-radius: 8px; padding: 8px; }
pre { background: var(--soft); border-radius: 8px; padding: 12px; overflow: auto; max-height: 24rem; font-size: 12px; }
svg text { font: 12px ui-monospace, "DejaVu Sans Mono", monospace; fill: #10202e; }
svg .head { fill: var(--ink); font-weight: 600; } svg .link { fill: none; stroke: var(--line); }
svg rect { stroke: #0003; } .level-1 rect { fill: #f5c26b; } .level-2 rect { fill: #9fd0f2; }
.level-3 rect { fill: #a9dba0; } .level-4 rect { fill: #d4b7ec; } .level-5 rect { fill: #f3b4b4; }
.host rect { fill: #dfe6ec; }
svg { max-width: 100%; min-width: 17rem; height: auto; }
@media (max-width: 44rem) { body { margin: 1rem; } pre { white-space: pre-wrap; overflow-wrap: anywhere; } }
@media print {
  :root { color-scheme: light; --ink: #000; --paper: #fff; --line: #777; --soft: #fff; }
  pre { max-height: none; white-space: pre-wrap; }
  svg rect { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""


def page(whole: Branch, *, title: str, switches: Switches | None = None) -> str:
    """Return the page; `title` names the topology, `switches` those of its domains, as far as known."""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{escape(title)}</h1>
<p>Hosts below the same box share its layer.</p>
{_table(whole)}
<h2>Layers</h2>
<div class="picture">
{drawing(whole, switches=switches or {})}
</div>
<h2>The same for Mermaid</h2>
<pre>{escape(mermaid(whole))}</pre>
</body>
</html>
"""


def _table(whole: Branch) -> str:
    rows = []
    levels = list(dict.fromkeys(branch.level for branch in whole.walk() if branch.level))
    for level in levels:
        parts = whole.at(level)
        sizes = sorted(len(part.nodes) for part in parts)
        spread = str(sizes[0]) if sizes[0] == sizes[-1] else f"{sizes[0]} to {sizes[-1]}"
        hosts = "" if level == HOSTNAME_LABEL else spread
        rows.append(
            f'<tr><td>{escape(short_name(level))}</td><td class="number">{len(parts)}</td>'
            f'<td class="number">{hosts}</td></tr>'
        )
    return "<table><tr><th>level</th><th>parts</th><th>hosts in each</th></tr>" + "".join(rows) + "</table>"
