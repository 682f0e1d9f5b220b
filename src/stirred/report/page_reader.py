"""What a page shows to its readers, and what it holds besides: `publish` lets nothing pass that readers do not see."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape, unescape
from html.parser import HTMLParser
from typing import Final

from stirred.report.facts import facts_beside, rounded_facts
from stirred.report.page import SCRIPT, STYLE, page

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

    >>> from stirred.report.page import paragraph
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
