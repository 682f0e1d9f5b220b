"""The page: style, headings, tables. Light and dark, on a phone and on paper."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

STYLE: Final = """
:root { color-scheme: light dark; --ink:#1c2430; --soft:#5a6675; --paper:#fff; --card:#f5f7fa; --line:#d5dbe3;
  --accent:#0b6e99; --second:#c2410c; --good:#1a7f4b; --bad:#b42318; }
@media (prefers-color-scheme: dark) { :root { --ink:#e7ecf2; --soft:#9fb0c3; --paper:#12171e; --card:#1b222c;
  --line:#364152; --accent:#4fb3d9; --second:#fb923c; --good:#4ade80; --bad:#f87171; } }
* { box-sizing: border-box; }
body { margin:0; background:var(--paper); color:var(--ink);
  font:16px/1.55 system-ui,-apple-system,"Segoe UI",sans-serif; overflow-wrap:break-word; }
main { max-width:60rem; margin:0 auto; padding:1.5rem 1.1rem 4rem; }
h1 { font-size:1.7rem; line-height:1.2; margin:.4rem 0 .2rem; } h2 { font-size:1.2rem; margin:2.2rem 0 .6rem; }
.lead { color:var(--soft); margin:.2rem 0 1rem; }
.stamp { display:inline-block; padding:.15rem .6rem; border-radius:1rem; font-size:.85rem;
  border:1px solid var(--line); }
.stamp.internal, .seeded, .nothing { color:#fff; background:var(--bad); border-color:var(--bad); }
.seeded, .nothing { padding:.6rem 1rem; border-radius:.4rem; font-weight:600; margin:0 0 1rem; }
.open { border-left:5px solid var(--second); background:var(--card); padding:.8rem 1.1rem; border-radius:.4rem; }
.open h2, .five h2 { margin-top:0; }
.five { display:grid; grid-template-columns:repeat(auto-fit,minmax(15rem,1fr)); gap:.8rem; margin:1rem 0; }
.five > div { background:var(--card); border-radius:.5rem; padding:.8rem 1rem; }
.five b { display:block; color:var(--accent); font-size:.85rem; text-transform:uppercase; letter-spacing:.05em; }
.big { font-size:2rem; font-weight:650; line-height:1.1; }
.pipeline { display:flex; flex-wrap:wrap; gap:.8rem 1.3rem; list-style:none; padding:0; }
.pipeline li { position:relative; flex:1 1 9rem; background:var(--card); border-radius:.5rem; padding:.6rem .8rem; }
.pipeline li + li::before { content:"\\2192" / ""; position:absolute; left:-1.1rem; top:.6rem; color:var(--soft); }
.pipeline b { display:block; } .pipeline .before { border:1px dashed var(--line); background:none; }
.pipeline .start { border-top:5px solid var(--accent); } .pipeline .exact { border-top:5px solid var(--second); }
.scroll { overflow-x:auto; }
table { border-collapse:collapse; width:100%; font-variant-numeric:tabular-nums; font-size:.92rem; }
th, td { text-align:left; padding:.35rem .7rem; border-bottom:1px solid var(--line); vertical-align:top; }
th { color:var(--soft); font-weight:600; } td.n, th.n { text-align:right; } td.n { white-space:nowrap; }
table.wide { font-size:.8rem; } .wide th, .wide td { padding:.3rem .45rem; }
code { background:var(--card); padding:.1rem .3rem; border-radius:.25rem; overflow-wrap:anywhere; }
.note { color:var(--soft); font-size:.92rem; } .ok { color:var(--good); font-weight:600; }
.chart { margin:.6rem 0; overflow-x:auto; } .chart svg { max-width:100%; height:auto; }
details { margin:.6rem 0; } summary { cursor:pointer; color:var(--accent); }
ul { padding-left:1.2rem; } li { margin:.2rem 0; }
@media print { :root { --ink:#000; --paper:#fff; --card:#f3f3f3; --line:#bbb; } body { font-size:11pt; }
  .scroll { overflow:visible; } table { font-size:8pt; } th, td { padding:.2rem .35rem; }
  h2, h3, p { break-after:avoid; } .chart, tr, .five > div { break-inside:avoid; } details > * { display:block; } }
"""

_WIDE: Final = 8  # columns


def page(title: str, body: Iterable[str], *, seeded: bool = False) -> str:
    """Return a complete HTML page; nothing in it points outside."""
    warning = (
        '<p class="seeded">Test run with a seed: whoever knows the seed can undo it. Not for publication.</p>'
        if seeded
        else ""
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
        f'img-src data:"><title>{escape(title)}</title><style>{STYLE}</style></head>'
        f"<body><main>{warning}{''.join(body)}</main></body></html>\n"
    )


def section(heading: str, *parts: str) -> str:
    """Return a section with a heading."""
    return f"<section><h2>{escape(heading)}</h2>{''.join(parts)}</section>"


def paragraph(text: str, *, note: bool = False) -> str:
    """Return a paragraph."""
    return f"<p{' class=note' if note else ''}>{escape(text)}</p>"


def bullets(items: Iterable[str]) -> str:
    """Return a list."""
    return "<ul>" + "".join(f"<li>{escape(item)}</li>" for item in items) + "</ul>"


def table(header: Sequence[str], rows: Iterable[Sequence[object]], *, numbers: Sequence[str] = ()) -> str:
    """Return a table; numbers are right-aligned and grouped. ``numbers`` are columns of numbers written as text."""
    kept = [list(row) for row in rows]
    numeric = [
        name in numbers
        or (bool(kept) and all(isinstance(row[i], (int, float)) and not isinstance(row[i], bool) for row in kept))
        for i, name in enumerate(header)
    ]
    head = "".join(
        f"<th{' class=n' if number else ''}>{escape(name)}</th>" for name, number in zip(header, numeric, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(f"<td{' class=n' if n else ''}>{_cell(v)}</td>" for v, n in zip(row, numeric, strict=True))
        + "</tr>"
        for row in kept
    )
    wide = " class=wide" if len(header) >= _WIDE else ""
    return f'<div class="scroll"><table{wide}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return escape({True: "yes", False: "no", None: ""}[value])
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return escape(str(value))
