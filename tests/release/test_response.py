"""A response before a swap, from plan to published folder: what is public must not depend on the perturbed variable."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stirred import Entropy
from stirred.audit import audit_bundle
from stirred.cli.main import run as command
from stirred.mechanisms.protocol import VerificationError
from stirred.mechanisms.records.steps.response import ResponseSwap
from stirred.release.ledger import Ledger
from stirred.release.plan_file import plan_from
from stirred.release.prepared import prepare
from stirred.release.publish import publish
from stirred.release.run import run
from stirred.spec.document import from_json
from stirred.spec.exact import ln
from stirred.spec.invariant import Margin
from tests.world import households, manifest, released, stirred, swap_plan, world

COUNTIES = ["East", "North", "South", "West", "Isles"]
ON: dict[str, dict[str, Any]] = {
    "swap": {"respond": "county", "values": COUNTIES, "change": "1/5"},
    "hold": {"respond": "tenure", "values": ["owned", "rented", "free"], "change": "1/5"},
}
ROLES = pytest.mark.parametrize("role", ON)


def homes() -> pl.DataFrame:
    return households(300).with_columns(kind=pl.Series([f"k{i % 4}" for i in range(300)]))


def content(role: str, out: str, **more: Any) -> dict[str, Any]:
    tables = [("county", "tenure"), ("size", "kind"), ("kind", "age")]
    return swap_plan(people=True, tables=tables, release={"out": out, **more}, name="response-swap", **ON[role])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return world(tmp_path, homes(), people=True)


def release(folder: Path, role: str, out: str = "out", *, entropy: Entropy | None = None, **more: Any) -> Path:
    return released(folder, content(role, out, **more), entropy)


# ---- the bundle ----------------------------------------------------------------------------------------


@ROLES
@pytest.mark.parametrize("format_", ["parquet", "csv"])
def test_a_bundle_keeps_the_fewer_invariants_passes_its_audit_and_can_be_published(
    folder: Path, role: str, format_: str
) -> None:
    bundle = release(folder, role, format=format_)
    assert audit_bundle(bundle).passed, audit_bundle(bundle).problems
    publish(bundle, folder / "published")
    alone = audit_bundle(folder / "published")
    assert alone.passed, alone.problems
    assert any("budget ε=" in check and "computed anew" in check for check in alone.checks)
    specification = from_json((bundle / "public" / "specification.json").read_text(encoding="utf-8"))
    margins = [m.variables for m in specification.multiverse.invariants if isinstance(m, Margin)]
    assert all(ON[role]["respond"] not in margin for margin in margins)
    exact = pl.read_parquet(bundle / "public" / "invariants.parquet")
    assert ON[role]["respond"] not in exact.columns


@ROLES
def test_no_public_file_but_the_release_itself_depends_on_the_perturbed_variable(folder: Path, role: str) -> None:
    """Condition 4 of use: inputs differ in the perturbed variable alone; other public files are the same, to the byte.

    The second input has one value everywhere, so that strata which are live in the first are not in the plain sense.
    """
    name = ON[role]["respond"]
    release(folder, role, "one")
    homes().with_columns(pl.lit(ON[role]["values"][0]).alias(name)).write_parquet(folder / "homes.parquet")
    release(folder, role, "two")
    public = [folder / out / "public" for out in ("one", "two")]
    names = [sorted(str(path.relative_to(each)) for path in each.rglob("*") if path.is_file()) for each in public]
    assert names[0] == names[1]
    released = {"data.parquet", "persons.parquet", "report.html", "tables/county-x-tenure.csv"}
    same = [each for each in names[0] if each not in released]
    assert {"strata.parquet", "invariants.parquet", "specification.json", "specification.md", "README.md"} <= {*same}
    for each in same:
        assert (public[0] / each).read_bytes() == (public[1] / each).read_bytes(), each
    reports = [_without_tables((each / "report.html").read_text(encoding="utf-8")) for each in public]
    assert reports[0] == reports[1]
    assert "<h2>Strata</h2>" in reports[0]
    plain = pl.read_parquet(public[0] / "data.parquet")
    assert plain[name].n_unique() > 1


def _without_tables(report: str) -> str:
    """The report without the released tables, and without the sizes of tables counted from released records."""
    report = re.sub(r"<h2>Tables</h2>.*?</section>", "", report, flags=re.DOTALL)
    return re.sub(r"<tr><td>(match x swap table|table )[^\n]*?</tr>", "", report)


@ROLES
def test_the_report_says_both_promises_and_what_the_response_did(folder: Path, role: str) -> None:
    public = release(folder, role) / "public"
    for page in ("report.html", "README.md"):
        text = (public / page).read_text(encoding="utf-8")
        assert "neither keeps nor publishes" in text
        assert "with probability 1/5" in text
    readme = (public / "README.md").read_text(encoding="utf-8")
    assert "county x tenure, disturbed by the response and by swapping" in readme
    assert "size x kind, exact" in readme
    assert f"No count of {ON[role]['respond']} is exact" in readme


def test_the_loss_is_that_of_the_response_or_of_both(folder: Path) -> None:
    shown = [prepare(plan_from(content(role, "out"), source="plan", folder=folder)).plan.epsilon for role in ON]
    assert shown[0] == ln(16)
    plain = content("swap", "out")
    plain["mechanism"] = {"match": ["size"], "swap": ["county"], "rate": "1/2"}
    assert shown[1] == ln(8) + prepare(plan_from(plain, source="plan", folder=folder)).plan.epsilon


def test_seeded_runs_repeat_and_others_do_not(folder: Path) -> None:
    places = [
        release(folder, "swap", out, entropy=entropy)
        for out, entropy in (("a", Entropy.from_seed(1)), ("b", Entropy.from_seed(1)), ("c", Entropy.from_os()))
    ]
    frames = [pl.read_parquet(place / "public" / "data.parquet") for place in places]
    assert frames[0].equals(frames[1])
    assert not frames[0].equals(frames[2])


# ---- verification --------------------------------------------------------------------------------------


def _spoiled(column: str) -> Any:
    kept = ResponseSwap._before

    def before(self: ResponseSwap, data: Any, plan: Any, entropy: Any) -> Any:
        changed, swap = kept(self, data, plan, entropy)
        return replace(changed, households=changed.households.with_columns(pl.col(column).reverse())), swap

    return before


def test_a_response_that_changes_another_column_is_never_released(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ResponseSwap, "_before", _spoiled("kind"))
    with pytest.raises(VerificationError, match=r'"kind" differs|changed more than'):
        release(folder, "swap")
    assert not (folder / "out").exists()


def test_a_file_that_does_not_hold_the_response_is_never_released(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written must be what the response gave: another column of the same values is seen."""
    kept = ResponseSwap.release

    def other(self: ResponseSwap, *args: Any, **kwargs: Any) -> Any:
        released = kept(self, *args, **kwargs)
        file = released.internal["file"]
        homes = file.data.households.with_columns(pl.col("tenure").reverse())
        return replace(
            released, internal={**released.internal, "file": replace(file, data=replace(file.data, households=homes))}
        )

    monkeypatch.setattr(ResponseSwap, "release", other)
    with pytest.raises(VerificationError, match='"tenure" differs'):
        release(folder, "hold")


