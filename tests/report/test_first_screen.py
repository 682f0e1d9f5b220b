"""Three sentences and a picture: what they say, for any mechanism, and of releases that protect nothing."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from dataclasses import replace
from fractions import Fraction
from html import unescape
from itertools import permutations, product
from pathlib import Path
from typing import Any, cast

import polars as pl
import pytest

from stirred import Entropy
from stirred.data.uniqueness import uniqueness
from stirred.inference.unswap import corrected_tables
from stirred.mechanisms.protocol import Grid, Section, Typical
from stirred.mechanisms.records.laws.permutation import PermutationSwap
from stirred.release.plan_file import plan_from
from stirred.release.prepared import prepare
from stirred.release.reports import _blank
from stirred.release.run import run
from stirred.report.charts import COLOURS, GREY
from stirred.report.facts import embedded, facts_beside, facts_in
from stirred.report.first_screen import _amount
from stirred.report.release import NOTHING, ReleaseReport, internal_report, public_report
from stirred.report.transparency import transparency
from tests.world import CODEBOOK_OF_HOMES, households, persons

EDITIONS = {"public": public_report, "internal": internal_report}


def text_of(page: str) -> str:
    body = re.sub(r"<(style|script|svg)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body)))


def prepared_in(folder: Path, mechanism: dict[str, Any], **more: Any) -> Any:
    homes = households(120)
    homes.write_parquet(folder / "homes.parquet")
    persons(homes).write_parquet(folder / "people.parquet")
    (folder / "codebook.toml").write_text(CODEBOOK_OF_HOMES.replace('owned = "owned"', 'owned = "their own"'))
    plan = {
        "data": {"households": "homes.parquet", "id": ["hid"], **more.get("data", {})},
        "mechanism": mechanism,
        "tables": [{"variables": ["county", "tenure"]}],
        "release": {"out": "out", "accept": more.get("accept", [])},
    }
    return prepare(plan_from(plan, source="plan", folder=folder))


def blank(folder: Path, mechanism: dict[str, Any], **more: Any) -> ReleaseReport:
    prepared = prepared_in(folder, mechanism, **more)
    return _blank(prepared, prepared.plan.specification)


SWAP = {"match": ["size"], "swap": ["county"], "rate": "1/5"}


def test_a_swap_says_what_leaves_who_moves_and_how_far_off_counts_are(tmp_path: Path) -> None:
    people = {"persons": "people.parquet", "hid": "hid", "id": ["pid"]}
    bundle = run(prepared_in(tmp_path, SWAP, data=people), entropy=Entropy.from_os())
    for edition in EDITIONS:
        text = text_of((bundle / edition / "report.html").read_text(encoding="utf-8"))
        first = text.partition("In three sentences")[2].partition("What is promised, in five answers")[0]
        assert "Every household, with its persons, is published with all its values unchanged except county" in first
        # 40 of each size, 10 in each county: a moved record keeps its county in 9 of 39 cases.
        assert "About 20% of the 120 households are expected to get another record's values" in first
        assert "about 85% are published with their true county" in first
        assert re.search(
            r"A published count of 10 to 99 \(county x tenure\) is typically off by [\d.]+, nine in", first
        )
        assert "of the households are unique on what is published unchanged" in first
        # The picture has a title that can be seen, and not only heard.
        page = (bundle / edition / "report.html").read_text(encoding="utf-8")
        assert "<p class=note>Households by how many others have the same values" in page


def test_the_sentence_on_errors_is_from_the_published_file_alone(tmp_path: Path) -> None:
    """Another truth with the same released file: the same errors. They are a function of public files."""
    prepared = prepared_in(tmp_path, SWAP)
    released = prepared.mechanism.release(prepared.data, Entropy.from_os(), plan=prepared.plan)
    shown = corrected_tables(prepared.mechanism, released, prepared.data, prepared.tables)
    other = replace(prepared.data, households=released.public["data"].with_columns(hid=pl.Series(range(120))))
    plan = prepared.mechanism.plan(other, doubts=False)
    again = corrected_tables(prepared.mechanism, released, other, prepared.tables)
    (found,) = prepared.mechanism.typical_errors(plan, again)
    assert [found] == prepared.mechanism.typical_errors(prepared.plan, shown)
    assert 0.5 < found.error < 10
    assert found.within == math.ceil(1.645 * found.error)


@pytest.mark.parametrize(
    ("mechanism", "sentence"),
    [
        (
            {"name": "noisy-tables", "rho": "1/2"},
            "(county x tenure) is typically off by 1.4, nine in ten by at most 2.",
        ),
        (
            {"name": "noisy-tables", "noise": "laplace", "epsilon": 1},
            "is typically off by 2.8, nine in ten by at most 5",
        ),
    ],
)
def test_noisy_tables_say_the_width_of_their_noise(mechanism: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    """rho 1/2 for one table with squared changes 2: variance 2. epsilon 1 with changes 2: Laplace of loss 1/2."""
    prepared = prepared_in(tmp_path, mechanism, data={"codebook": "codebook.toml"})
    # Said before anything random happens: nothing here can fail after the draw.
    text = text_of(public_report(_blank(prepared, prepared.plan.specification)))
    assert sentence in text
    assert "Published exactly: the total number of households." in text
    assert "Nobody can be looked up by values that are published exactly; for one household" in text


def test_what_was_cut_before_the_noise_makes_an_error_at_least_what_is_said(tmp_path: Path) -> None:
    sums = [{"column": "size", "by": ["county"], "low": 0, "high": 2}]
    report = blank(tmp_path, {"name": "noisy-tables", "rho": 1, "sums": sums}, data={"codebook": "codebook.toml"})
    assert {each.table: each.at_least for each in report.typical} == {
        "county x tenure": False, "sum of size by county": True,
    }  # fmt: skip


def test_nine_in_ten_errors_of_a_swap_are_within_what_is_said() -> None:
    """By the exact law, all outputs listed: errors are whole, so 1.645 deviations of 0.4 are less than one record."""
    county, tenure, rate = [*"AABBB", *"BBBAA"], [*"oorrrrrrro"], Fraction(1, 12)
    chances: defaultdict[tuple[str, ...], float] = defaultdict(float)
    for chosen in product((False, True), repeat=len(county)):
        rows = [place for place, one in enumerate(chosen) if one]
        if len(rows) > 3:  # rarer than 1 in 170: left out, and counted as an error
            continue
        moved = [p for p in permutations(rows) if all(a != b for a, b in zip(rows, p, strict=True))]
        for each in moved:
            to = dict(zip(rows, each, strict=True))
            shown = tuple(county[to.get(place, place)] for place in range(len(county)))
            chances[shown] += float(rate ** len(rows) * (1 - rate) ** (len(county) - len(rows)) / len(moved))
    alone = float(len(county) * rate * (1 - rate) ** (len(county) - 1))
    true = sum(pair == ("A", "o") for pair in zip(county, tenure, strict=True))
    errors: defaultdict[int, float] = defaultdict(float)
    for shown, chance in chances.items():
        errors[sum(p == ("A", "o") for p in zip(shown, tenure, strict=True)) - true] += chance / (1 - alone)
    square = sum(error**2 * chance for error, chance in errors.items())
    cell = pl.DataFrame({"published": [12], "squared_error": [square], "kept": [0.0]})
    swap = PermutationSwap(match=[], swap=["county"], rate="1/12")
    (told,) = swap.typical_errors(cast(Any, None), {"county x tenure": cell})
    inside = [sum(c for error, c in errors.items() if abs(error) <= most) for most in (1.645 * told.error, told.within)]
    assert inside[0] < 0.89  # the outputs left out are not what it lacks
    assert inside[1] >= 0.9


def test_errors_by_table_and_size_fold_below_the_first(tmp_path: Path) -> None:
    both = [
        Typical(table="a", error=12.34, within=20.3, cells=4),
        Typical(table="b", error=0.123, within=1, size="1 to 9"),
    ]
    page = public_report(replace(blank(tmp_path, SWAP), typical=both))
    assert "A published count of any size (a) is typically off by 12, nine in ten by at most 20." in text_of(page)
    assert "<td>b</td><td>1 to 9</td><td class=n></td><td class=n>0.12</td><td class=n>1</td>" in page
    least = replace(both[0], at_least=True)
    page = public_report(replace(blank(tmp_path, SWAP), typical=[least]))
    assert "is typically off by at least 12; by the part of the error that is known here" in text_of(page)


@pytest.mark.parametrize("edition", EDITIONS)
def test_a_release_without_any_bound_says_so_in_its_title_in_red(edition: str, tmp_path: Path) -> None:
    report = blank(tmp_path, {**SWAP, "rate": "1"}, accept=["nothing-promised"])
    page = EDITIONS[edition](report)
    assert re.search(rf"<title>{NOTHING}: Release of homes", page)
    assert f"<h1 class=nothing>{NOTHING}: Release of homes</h1>" in page
    assert page.count("<h1") == 1
    assert "class=nothing" not in EDITIONS[edition](blank(tmp_path, SWAP))


@pytest.mark.parametrize("edition", EDITIONS)
def test_a_loss_of_0_because_nothing_can_move_is_called_nothing(edition: str, tmp_path: Path) -> None:
    """Such a release is refused; whoever renders the report of one all the same is told."""
    prepared = prepared_in(tmp_path, SWAP)
    alone = households(120).with_columns(county=pl.lit("East"))
    plan = prepared.mechanism.plan(replace(prepared.data, households=alone), doubts=False)
    assert plan.epsilon == 0
    page = EDITIONS[edition](replace(_blank(prepared, prepared.plan.specification), plan=plan))
    assert f"<h1 class=nothing>{NOTHING}: Release of homes</h1>" in page
    assert "Every household leaves as it is." in text_of(page)


def test_records_that_share_everything_and_files_that_are_not_counted(tmp_path: Path) -> None:
    report = blank(tmp_path, SWAP)
    pairs = uniqueness(pl.DataFrame({"size": [1, 1, 2, 2]}), ["size"], of="households")
    text = text_of(public_report(replace(report, exposure=pairs)))
    assert (
        "None of the households is unique on what is published unchanged (size): each shares it with at least 1" in text
    )
    text = text_of(public_report(replace(report, exposure=None, not_counted="not counted for more than 7 records")))
    assert "How many records are unique on what is published unchanged: not counted for more than 7 records." in text


def test_only_a_record_that_keeps_its_values_is_found(tmp_path: Path) -> None:
    """A table alone has no records, and a record with exchanged values may be another's: both are counts of 1."""
    found, one = "finds its record in the release", "each of them is a count of 1 in an exact table"
    swapped = blank(tmp_path, SWAP)
    tables = blank(tmp_path, {"name": "noisy-tables", "rho": 1, "keep": ["county"]}, data={"codebook": "codebook.toml"})
    alone = pl.DataFrame({"size": [1, 2], "county": ["A", "B"]})
    for report, key, said in ((swapped, "size", found), (swapped, "county", one), (tables, "county", one)):
        exposed = uniqueness(alone, [key], of="households")
        text = text_of(public_report(replace(report, exposure=exposed)))
        assert said in text
        assert ({found, one} - {said}).pop() not in text


