"""The page: style, headings, tables. Light and dark, on a phone and on paper, with and without its script."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from html import escape, unescape
from html.parser import HTMLParser
from typing import Final

from stirred.report.facts import facts_beside, rounded_facts

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
.stamp.internal, .seeded, .nothing { color:#fff; background:#b42318; border-color:#b42318; }
.seeded, .nothing { padding:.6rem 1rem; border-radius:.4rem; font-weight:600; margin:0 0 1rem; }
.open { border-left:5px solid var(--second); background:var(--card); padding:.8rem 1.1rem; border-radius:.4rem; }
.open h2 { margin-top:0; } .open > p { margin:.5rem 0; font-size:1.05rem; } .open details { font-size:.92rem; }
.five { display:grid; grid-template-columns:repeat(auto-fit,minmax(15rem,1fr)); gap:.8rem; margin:1rem 0; }
@media (min-width:54rem) { .five > div:last-child { grid-column:span 2; } }
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
.chart { margin:.6rem 0; } .chart svg { width:100%; max-width:34rem; height:auto; overflow:visible; }
details { margin:.6rem 0; } summary { cursor:pointer; color:var(--accent); }
ul { padding-left:1.2rem; } li { margin:.2rem 0; } h3 { font-size:1rem; margin:1.2rem 0 .4rem; }
caption { position:absolute; width:1px; height:1px; overflow:hidden; clip-path:inset(50%); white-space:nowrap; }
th button { all:unset; cursor:pointer; } th button::after { content:"\\a0↕"; opacity:.55; }
th[aria-sort=ascending] button::after { content:"\\a0↑"; opacity:1; }
th[aria-sort=descending] button::after { content:"\\a0↓"; opacity:1; }
:focus-visible, th button:focus-visible { outline:2px solid var(--accent); outline-offset:2px; }
.filter { display:block; margin:.4rem 0; font-size:.92rem; color:var(--soft); }
.filter input { font:inherit; color:var(--ink); background:var(--paper); border:1px solid var(--soft);
  border-radius:.3rem; padding:.2rem .5rem; margin:0 .5rem; max-width:60vw; }
@media print { :root { --ink:#000; --soft:#444; --paper:#fff; --card:#f3f3f3; --line:#bbb; --accent:#0b6e99;
  --second:#c2410c; --good:#1a7f4b; --bad:#b42318; color-scheme:light; } body { font-size:11pt; }
  .scroll { overflow:visible; } table { font-size:8pt; } th, td { padding:.2rem .35rem; }
  .filter, th button::after { display:none; } h2, h3 { break-after:avoid; } thead { display:table-header-group; }
  .chart, tr, .five > div { break-inside:avoid; } details::details-content { content-visibility:visible; } }
"""

# Sorting and filtering are made by the script alone: without it nothing is missing and nothing is dead.
SCRIPT: Final = """
const number = /^[±−-]?[\\d,.]+%?$/, words = new Intl.Collator(undefined, {numeric: true});
const value = text => parseFloat(text.replace(/[±,%]/g, '').replace('−', '-'));
const compare = (a, b) => number.test(a) && number.test(b) ? value(a) - value(b) : words.compare(a, b);
for (const table of document.querySelectorAll('table')) {
  const body = table.tBodies[0], rows = [...body.rows], heads = [...table.tHead.rows[0].cells];
  if (rows.length > 1) heads.forEach((head, at) => {
    const button = document.createElement('button');
    button.type = 'button';
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener('click', () => {
      const order = head.getAttribute('aria-sort') === 'ascending' ? 'descending' : 'ascending';
      heads.forEach(other => other.removeAttribute('aria-sort'));
      head.setAttribute('aria-sort', order);
      const text = row => row.cells[at].textContent.trim(), sign = order === 'ascending' ? 1 : -1;
      body.append(...[...rows].sort((a, b) => sign * compare(text(a), text(b))));
    });
  });
  if (rows.length < 10) continue;
  const label = document.createElement('label'), input = document.createElement('input');
  const found = document.createElement('span');
  label.className = 'filter';
  input.type = 'search';
  found.setAttribute('aria-live', 'polite');
  label.append('Filter rows', input, found);
  table.parentNode.before(label);
  input.addEventListener('input', () => {
    const wanted = input.value.trim().toLowerCase();
    for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
    found.textContent = wanted ? `${rows.filter(row => !row.hidden).length} of ${rows.length}` : '';
  });
}
addEventListener('beforeprint', () => document.querySelectorAll('details').forEach(each => each.open = true));
"""
_SCRIPT_HASH: Final = b64encode(sha256(SCRIPT.encode()).digest()).decode()