def test_how_many_records_changed_is_said_nowhere_in_public(folder: Path) -> None:
    bundle = release(folder, "hold")
    checks = json.loads((bundle / "manifest.json").read_text(encoding="utf-8"))["checks"]
    about = [check for check in checks if "response" in check["what"]]
    assert [check["result"] for check in about] == ["identical to the input"]
    assert about[0]["cells"] == 300 * 4, "all columns but one, of all records"


# ---- plan, codebook, ledger, command -------------------------------------------------------------------


def test_values_come_from_the_codebook_and_are_kept_in_the_manifest(folder: Path) -> None:
    assert command(["codebook", "init", "homes.parquet", "--out", "codes.toml"]) == 0
    text = (folder / "codes.toml").read_text(encoding="utf-8")
    text = re.sub(r'codes = \{ ?"?owned.*', 'codes = { "owned" = "", "rented" = "", "free" = "" }', text)
    text = re.sub("draft = true.*", "", text)
    (folder / "codes.toml").write_text(text, encoding="utf-8")
    wanted = content("hold", "out")
    del wanted["mechanism"]["values"]
    for key in ("persons", "hid"):
        del wanted["data"][key]
    wanted["data"] |= {"codebook": "codes.toml", "id": ["hid"]}
    wanted["tables"] = []
    bundle = run(prepare(plan_from(wanted, source="plan", folder=folder)), entropy=Entropy.from_os())
    assert manifest(bundle)["plan"]["mechanism"]["values"] == ["owned", "rented", "free"]
    assert audit_bundle(bundle).passed
    assert pl.read_parquet(bundle / "public" / "data.parquet")["tenure"].is_in(["owned", "rented", "free"]).all()


