"""The audit of a bundle sees changes although every checksum was redone: what is said must follow from the files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stirred import Entropy
from stirred.audit import audit_bundle
from stirred.cli.main import run as command
from stirred.mechanisms.records import audit as bundle_audit_promise
from stirred.release.plan_file import plan_from
from stirred.release.prepared import prepare
from stirred.release.publish import publish
from stirred.release.run import run
from stirred.spec.budget import Budget, Constant, Derived
from stirred.spec.document import from_json, mechanism_in, to_json
from stirred.spec.given_numbers import loss
from stirred.spec.input_premetric import InputPremetric
from stirred.spec.output_premetric import OutputPremetric
from stirred.spec.specification import Specification
from tests.release.tampering import add, frame, retell, specified, text
from tests.world import households, manifest, persons, undoubted

Change = Callable[[Path], object]
Out = pytest.CaptureFixture[str]

COUNTIES = ("East", "North", "South", "West")
MECHANISMS: dict[str, dict[str, Any]] = {
    "permutation": {"rate": "1/2"},
    "rates": {"rate": "1/2", "rates": [{"size": 1, "rate": "1/4"}]},
    "conditioned": {"name": "conditioned-swap", "rate": "1/2"},
    "proportional": {"name": "conditioned-swap", "rate": "1/2", "redraw_law": "proportional"},
    "declared": {
        "name": "conditioned-swap",
        "rate": "1/2",
        "redraw_law": {"East": "1/2", "North": "1/6", "South": "1/6", "West": "1/6"},
    },
    "mallows": {"name": "mallows-swap", "epsilon": 2},
    "shuffle": {"name": "shuffle-swap", "rate": "9/10"},
    "response on swap": {
        "name": "response-swap",
        "rate": "1/2",
        "respond": "county",
        "values": ["East", "North", "South", "West", "Isles"],
        "change": "1/5",
    },
    "response on hold": {
        "name": "response-swap",
        "rate": "1/2",
        "respond": "tenure",
        "values": ["owned", "rented", "free"],
        "change": "1/5",
        "rates": [{"size": 1, "rate": "1/4"}],
    },
    "nothing promised": {"rate": "1"},
}


def release(folder: Path, out: str, *, format_: str = "parquet", **mechanism: Any) -> Path:
    plan = {
        "data": {"households": "homes.parquet", "persons": "people.parquet", "hid": "hid", "id": ["pid"]},
        "mechanism": {"match": ["size"], "swap": ["county"], **mechanism},
        "tables": [{"variables": ["county", "tenure"]}, {"name": "Ages", "variables": ["county", "age"]}],
        "release": {"out": out, "format": format_, "accept": ["nothing-promised"] if out == "nothing promised" else []},
    }
    return run(prepare(plan_from(plan, source="plan", folder=folder)), entropy=Entropy.from_os())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    homes = households()
    homes.write_parquet(folder / "homes.parquet")
    pairs = [(a, b, i - j) for i, a in enumerate(COUNTIES) for j, b in enumerate(COUNTIES[:i])]
    pl.DataFrame(pairs, schema=["from", "to", "distance"], orient="row").write_csv(folder / "distances.csv")
    people = persons(homes).with_columns(sex=pl.when(pl.col("pid") % 2 == 0).then(pl.lit("f")).otherwise(pl.lit("m")))
    people.write_parquet(folder / "people.parquet")
    for name, mechanism in MECHANISMS.items():
        release(folder, name, **mechanism)
    release(folder, "csv", format_="csv", rate="1/2")
    return folder


@pytest.fixture
def bundle(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made / "permutation", tmp_path / "bundle"))


def said(bundle: Path, *changes: Change) -> str:
    """Change a bundle, redo its checksums, and return what its audit finds wrong."""
    for change in changes:
        change(bundle)
    if (bundle / "manifest.json").exists():
        retell(bundle)
    audit = audit_bundle(bundle)
    assert not audit.passed
    return "\n".join(str(problem) for problem in audit.problems)


def promised(change: Callable[[Specification], Specification]) -> Change:
    """Write another promise, consistent in itself: every number in it follows from its own policy."""

    def write(bundle: Path) -> None:
        path = bundle / "public" / "specification.json"
        written = path.read_text(encoding="utf-8")
        text = to_json(change(from_json(written)), mechanism=mechanism_in(written))
        path.write_text(text, encoding="utf-8")

    return write


def policy(**facts: Any) -> Change:
    """Give the strata of the budget's policy other facts."""

    def change(specification: Specification) -> Specification:
        old: Any = specification.budget.policy
        new = replace(old, strata=tuple(replace(each, **facts) for each in old.strata))
        return specification.with_budget(Budget(policy=new, paper_epsilon=new.paper))

    return promised(change)


