"""Names are shown as they are: in no Markdown page do they become a tag, a link, a heading or a cell."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from stirred.spec.text import code, plain, raw, sentence

NASTY = [
    *("<script>alert(1)</script>", "[x](javascript:alert(1))", "![x](http://a/b.png)", "*bold* __bold__ _it_ ~~no~~"),
    *(
        "`code`",
        "a|b",
        "# heading",
        "- item",
        "1. item",
        "> quote",
        "\\",
        "&lt;",
        "a\nb\n\n# c",
        "<!-- -->",
        "=====",
        "+ x",
    ),
    *("block_group", "2011-03-24", "d_HamS^household", "a_", "_b", "* * *", "```", "|---|", "http://a"),
]
texts = st.one_of(st.sampled_from(NASTY), st.text("ab_*`[]()<>|#&;\\ \n-+=~!.1)", max_size=30))


def shown(markdown: str) -> tuple[str, set[str]]:
    """Return the text that a reader sees, and the kinds of elements around it."""
    html = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(markdown)
    tags = set(re.findall(r"<(\w+)", html))
    text = re.sub(r"<[^>]*>", "", html)
    for entity, sign in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&amp;", "&")):
        text = text.replace(entity, sign)
    return " ".join(text.split()), tags


@given(texts)
def test_plain_text_is_shown_as_it_is_in_a_paragraph_and_in_a_list(text: str) -> None:
    wanted = " ".join(text.split())
    assert shown(plain(text)) == (wanted, {"p"} if wanted else set())
    assert shown(f"- {plain(text)}") == (wanted, {"ul", "li"})
    assert shown(f"# {plain(text)}") == (wanted, {"h1"})


@given(texts)
def test_a_line_gives_back_its_text(text: str) -> None:
    assert raw(plain(text)) == " ".join(text.split())
    assert sentence(raw(sentence(text))) == sentence(text)


@given(texts)
def test_plain_text_is_one_cell_of_a_table(text: str) -> None:
    page = f"| a | b |\n|---|---|\n| {plain(text)} | end |\n"
    seen, tags = shown(page)
    assert seen == " ".join(f"a b {text} end".split())
    assert tags == {"table", "thead", "tbody", "tr", "th", "td"}


@given(texts)
def test_code_is_shown_as_it_is(text: str) -> None:
    wanted = " ".join(text.split())
    if wanted:
        assert shown(code(text)) == (wanted, {"p", "code"})


@pytest.mark.parametrize("name", ["block_group", "2011-03-24", "ε=1.2-DP(X, D_c, d_HamS^household, D_Mult)", "a x b"])
def test_ordinary_names_stay_readable(name: str) -> None:
    assert plain(name) == name