def test_values_of_a_draft_refuse_until_somebody_declares_them(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["codebook", "init", "homes.parquet", "--out", "codes.toml"]) == 0
    told = ["plan", *OPTIONS, "1/2", "--set", "respond=county", "--set", "change=20%", "--codebook", "codes.toml"]
    said = 'the values of "county" are those of a codebook that is still a draft'
    capsys.readouterr()
    assert command(told) == 2
    assert said in capsys.readouterr().err
    assert command([*told, "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["doubts"][-1]["what"].startswith(said)
    assert command([*told, "--accept", "draft:county"]) == 0
    assert f"draft:county (accepted): {said}" in " ".join(capsys.readouterr().out.split())
    # Declared by the custodian: in the plan, or by removing the mark.
    assert command([*told, "--set", "values=" + ",".join([*COUNTIES, "Nowhere"])]) == 0
    assert "doubts     none" in capsys.readouterr().out
    text = (folder / "codes.toml").read_text(encoding="utf-8")
    (folder / "codes.toml").write_text(re.sub("draft = true.*", "", text), encoding="utf-8")
    capsys.readouterr()
    assert command(told) == 0
    assert "doubts     none" in capsys.readouterr().out


def test_the_ledger_accounts_for_the_promise_with_the_fewest_invariants(folder: Path) -> None:
    ledger = Ledger.create(folder / "account.ledger", dataset="homes")
    release(folder, "swap", ledger="account.ledger")
    (entry,) = ledger.entries()
    assert entry.mechanism == "response-swap"
    assert entry.specification is not None
    assert entry.specification.budget.realised == ln(16)
    (margin,) = (m for m in entry.specification.multiverse.invariants if isinstance(m, Margin))
    assert "county" not in margin.variables


OPTIONS = ["homes.parquet", "--id", "hid", "--match", "size", "--swap", "county", "--mechanism", "response", "--rate"]


def test_the_command_line_gives_the_plan(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = [*OPTIONS, "1/2", "--set", "respond=county", "--set", "values=" + ",".join(COUNTIES), "--set", "change=20%"]
    assert command(["plan", *told, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["epsilon_exact"] == "ln(16)"
    assert facts["swap_flavor_epsilon"] <= facts["epsilon"]
    assert facts["epsilon_by_rate"] == [], "the loss does not depend on the rate"
    assert command(["swap", *told, "--out", "out", "--quiet"]) == 0
    assert audit_bundle(folder / "out").passed


@pytest.mark.parametrize(
    ("more", "what"),
    [
        (
            ["--set", "values=East,North", "--set", "respond=county", "--set", "change=1/5"],
            "not among the declared values",
        ),
        (["--set", "values=1,2,3", "--set", "respond=size", "--set", "change=1/5"], "matched on size"),
        (["--set", "respond=county", "--set", "change=1/5"], "values"),
        (["--set", "values=" + ",".join(COUNTIES), "--set", "respond=county"], "change"),
        (["--set", "values=" + ",".join(COUNTIES), "--set", "change=1/5"], "respond"),
        (["--set", "values=a,b", "--set", "respond=hid", "--set", "change=1/5"], "no released column"),
    ],
)
def test_what_cannot_be_done_is_refused_without_a_trace(folder: Path, more: list[str], what: str) -> None:
    done = stirred("swap", *OPTIONS, "1/2", *more, "--out", "out", cwd=folder)
    assert done.returncode == 2, done.stdout
    assert what in done.stderr
    assert "Traceback" not in done.stderr
    assert not (folder / "out").exists()


def test_a_response_is_only_for_the_member_that_has_one(folder: Path) -> None:
    done = stirred(
        "plan", "homes.parquet", "--id", "hid", "--match", "size", "--swap", "county", "--rate", "1/2", "--set",
        "respond=tenure", cwd=folder,
    )  # fmt: skip
    assert done.returncode == 2
    assert "the permutation swap has no respond" in done.stderr


def test_a_column_that_tells_the_perturbed_one_is_warned_of(folder: Path) -> None:
    homes().with_columns(own=pl.col("tenure") == "owned").write_parquet(folder / "homes.parquet")
    doubts = prepare(plan_from(content("hold", "out"), source="plan", folder=folder)).doubts
    (doubt,) = [doubt for doubt in doubts if doubt.name == "tells-response:own"]
    assert '"own" is released and determines "tenure"' in doubt.what
    assert doubt.refuses


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (
            ["unswap", "out/public/tables/county-x-tenure.csv", "--bundle", "out", "--out", "c.csv"],
            "leaves some inexact",
        ),
        (["plan", "plan.toml", "--expect-from", "margins"], "no closed form"),
        (["compare", "plan.toml"], "that the response protects"),
        (["plan", "plan.toml", "--epsilon", "1"], "on the rate and on change"),
    ],
)
def test_what_has_no_formula_is_refused(folder: Path, arguments: list[str], what: str) -> None:
    (folder / "plan.toml").write_text(PLAN, encoding="utf-8")
    if arguments[0] == "unswap":
        assert command(["release", "plan.toml", "--quiet"]) == 0
    done = stirred(*arguments, cwd=folder)
    assert done.returncode == 2, done.stdout
    assert what in done.stderr
    assert "Traceback" not in done.stderr


PLAN = """
[data]
households = "homes.parquet"
id = ["hid"]
[mechanism]
name = "response-swap"
match = ["size"]
swap = ["county"]
rate = "1/2"
respond = "county"
values = ["East", "North", "South", "West", "Isles"]
change = "1/5"
[[tables]]
variables = ["county", "tenure"]
[release]
out = "out"
"""


def test_plans_compare_and_what_is_protected_is_not_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "swap.toml").write_text(PLAN, encoding="utf-8")
    text = PLAN.replace('"county"\nvalues', '"tenure"\nvalues').replace(
        '"East", "North", "South", "West", "Isles"', '"owned", "rented"'
    )
    (folder / "hold.toml").write_text(text, encoding="utf-8")
    assert command(["compare", "swap.toml", "hold.toml", "--out", "page.html"]) == 0
    shown = capsys.readouterr().out
    assert "not shown:" in shown
    assert "protected" in shown
    assert command(["compare", "swap.toml", "hold.toml", "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)["swaps"]
    assert first["revealed"] is None  # it would follow from counts of counties, which the response protects
    assert first["areas"] is None
    assert first["share_changed"] is None
    assert second["smallest_area"]["records"] > 0
    assert "tenure changed at 1/5" in second["setting"]


@ROLES
def test_without_match_variables_and_with_nothing_else_held(folder: Path, role: str) -> None:
    """The smallest file: two columns and one stratum; one table is left of the two, or none of the swap's."""
    households(300).select("county", "tenure").write_parquet(folder / "homes.parquet")
    wanted = content(role, "out")
    wanted["data"], wanted["tables"] = {"households": "homes.parquet"}, []
    wanted["mechanism"]["match"] = []
    prepared = prepare(plan_from(wanted, source="plan", folder=folder))
    assert prepared.plan.epsilon == (ln(16) if role == "swap" else ln(8))
    bundle = run(prepared, entropy=Entropy.from_os())
    publish(bundle, folder / "published")
    assert audit_bundle(folder / "published").passed
    tables = pl.read_parquet(bundle / "public" / "invariants.parquet")["table"].unique().to_list()
    assert tables == (["hold"] if role == "swap" else ["match x swap"])


def test_the_page_for_readers_names_the_response_where_nothing_else_is_held(folder: Path) -> None:
    plan = content("hold", "out")
    plan["data"] = {"households": "homes.parquet", "id": ["hid"]}
    plan["mechanism"]["hold"] = ["size", "tenure"]
    plan["tables"] = []
    bundle = run(prepare(plan_from(plan, source="plan", folder=folder)), entropy=Entropy.from_os())
    for page in ("README.md", "report.html"):
        text = (bundle / "public" / page).read_text(encoding="utf-8")
        assert "held variables" not in text
    assert "Counts that cross county with tenure are disturbed" in (bundle / "public" / "README.md").read_text()