def smaller(specification: Specification) -> Specification:
    """Claim a tenth, by the same formula where there is one."""
    old = specification.budget.policy
    value = loss("1/10", where="test")
    new = replace(old, value=value) if isinstance(old, Derived) else Constant(value=value)
    return specification.with_budget(replace(specification.budget, policy=new))


def flavored(**blocks: Any) -> Change:
    return promised(lambda specification: specification.with_flavor(**blocks))


def fixing(**facts: Any) -> Change:
    return promised(lambda s: s.with_flavor(multiverse=replace(s.multiverse, **facts)))


# ---- what is right ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*MECHANISMS, "csv"])
def test_the_promise_of_every_member_is_computed_anew_from_its_released_files(name: str, made: Path) -> None:
    audit = audit_bundle(made / name)
    assert audit.problems == ()
    assert audit.unchecked == ()
    checks = "\n".join(audit.checks)
    assert "computed anew from the released file; largest live stratum 20 records" in checks
    assert "strata.parquet: 3 strata, computed anew" in checks
    assert "specification.md: says what specification.json says" in checks
    assert "all characteristics of their persons: as in the input" in checks


@pytest.mark.parametrize("name", [*MECHANISMS, "csv"])
def test_what_was_published_is_audited_without_the_manifest(name: str, made: Path) -> None:
    audit = audit_bundle(made / name / "public")
    assert audit.problems == ()
    assert "checksums: there is neither manifest.json nor CHECKSUMS.sha256 here" in audit.unchecked
    assert any("computed anew from the released file" in check for check in audit.checks)
    believed = "the settings of the mechanism: without manifest.json, specification.json is believed"
    assert believed in audit.unchecked


@pytest.mark.parametrize("name", ["permutation", "declared"])
def test_what_was_published_without_all_settings_is_held_against_its_strata(
    name: str, made: Path, tmp_path: Path
) -> None:
    bundle = Path(shutil.copytree(made / name, tmp_path / "bundle"))
    specified(lambda document: document["mechanism"]["settings"].pop("rate"))(bundle)
    audit = audit_bundle(bundle / "public")
    assert audit.problems == ()
    assert any("do not tell enough of the mechanism" in each for each in audit.unchecked)
    assert any("their records counted anew" in check for check in audit.checks)


def test_what_was_published_without_its_mechanism_says_so(bundle: Path) -> None:
    specified(lambda document: document.pop("mechanism"))(bundle)
    audit = audit_bundle(bundle / "public")
    assert audit.problems == ()
    assert any("no file here names a mechanism that is installed" in each for each in audit.unchecked)
    assert any(check.startswith("rows are grouped by county") for check in audit.checks)


@pytest.mark.parametrize(
    ("change", "what"), [({"name": "shuffle-swap"}, "name"), ({"settings": {"rate": "1/4"}}, "rate")]
)
def test_another_mechanism_than_that_of_the_plan_is_seen(change: dict[str, Any], what: str, bundle: Path) -> None:
    def changed(document: dict[str, Any]) -> None:
        own = document["mechanism"]
        settings = own["settings"] | change.get("settings", {})
        own.update(change | {"settings": settings})

    assert f"mechanism: it says another {what} than the plan of the" in said(bundle, specified(changed))


def test_a_released_file_of_several_parts_is_audited(bundle: Path) -> None:
    for name in ("data", "persons"):
        path = bundle / "public" / f"{name}.parquet"
        whole, notes = pl.read_parquet(path), pl.read_parquet_metadata(path)
        path.unlink()
        path.mkdir()
        for number, part in enumerate((whole.head(20), whole.slice(20))):
            kept = {key: value for key, value in notes.items() if key.startswith("stirred.")}
            part.write_parquet(path / f"part-{number:05}.parquet", metadata=kept)
    retell(bundle)
    audit = audit_bundle(bundle)
    assert audit.problems == ()
    assert any("computed anew" in check for check in audit.checks)


def test_published_files_are_held_against_the_checksums_published_with_them(made: Path, tmp_path: Path) -> None:
    publish(made / "permutation", tmp_path / "out")
    assert "checksums of 10 files" in audit_bundle(tmp_path / "out").checks
    with (tmp_path / "out" / "README.md").open("a") as file:
        file.write(".")
    assert "README.md: it is not the file CHECKSUMS.sha256 describes" in said(tmp_path / "out")


