"""The pipeline in the report: one start, what is before it, what is done after it, and what passes by the mechanism."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser

import pytest

from stirred.report.page import STYLE
from stirred.report.pipeline import pipeline_section
from stirred.spec import catalogue, pull_back
from stirred.spec.specification import Specification


class Boxes(HTMLParser):
    """The boxes of the strip in order: kind and text; and whether every element was closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.boxes: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.label = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        if tag == "ol":
            self.label = dict(attrs)["aria-label"] or ""
        if tag == "li":
            self.boxes.append((dict(attrs)["class"] or "", ""))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "li" in self.open:
            kind, text = self.boxes[-1]
            self.boxes[-1] = (kind, f"{text} {data}".strip())


def boxes(specification: Specification) -> list[tuple[str, str]]:
    found = Boxes(pipeline_section(specification))
    assert found.open == []
    assert "in order" in found.label  # it is an ordered list with a name
    return found.boxes


def test_the_census_starts_at_the_edited_file_and_its_invariants_pass_by() -> None:
    found = boxes(catalogue.load("das-2020").specification)
    assert [kind for kind, _ in found] == ["before", "start", "step", "exact"]
    assert "imputation" in found[0][1]
    assert "Census Edited File" in found[1][1]
    assert "ρ²=55.371 for one post-imputation person" in found[2][1]
    for words in ("persons in each state", "housing units in each block", "group quarters by type"):
        assert words in found[3][1]


def test_a_promise_that_was_pulled_back_starts_before_the_step() -> None:
    census = pull_back(catalogue.load("das-2020").specification, "impute-copies", lipschitz=2, stage="raw-responses")
    found = boxes(census.specification)
    assert [kind for kind, _ in found] == ["start", "step", "step", "exact"]
    assert "answers as respondents gave them" in found[0][1]
    assert "completed by imputation" in found[1][1]
    assert "ρ²=221.484 for one person" in found[2][1]


@pytest.mark.parametrize("name", ["pure-dp", "randomised-response", "psa-2010-2pct"])
def test_there_is_exactly_one_start(name: str) -> None:
    kinds = [kind for kind, _ in boxes(catalogue.load(name).specification)]
    assert kinds.count("start") == 1


def test_where_nothing_is_fixed_it_says_so() -> None:
    pure = catalogue.load("pure-dp").specification
    free = pure.with_flavor(input_premetric=replace(pure.input_premetric, name="d_SymDiff"))
    assert boxes(free)[-1] == ("step", "Published Nothing is published exactly.")
    assert boxes(pure)[-1][0] == "exact"  # a bounded distance fixes the number of records


def test_what_is_fixed_and_stays_inside_is_not_called_published() -> None:
    found = Boxes(pipeline_section(catalogue.load("das-2020").specification, publishes_fixed=False)).boxes
    assert found[-1] == ("step", "Published Nothing is published exactly.")
    assert "not published: the number of persons in each state" in found[-2][1]


def test_names_are_escaped() -> None:
    pure = catalogue.load("pure-dp").specification
    odd = pure.with_flavor(
        domain=replace(pure.domain, dataset="<script>x</script>", prepared=(("<b>", "cut & dried"),))
    )
    html = pipeline_section(odd)
    assert "<script>" not in html
    assert "&lt;b&gt; cut &amp; dried" in html


def test_arrows_are_not_read_out() -> None:
    assert 'content:"\\2192" / ""' in STYLE