_WIDE: Final = 8  # columns
_SCROLLED: Final = 5


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
        # The page's own script runs, and no other.
        f"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{_SCRIPT_HASH}'; img-src data:\">"
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><main>{warning}{''.join(body)}</main><script>{SCRIPT}</script></body></html>\n"
    )


def section(heading: str, *parts: str) -> str:
    """Return a section with a heading."""
    return f"<section><h2>{escape(heading)}</h2>{''.join(parts)}</section>"


def paragraph(text: str, *, note: bool = False) -> str:
    """Return a paragraph."""
    return f"<p{' class=note' if note else ''}>{escape(text)}</p>"


def bullets(items: Iterable[str]) -> str:
    """Return a list; of nothing, nothing."""
    listed = "".join(f"<li>{escape(item)}</li>" for item in items)
    return listed and f"<ul>{listed}</ul>"


def folded(summary: str, *parts: str) -> str:
    """Return what opens on a click, and on paper is open."""
    return f"<details><summary>{escape(summary)}</summary>{''.join(parts)}</details>"


def table(
    header: Sequence[str], rows: Iterable[Sequence[object]], *, numbers: Sequence[str] = (), caption: str = ""
) -> str:
    """Return a table; numbers are right-aligned and grouped. ``numbers`` are columns of numbers written as text.

    ``caption`` is for who cannot see what the table stands under.
    """
    kept = [list(row) for row in rows]
    numeric = [
        name in numbers
        or (bool(kept) and all(isinstance(row[i], (int, float)) and not isinstance(row[i], bool) for row in kept))
        for i, name in enumerate(header)
    ]
    head = "".join(
        f"<th scope=col{' class=n' if number else ''}>{escape(name)}</th>"
        for name, number in zip(header, numeric, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(f"<td{' class=n' if n else ''}>{_cell(v)}</td>" for v, n in zip(row, numeric, strict=True))
        + "</tr>"
        for row in kept
    )
    wide = " class=wide" if len(header) >= _WIDE else ""
    # A table that may be wider than its place is scrolled with the keyboard, too.
    place = "" if len(header) < _SCROLLED else f' tabindex=0 role=region aria-label="{escape(caption or header[0])}"'
    told = f"<caption>{escape(caption)}</caption>" if caption else ""
    return (
        f'<div class="scroll"{place}><table{wide}>{told}<thead><tr>{head}</tr></thead>'
        f"{f'<tbody>{body}</tbody>' if body else ''}</table></div>"
    )


def _cell(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return escape({True: "yes", False: "no", None: ""}[value])
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return escape(str(value))


# ---- what a page shows ------------------------------------------------------------------------------------

_DOCTYPE: Final = "doctype html"
_HEAD: Final = ("body", "head", "html", "main", "meta", "script", "style", "title")
_APART: Final = (*_HEAD, "template", "caption", "left out")  # not written where they stand
_TAGS: Final = (
    "b|br|caption|code|details|div|em|figcaption|figure|h1|h2|h3|li|ol|p|section|span|strong|sub|summary|sup|table|tbody"
    "|td|template|th|thead|tr|ul"
)
_VALUES: Final = {
    "class": "before|big|chart|exact|facts|five|lead|n|note|nothing|open|pipeline|scroll|seeded|stamp|start|step|wide",
    "role": "(region|img)",
    "scope": "col",
    "tabindex": "0",
    "aria-label": ".*",
}
_HEAD_NAMES: Final = ("charset", "content", "http-equiv", "lang", "name")
_NUMBER: Final = r"-?\d{1,4}(\.\d+)?(e-\d+)?"
_NUMBERS: Final = rf"{_NUMBER}([ ,]{_NUMBER})*"
_COLOUR: Final = r"(var\(--(ink|line|soft|accent|second)\)|#[0-9A-Fa-f]{6}|none|transparent)"
# What of a drawing is drawn. Names, labels and whatever else is for programs or for a pointer alone is left out.
_DRAWN: Final = {
    "d": r"[MmLlHhVvCcSsQqTtAaZze\d., -]*",
    "fill": _COLOUR,
    "font-family": "system-ui, sans-serif",
    "font-size": r"[1-9]\dpx",
    "font-weight": r"(\d{3}|bold|normal)",
    "height": _NUMBER,
    "stroke": _COLOUR,
    "stroke-dasharray": _NUMBERS,
    "stroke-miterlimit": _NUMBER,
    "stroke-width": _NUMBER,
    "text-anchor": "(start|middle|end)",
    "transform": rf"((translate|rotate|scale)\({_NUMBERS}\) ?)+",
    "version": "1.1",
    "viewbox": _NUMBERS,
    "width": _NUMBER,
    "x": _NUMBER,
    "x2": _NUMBER,
    "xmlns": "http://www.w3.org/2000/svg",
    "y": _NUMBER,
    "y2": _NUMBER,
}
_DRAWS: Final = ("g", "line", "path", "rect", "svg", "text")
_NEVER_DRAWN: Final = ("href", "xlink:href", "data-", "on")
# Captions of ours that stand nowhere else on a page: they are for readers who do not see where a table stands.
_CAPTIONS: Final = frozenset(
    [
        "Checks",
        "Limits on what could be learned",
        "Steps from the data to the release, in order",
        "What looks odd in the public files",
    ]
)


# Readers see nothing of these; which of them stand on a page, and how many, could hold a message.
_EMPTY: Final = re.compile(r"<(?!(?:td|g|line|path|rect)\b)(\w+)(?: [^<>]*)?>\s*</\1>")
_TWICE: Final = re.compile(r"<(?!(?:div|g)\b)(\w+)(?: [^<>]*)?>\s*<\1\b")
_UNHEADED: Final = re.compile(r"<details>(?!<summary>)")


class _PageReader(HTMLParser):
    """What a page shows, and what it holds beside that."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=False)
        self.found: list[str] = []
        self.open: list[str] = []
        self.head: dict[str, list[str]] = {"style": [], "script": [], "title": []}
        self.facts: list[str] = []
        self.shown: list[str] = []  # texts that readers see
        self.written: list[tuple[str, str]] = []  # the page again; the first says what the second is
        self.text = ""
        self.feed(text)
        self.close()
        self._flush()

    def handle_comment(self, data: str) -> None:
        self.found.append("a comment")

    def handle_pi(self, data: str) -> None:
        self.found.append("an instruction for programs")

    def unknown_decl(self, data: str) -> None:
        self.found.append("a declaration")

    def handle_decl(self, decl: str) -> None:
        if decl.lower() != _DOCTYPE or self.getpos() != (1, 0):
            self.found.append("a declaration")

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_entityref(self, name: str) -> None:
        self.text += f"&{name};"

    def handle_charref(self, name: str) -> None:
        self.text += f"&#{name};"

    def _flush(self) -> None:
        """Take up the text since the last tag."""
        data, self.text = self.text, ""
        inside = self.open[-1] if self.open else ""
        if inside in self.head:
            self.head[inside].append(data)
        elif inside == "template":
            self.facts.append(unescape(data))
        elif not data or ("svg" in self.open and inside != "text"):
            return  # it is not drawn
        elif "main" not in self.open:
            self.found += ["text outside of the page"] if data.strip() else []
        elif inside == "caption":
            self.written.append(("caption", unescape(data)))
        else:
            self.shown.append(unescape(data))
            self.written.append(("", escape(re.sub(r"[ \t\r\n]+", " ", unescape(data)))))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._flush()
        values = {name: value or "" for name, value in attrs}
        if tag == "svg" or "svg" in self.open:
            self._draw(tag, values)
            return
        if tag not in _HEAD and not re.fullmatch(_TAGS, tag):
            self.found.append(f"<{tag}>")
        known = _HEAD_NAMES if tag in _HEAD else _VALUES
        self.found += [f"<{tag} {name}>" for name in values if name not in known]
        if tag not in ("br", "meta"):
            self.open.append(tag)
        if tag not in _APART:
            self._write(tag, {name: value for name, value in values.items() if _fits(_VALUES, name, value)})

    def _draw(self, tag: str, values: Mapping[str, str]) -> None:
        """Write an element of a drawing with what draws it; what is not drawn is left out with all that is in it."""
        self.found += [f"<{tag} {name}>" for name in values if name.startswith(_NEVER_DRAWN)]
        hidden = values.get("display") == "none" or values.get("opacity") == "0" or tag not in _DRAWS
        if hidden or "left out" in self.open:
            self.open.append("left out")
            return
        self.open.append(tag)
        drawn = {name: value for name, value in values.items() if _fits(_DRAWN, name, value)}
        if tag == "text":
            drawn["fill"] = "var(--ink)"  # no text has the colour of the paper
        label = {name: values[name] for name in ("role", "aria-label") if tag == "svg" and name in values}
        self._write(tag, {**label, **drawn})

    def _write(self, tag: str, values: Mapping[str, str]) -> None:
        self.written.append(("", f"<{tag}"))
        for name, value in values.items():
            right = "viewBox" if name == "viewbox" else name
            self.written.append(("label", value) if name == "aria-label" else ("", f' {right}="{escape(value)}"'))
        self.written.append(("", ">"))

    def handle_endtag(self, tag: str) -> None:
        self._flush()
        if tag not in self.open and "left out" not in self.open:
            return
        while self.open:
            last = self.open.pop()
            if last not in _APART:
                self.written.append(("", f"</{last}>"))
            if last in (tag, "left out"):
                return

    def again(self, facts: str) -> str:
        """Return the body with what readers see; captions and labels only as far as they say what is shown."""
        said = ""
        for kind, text in self.written:
            if not kind or self._is_shown(text):
                said += {"": text, "caption": f"<caption>{escape(text)}</caption>"}.get(
                    kind, f' aria-label="{escape(text)}"'
                )
        return said + facts

    def _is_shown(self, text: str) -> bool:
        parts = text.removeprefix("Protection loss against ").split(" against ", 1)
        return text in _CAPTIONS or all(any(part in shown for shown in self.shown) for part in parts)


def _fits(rules: Mapping[str, str], name: str, value: str) -> bool:
    return name in rules and re.fullmatch(rules[name], value) is not None


def unshown(text: str, *, same_version: bool, said: Sequence[str] = ()) -> list[str]:
    """Return what a page holds that readers are not shown, such as comments, or that no page of ours has.

    The style and the script of a page by the ``same_version`` are compared as well. What the facts for programs say
    must be shown on the page, or ``said`` elsewhere in what is published.

    >>> unshown(page("Homes", [paragraph("a < b")]), same_version=True)
    []
    >>> unshown(page("Homes", ["<!-- 41 -->", "<p hidden>41</p>"]), same_version=True)
    ['<p hidden>', 'a comment']
    >>> unshown(page("Homes", ["<p> </p>", "<p><b><b>Homes</b></b></p>", "<details>a</details>"]), same_version=True)
    ['<b> twice around the same', 'a folded part without a heading', 'an empty <p>']
    """
    seen = _PageReader(text)
    own = {"style": [STYLE], "script": [SCRIPT]}
    other = [f"another {name}" for name, texts in own.items() if same_version and seen.head[name] != texts]
    other += [each for facts in seen.facts for each in facts_beside(facts, [*seen.shown, *said])]
    body = seen.again("")
    other += [f"an empty <{tag}>" for tag in _EMPTY.findall(body)]
    other += [f"<{tag}> twice around the same" for tag in _TWICE.findall(body)]
    other += ["a folded part without a heading"] if _UNHEADED.search(body) else []
    return sorted({*seen.found, *other, *(["facts twice"] if seen.facts[1:] else [])})


def shown_alone(text: str) -> str:
    """Return a page with what it shows to its readers, and nothing beside it.

    Style, script and head are those of this version. Drawings keep their lines and words; what they hold for a pointer
    or for programs is left out. Doing it twice changes nothing.

    >>> "East" in shown_alone(page("Homes", ['<svg><title>East</title><text id="East">b</text></svg>']))
    False
    """
    seen = _PageReader(text)
    title = unescape("".join(seen.head["title"]))
    facts = "".join(map(rounded_facts, seen.facts))
    return page(title if title in seen.shown else "", [seen.again(facts)])