# ---- the budget ------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", [".", "public"])
@pytest.mark.parametrize(
    ("change", "what"),
    [
        (promised(smaller), "budget: it says 0.1 ("),
        (policy(rate="3/5"), "budget: it says"),
        (policy(largest_stratum=4), "budget: it says"),
        (fixing(nearest=1000), "multiverse nearest: it says 1000, and the released file gives 2"),
        (flavored(input_premetric=InputPremetric(name="d_SymDiff", unit="household")), "input_premetric name: it says"),
        (flavored(output_premetric=OutputPremetric(name="D_TV")), "output_premetric name: it says D_TV"),
    ],
    ids=["constant", "rate", "size", "nearest", "input", "output"],
)
def test_another_promise_than_that_of_the_files_is_seen(change: Change, what: str, folder: str, bundle: Path) -> None:
    change(bundle)
    retell(bundle)
    found = [str(problem) for problem in audit_bundle(bundle / folder).problems]
    assert any(each.startswith(f"public/specification.json {what}") for each in found), found


def test_an_invariant_left_out_of_the_specification_is_seen(bundle: Path) -> None:
    found = said(bundle, specified(lambda document: document["multiverse"]["invariants"].pop()))
    assert "public/specification.json multiverse invariants: it says nothing else, and" in found


@pytest.mark.parametrize("folder", [".", "public"])
@pytest.mark.parametrize("name", ["conditioned", "proportional", "mallows", "shuffle", "rates"])
def test_a_smaller_budget_is_seen_for_every_member(name: str, folder: str, made: Path, tmp_path: Path) -> None:
    forged = Path(shutil.copytree(made / name, tmp_path / "bundle"))
    promised(smaller)(forged)
    retell(forged)
    found = "\n".join(str(problem) for problem in audit_bundle(forged / folder).problems)
    assert "public/specification.json budget: it says 0.1 (" in found


@pytest.mark.parametrize(
    ("block", "change"),
    [
        ("assumptions", specified(lambda d: d["assumptions"].pop())),
        ("theorem", specified(lambda d: d["theorem"].pop())),
        ("settings_from", specified(lambda d: d.update(settings_from="policy"))),
        ("domain dataset", specified(lambda d: d["domain"].update(dataset="all of them"))),
        ("domain record_types", specified(lambda d: d["domain"].update(record_types=["household"]))),
    ],
)
def test_other_words_in_the_specification_are_seen(block: str, change: Change, bundle: Path) -> None:
    assert f"public/specification.json {block}: it says" in said(bundle, change)


def test_a_file_too_long_to_be_planned_again_is_held_against_its_strata(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle_audit_promise, "MOST_RECORDS", 59)
    audit = audit_bundle(bundle)
    assert audit.passed
    assert "the budget and which strata are live, computed anew: there are more than 59 records" in audit.unchecked
    assert "its budget is not that of the strata in strata.parquet" in said(bundle, policy(largest_stratum=4))


# ---- the strata ------------------------------------------------------------------------------------


def strata(*columns: pl.Expr) -> Change:
    return frame("strata.parquet", lambda f: f.with_columns(*columns))


RATES = strata(pl.lit("2/5").alias("stratum_rate"))
RECORDS = strata(pl.lit(7).alias("stratum_records"))


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize(
    ("change", "name", "seen_when_long"),
    [
        (RATES, "stratum_rate", True),
        (RECORDS, "stratum_records", True),
        (strata(pl.lit(False).alias("stratum_live")), "stratum_live", True),
        (strata(pl.lit("shuffle").alias("stratum_law")), "stratum_law", False),
        (strata(pl.lit(0.25).alias("stratum_expected_share_moved")), "stratum_expected_share_moved", False),
        (strata(pl.lit(None).alias("stratum_expected_share_moved")), "stratum_expected_share_moved", False),
        (strata(pl.col("size") + 1), "size", True),
    ],
)
def test_other_strata_than_those_of_the_files_are_seen(
    change: Change, name: str, seen_when_long: bool, long: bool, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if long:
        monkeypatch.setattr(bundle_audit_promise, "MOST_RECORDS", 59)
        change(bundle)
        retell(bundle)
        assert audit_bundle(bundle).passed != seen_when_long
        return
    assert f"public/strata.parquet: {name} is not that of the released file" in said(bundle, change)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (RATES, "public/strata.parquet"),
        (RECORDS, "public/strata.parquet"),
        (strata(pl.lit(False).alias("stratum_live")), "public/strata.parquet"),
    ],
)
def test_other_strata_are_seen_in_what_was_published(change: Change, where: str, bundle: Path) -> None:
    change(bundle)
    assert where in {problem.where for problem in audit_bundle(bundle / "public").problems}