@pytest.mark.parametrize("exact", [True, False])
def test_how_many_records_there_are_is_said_only_where_a_table_of_them_is_exact(
    exact: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a file that is too large to be counted, too: what has no exact table has nobody to count."""
    monkeypatch.setattr("stirred.data.uniqueness.MOST_RECORDS", 100)
    noise = {"name": "noisy-tables", "rho": 1}
    report = blank(tmp_path, SWAP if exact else noise, data={} if exact else {"codebook": "codebook.toml"})
    page = public_report(report)
    assert ("not counted for more than" in text_of(page)) == exact
    assert ("Nobody can be looked up by values that are published exactly" in text_of(page)) != exact
    assert facts_in(page)["exposure"] == ({} if exact else None)


def test_what_is_exact_is_the_same_wherever_it_is_said(tmp_path: Path) -> None:
    """Of a promise that compares files of one size the number of records is exact, though no invariant lists it."""
    noise = prepared_in(tmp_path, {"name": "noisy-tables", "rho": 1}, data={"codebook": "codebook.toml"})
    specification = noise.plan.specification
    told = {
        each.what: each.words
        for each in transparency(
            type(noise.mechanism), {}, specification, code="stirred 1", exact=noise.plan.published_figures
        )
    }
    assert told["what is exact"].startswith("the total number of households")
    assert "Published exactly: the total number of households." in text_of(public_report(_blank(noise, specification)))


def test_sections_of_a_mechanism_have_the_labels_of_the_codebook(tmp_path: Path) -> None:
    grid = Grid(header=("tenure", "records"), rows=(("owned", 3), ("rented", 4)))
    report = blank(tmp_path, SWAP, data={"codebook": "codebook.toml"})
    page = internal_report(replace(report, inside=[Section(title="Own", blocks=(grid,))]))
    assert "<td>their own</td><td class=n>3</td>" in page
    assert "<td>rented</td><td class=n>4</td>" in page


def test_long_tables_fold_and_nothing_is_cut_silently(tmp_path: Path) -> None:
    report = blank(tmp_path, SWAP)
    long = pl.DataFrame({"county": [f"C{number}" for number in range(201)], "count": range(201)})
    tables = {"long": long, "short": long.head(40)}
    page = public_report(replace(report, tables=tables, places=dict.fromkeys(tables, "tables/long.csv")))
    assert "<details><summary>200 rows</summary>" in page
    assert page.count("Showing the first 200 of 201 rows; all are in tables/long.csv.") == 1
    assert page.count("<summary>40 rows") == 0


@pytest.mark.parametrize("colour", [*COLOURS, GREY])
@pytest.mark.parametrize("paper", ["#ffffff", "#f5f7fa", "#12171e", "#1b222c"])
def test_colours_of_charts_stand_out_on_every_paper(colour: str, paper: str) -> None:
    from tests.report.test_editions_in_browser import contrast

    one, two = (f"rgb({', '.join(str(int(c[i : i + 2], 16)) for i in (1, 3, 5))})" for c in (colour, paper))
    assert contrast(one, two) >= 3


@pytest.mark.parametrize(
    "error", [1.4142135, 9.96, 9.9999, 12.345, 999.95, 1234.5, 9999.9, 14142.13, 141421.356, 2.5e9]
)
def test_the_page_shows_the_digits_that_its_facts_have(error: float) -> None:
    """Errors of 10,000 and more once had more digits on the page, and the release was refused after its rehearsal."""
    written = embedded({"accuracy": [{"error": error}]}).removeprefix('<template class="facts">')
    assert facts_beside(unescape(written.removesuffix("</template>")), [f"off by {_amount(error)}, nine"]) == []