@pytest.mark.parametrize(
    "change",
    [
        lambda bundle: (bundle / "public" / "strata.parquet").unlink(),
        add("public/strata.parquet"),
        frame("strata.parquet", lambda f: f.head(2)),
        frame("strata.parquet", lambda f: f.drop("stratum_live")),
    ],
    ids=["removed", "no table", "shortened", "without a column"],
)
def test_strata_that_are_missing_are_seen(change: Change, bundle: Path) -> None:
    assert "public/strata.parquet: it " in said(bundle, change)


# ---- persons ---------------------------------------------------------------------------------------


def first(column: str, value: pl.Expr) -> pl.Expr:
    return pl.when(pl.int_range(pl.len()) == 0).then(value).otherwise(pl.col(column)).alias(column)


def exchanged(people: pl.DataFrame) -> pl.DataFrame:
    """Exchange the sex of a man and a woman; the table of ages stays as it was."""
    row = {sex: int(people["sex"].eq(sex).arg_true()[0]) for sex in ("f", "m")}
    sex = people["sex"].to_list()
    sex[row["f"]], sex[row["m"]] = "m", "f"
    return people.with_columns(pl.Series("sex", sex))


def without_tables(bundle: Path) -> None:
    shutil.rmtree(bundle / "public" / "tables")


@pytest.mark.parametrize(
    "change",
    [
        frame("persons.parquet", lambda f: f.with_columns(first("sex", pl.lit("x")))),
        frame("persons.parquet", exchanged),
        frame("persons.parquet", lambda f: f.slice(1)),
        frame("persons.parquet", lambda f: pl.concat([f.head(1), f])),
    ],
    ids=["sex", "exchange", "one less", "one more"],
)
def test_other_persons_than_those_of_the_input_are_seen(change: Change, bundle: Path) -> None:
    found = said(bundle, change, without_tables)
    assert "public/persons: the persons of the released households are not those of the input" in found


def test_without_the_checksum_of_persons_nobody_claims_to_have_compared_them(bundle: Path) -> None:
    bare = frame("invariants.parquet", lambda f: f.filter(pl.col("table").is_in(["match x swap", "hold"])))
    assert "the checksum of the hold table with persons is missing" in said(bundle, bare)
    audit = audit_bundle(bundle / "public")
    assert audit.passed
    assert any("whether the persons are those of the input" in text for text in audit.unchecked)
    assert not any("characteristics" in check for check in audit.checks)


def test_the_checksum_of_persons_keeps_to_the_columns_that_are_released(made: Path) -> None:
    bundle = release(made, "held", rate="1/2", hold=["tenure", "age"])
    assert audit_bundle(bundle).problems == ()
    shutil.rmtree(bundle)


# ---- pages -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["specification.md", "report.html"])
@pytest.mark.parametrize("public_alone", [False, True])
def test_pages_that_say_another_epsilon_are_seen(name: str, public_alone: bool, bundle: Path) -> None:
    text(name, lambda page: page.replace("ε=2.98", "ε=0.10"))(bundle)
    retell(bundle)
    found = audit_bundle(bundle / "public" if public_alone else bundle).problems
    assert [(p.where, p.what) for p in found] == [
        (f"public/{name}", "it says ε=0.10, and specification.json ε=2.98"),
    ]


@pytest.mark.parametrize(
    "change",
    [
        text("specification.md", lambda page: page.replace("at a rate of 1/2", "at a rate of 9/10")),
        text("specification.md", lambda page: page.replace("- the number of households by size x county\n", "")),
        text("report.html", lambda page: page.replace("the number of households by size x county", "nothing")),
        text("report.html", lambda page: page.replace('class="big">ε=2.98', 'class="big">ε=0.01')),
        lambda bundle: (bundle / "public" / "report.html").unlink(),
        lambda bundle: (bundle / "public" / "specification.md").unlink(),
    ],
)
def test_pages_that_say_something_else_are_seen(change: Change, bundle: Path) -> None:
    assert said(bundle, change).startswith(("public/specification.md: ", "public/report.html: "))


def test_pages_of_another_version_are_compared_by_their_numbers(bundle: Path) -> None:
    facts = {**manifest(bundle), "stirred": "0.0.1"}
    (bundle / "manifest.json").write_text(json.dumps(facts), encoding="utf-8")
    text("specification.md", lambda page: page.replace("How to read it", "Read it so"))(bundle)
    retell(bundle)
    audit = audit_bundle(bundle)
    assert audit.passed
    assert any("specification.md, its other words" in text for text in audit.unchecked)
    assert "it says ε=0.10" in said(bundle, text("specification.md", lambda page: page.replace("ε=2.98", "ε=0.10")))


# ---- columns and rows ------------------------------------------------------------------------------


def test_a_constant_column_is_not_called_an_old_identifier(bundle: Path) -> None:
    found = said(bundle, frame("data.parquet", lambda f: f.with_columns(pl.lit("N").alias("note"))))
    assert '"note" is in no invariant and is no new identifier: the specification says nothing about it' in found
    assert "old identifier" not in found


def test_reordered_rows_are_called_so_and_persons_stay_in_their_households(bundle: Path) -> None:
    found = said(bundle, frame("data.parquet", lambda f: f.sort("tenure", "size")))
    assert '"hid" is in no invariant and is 1 to 60 in another order than the rows' in found
    assert "is not that of their household" not in found
    assert "not those of the input" not in found


def test_an_id_that_stands_twice_is_seen(bundle: Path) -> None:
    found = said(bundle, frame("data.parquet", lambda f: f.with_columns(first("hid", pl.lit(2, dtype=pl.UInt32)))))
    assert '"hid" of some persons is no released household, or that of two' in found


# ---- the command -----------------------------------------------------------------------------------


def test_problems_come_first_and_what_was_right_under_a_heading_of_its_own(bundle: Path, capsys: Out) -> None:
    RATES(bundle)
    retell(bundle)
    capsys.readouterr()
    assert command(["check", str(bundle)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"Audit of {bundle}: failed"
    assert lines.index("Problems") == 2 < lines.index("Found right")
    assert lines[3].startswith("  - public/strata.parquet: stratum_rate")


@pytest.mark.parametrize("content", [[], ["notes.txt"]])
def test_a_folder_that_is_no_bundle_is_refused(content: list[str], tmp_path: Path, capsys: Out) -> None:
    for name in content:
        (tmp_path / name).write_text("hello")
    assert command(["check", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "this is not a bundle" in err
    assert "`stirred release`" in err


def test_the_public_folder_alone_is_audited_and_says_what_it_could_not(made: Path, capsys: Out) -> None:
    capsys.readouterr()
    assert command(["check", str(made / "permutation" / "public"), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["passed"]
    assert any(text.startswith("checksums: ") for text in facts["unchecked"])


def test_where_nothing_was_read_nothing_is_said_of_a_test_run(bundle: Path) -> None:
    (bundle / "manifest.json").unlink()
    shutil.rmtree(bundle / "public")
    (bundle / "public").mkdir()
    audit = audit_bundle(bundle)
    assert not audit.passed
    assert "not a test run" not in audit.checks


def test_an_infinite_budget_passes_with_a_plain_warning(made: Path, capsys: Out) -> None:
    capsys.readouterr()
    assert command(["check", str(made / "nothing promised")]) == 0
    out = capsys.readouterr().out
    assert "passed, but read the warning" in out
    assert "nothing is promised: the loss is infinite" in out
    assert command(["check", str(made / "permutation")]) == 0
    assert "nothing is promised" not in capsys.readouterr().out


def test_a_file_in_which_nothing_can_be_swapped_passes_with_a_plain_warning(made: Path) -> None:
    homes = households()
    homes.with_columns(pl.lit("East").alias("county")).write_parquet(made / "same.parquet")
    plan = {
        "data": {"households": "same.parquet", "id": ["hid"]},
        "mechanism": {"match": ["size"], "swap": ["county"], "rate": "1/2"},
        "release": {"out": "same"},
    }
    prepared = undoubted(prepare(plan_from(plan, source="plan", folder=made)))
    audit = audit_bundle(run(prepared, entropy=Entropy.from_os()))
    assert audit.passed
    assert any("nothing can be swapped" in warning for warning in audit.warnings)


@pytest.mark.parametrize("plan", [None, {}, {"data": {}, "mechanism": {"name": "permutation-swap"}}])
def test_a_manifest_that_does_not_say_how_the_release_was_made_is_a_problem(plan: Any, bundle: Path) -> None:
    (bundle / "manifest.json").write_text(json.dumps({**manifest(bundle), "plan": plan}), encoding="utf-8")
    assert "manifest.json: it does not say how the release was made" in said(bundle)
