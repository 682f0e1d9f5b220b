"""`stirred spec` as a user runs it: the numbers and verdicts of `stirred.spec`, in words and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from stirred.data.codebook_file import toml_value
from stirred.spec import Specification, UnitFactor, catalogue, compare
from stirred.spec.document import from_document, to_document, to_json
from stirred.spec.explanation import explain
from stirred.spec.findings import lint
from stirred.spec.render import to_markdown, to_registry
from tests.cli.running import SURVEY, Command, flat, load, told, words

SHOWN = ["pure-dp", "zcdp", "randomised-response", "das-2020-pl-household", "das-2020-topdown-measured", "das-2020",
         "psa-1940-massachusetts-5pct", "psa-2010-2pct", "psa-2020-county-tract-size-50pct"]  # fmt: skip


# ---- list, show, explain --------------------------------------------------------------------------


def test_the_list_has_every_entry_with_its_budget(command: Command) -> None:
    entries = [catalogue.load(name) for name in catalogue.names()]
    listed = told(command, "spec", "list")
    assert [{key: one[key] for key in one if key != "toy"} for one in listed] == [
        {"name": e.name, "kind": e.kind, "title": e.title, "notation": e.specification.notation, "source": e.source}
        | ({} if e.printed is None else {"printed": e.printed})
        for e in entries
    ]
    shown = words(command, "spec", "list")
    assert shown.startswith(
        " ".join(flat(f"{e.name} {e.title}: {e.budget_text}") for e in entries)
        + " The budgets are in different currencies and must not be ranked"
    )


def test_the_list_can_be_had_by_kind(command: Command) -> None:
    definitions, releases = (told(command, "spec", "list", "--kind", kind) for kind in ("definition", "release"))
    assert [one["name"] for one in definitions] == catalogue.names("definition")
    assert {one["name"] for one in (*definitions, *releases)} == set(catalogue.names())
    group = next(one for one in definitions if one["name"] == "group-dp")["toy"]
    assert (group["budget_exact"], group["broken_exact"], group["datasets"]) == ("ln(9)", "ln(12)", 8)
    assert "spec map --out FILE.svg" in words(command, "spec", "list", "--kind", "definition")
    absent = told(command, "spec", "list", "--kind", "absent")
    assert "pair by pair" in next(one for one in absent if one["name"] == "random-dp")["reason"]
    assert "not decided pair by pair" in words(command, "spec", "list", "--kind", "absent")


def test_a_definition_is_shown_with_its_toys(command: Command) -> None:
    shown = words(command, "spec", "show", "edge-dp")
    assert "toy on graphs on 3 nodes: ε=1.10 with randomised response with odds 3, 3, 3; not with" in shown
    assert "the wording of the source itself was not checked" in shown


def test_two_definitions_are_compared_with_a_value_for_their_letters_and_by_the_map(command: Command) -> None:
    found = told(command, "compare", "pure-dp", "zcdp", "--budget", "1")
    assert found["overall"] == "stronger"  # the remedy that the comparison of two letters names
    found = told(command, "compare", "event-dp", "free-lunch")
    ways = [line.partition(":")[0] for line in found["map"]]
    assert ways == ["free-lunch implies user-dp", "user-dp implies event-dp"]
    assert "2 back" in found["map"][1]
    shown = words(command, "compare", "user-dp", "event-dp")
    assert "Neither was derived from the other" in shown
    assert "user-dp implies event-dp: decided on 2 x 2 bits" in shown
    assert told(command, "compare", "edge-dp", "pure-dp")["map"] == []
    assert told(command, "compare", "das-2020", "pure-dp")["map"] == []


def test_a_letter_is_not_said_to_be_free_of_manoeuvres(command: Command) -> None:
    code, out, _ = command("spec", "lint", "edge-dp", "--before", "node-dp", "--json")
    assert code == 2
    assert json.loads(out)["errors"][0]["what"] == "the budget is a letter, so nothing says whether it fell"
    code, out, _ = command("spec", "lint", "edge-dp", "--before", "node-dp", "--budget", "1", "--json")
    assert code == 1
    assert "fell-by-unit" in [finding["check"] for finding in json.loads(out)["findings"]]
    code, out, _ = command("compare", "das-2020", "das-2020-topdown", "--budget", "1", "--json")
    assert code == 2
    assert json.loads(out)["errors"][0]["where"] == "--budget"


def test_the_map_of_definitions_is_listed_and_drawn(command: Command) -> None:
    arrows = told(command, "spec", "map")
    node = next(one for one in arrows if one["stronger"] == "node-dp")
    assert (node["weaker"], node["how"], node["factor"], node["factor_back"]) == ("edge-dp", "decided", 1, 2)
    assert next(one for one in arrows if one["weaker"] == "label-dp")["factor_back"] == "inf"
    assert "node-dp -> edge-dp decided on graphs on 3 nodes" in words(command, "spec", "map")
    code, out, err = command("spec", "map", "--out", "map.svg", "--json")
    assert (code, err, json.loads(out)) == (0, "wrote map.svg\n", arrows)
    assert command("spec", "map", "--out", "map.svg")[0] == 2  # it exists now
    code, _, err = command("spec", "map", "--out", "map.png")
    assert (code, err) == (2, "--out map.png: the map is drawn as SVG. Fix: write map.svg.\n")
    assert not Path("map.png").exists()
    assert Path("map.svg").read_text(encoding="utf-8").startswith("<svg ")


def test_a_number_that_is_printed_otherwise_is_shown_with_both(command: Command) -> None:
    listed = words(command, "spec", "list")
    assert "households of equal size at 50%: ε=12.49, printed 12.48" in listed
    assert "households of equal size at 5%: ε=15.43 psa" in listed  # the same, said once
    assert "printed ε=12.49, printed 12.48" in words(command, "spec", "show", "psa-1940-massachusetts-50pct")


@pytest.mark.parametrize("name", SHOWN)
def test_show_prints_the_five_blocks_in_words_and_the_document_as_json(name: str, command: Command) -> None:
    entry = catalogue.load(name)
    document = told(command, "spec", "show", name)
    assert document == to_document(entry.specification)
    assert from_document(document) == entry.specification
    shown, answers = words(command, "spec", "show", name), explain(entry.specification)
    assert shown.startswith(flat(f"{entry.title} {entry.specification.notation} who {answers.answers[0].answer} where"))
    for answer in answers.answers:
        assert flat(f"{answer.question} {answer.answer}") in shown
    for invariant in entry.specification.multiverse.invariants:
        assert f"- {'' if str(invariant).startswith('whether') else 'the '}{invariant}" in shown
    for line in (*map(str, entry.steps), *entry.notes, entry.source):
        assert flat(line) in shown


def test_a_definition_holds_nothing_fixed_but_what_its_distance_fixes(command: Command) -> None:
    assert "not protected: - the total number of records: not listed" in words(command, "spec", "show", "pure-dp")
    unbounded = {
        **SURVEY,
        "multiverse": {"invariants": []},
        "input_premetric": {"name": "d_SymDiff", "unit": "household"},
    }
    Path("open.json").write_text(json.dumps(unbounded), encoding="utf-8")
    assert words(command, "spec", "show", "open.json").endswith("held fixed, and so not protected: - nothing")


@pytest.mark.parametrize("name", ["das-2020", "pure-dp", "psa-1940-massachusetts-5pct", "randomised-response"])
def test_explain_tells_the_same_in_words_and_as_json(name: str, command: Command) -> None:
    entry = catalogue.load(name)
    meant = explain(entry.specification)
    assert told(command, "spec", "show", "--explain", name) == {
        "title": entry.title,
        "notation": entry.specification.notation,
        "not_protected": list(meant.not_protected),
        "answers": {answer.question: answer.answer for answer in meant.answers},
        "how_to_read": meant.how_to_read,
        "why_not_compare": meant.why_not_compare,
        "assumptions": list(meant.assumptions),
    }
    shown = words(command, "spec", "show", "--explain", name)
    order = [entry.title, *meant.not_protected, *(a.answer for a in meant.answers), meant.how_to_read]
    places = [shown.find(flat(line)) for line in (*order, meant.why_not_compare, *meant.assumptions)]
    assert -1 not in places
    assert places == sorted(places), "what is not protected comes first"
    assert ("This holds if:" in shown) == bool(meant.assumptions)


@pytest.mark.parametrize(("value", "shown"), [("1", "ε=1"), ("ln(3)", "ε=1.10"), ("2/3", "ε=0.667"), ("inf", "ε=inf")])
def test_a_letter_gets_the_value_of_budget_rounded_up(value: str, shown: str, command: Command) -> None:
    chosen = load("pure-dp").with_budget(value)
    for more in ([], ["--explain"]):
        assert f"{shown} at distance 1" in words(command, "spec", "show", "pure-dp", *more, "--budget", value)
    assert told(command, "spec", "show", "pure-dp", "--budget", value) == to_document(chosen)
    assert told(command, "spec", "show", "--explain", "pure-dp", "--budget", value)["notation"].startswith(
        f"{shown}-DP("
    )


# ---- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "named"),
    [("a.json", "a.json"), ("plain", "plain"), ("b/specification.json", "b"), ("b/public/specification.json", "b/")],
)
def test_a_file_or_a_bundle_is_read_where_a_name_is(place: str, named: str, command: Command, tmp_path: Path) -> None:
    target = tmp_path / place
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("\ufeff" + to_json(load("das-2020")), encoding="utf-8")
    assert from_document(told(command, "spec", "show", named)) == load("das-2020")
    assert words(command, "spec", "show", named).startswith(f"{target.stem} ρ²=55.371-DP(X_CEF")


def test_a_specification_in_toml_is_read_where_one_in_json_is(command: Command, tmp_path: Path) -> None:
    lines = [f"{key} = {toml_value(value)}" for key, value in SURVEY.items()]
    (tmp_path / "survey.toml").write_text("\n".join(lines), encoding="utf-8")
    assert from_document(told(command, "spec", "show", "survey.toml")) == from_document(SURVEY)
    assert told(command, "compare", "survey.toml", "survey.toml")["overall"] == "equal"
    for more in (["show", "--explain"], ["lint"], ["convert", "--output", "zcdp"], ["export", "--format", "markdown"]):
        assert command("spec", more[0], "survey.toml", *more[1:])[0] == 0
    assert command("ledger", "init", "a.ledger", "--dataset", "d")[0] == 0
    assert command("ledger", "add", "a.ledger", "survey.toml", "--mechanism", "noise")[0] == 0


def test_a_folder_that_is_no_bundle_does_not_hide_a_name_of_the_catalogue(command: Command, tmp_path: Path) -> None:
    (tmp_path / "das-2020").mkdir()
    assert from_document(told(command, "spec", "show", "das-2020")) == load("das-2020")


# ---- compare --------------------------------------------------------------------------------------

PAIRS = [
    ("psa-1940-massachusetts-50pct", "psa-1940-massachusetts-5pct", "stronger"),
    ("psa-1940-massachusetts-5pct", "psa-1940-massachusetts-50pct", "weaker"),
    ("das-2020", "das-2020", "equal"),
    ("das-2020", "psa-2020-state-county-5pct", None),
    ("pure-dp", "zcdp", None),
]


@pytest.mark.parametrize(("a", "b", "overall"), PAIRS)
def test_compare_gives_an_overall_verdict_only_where_one_follows(
    a: str, b: str, overall: str | None, command: Command
) -> None:
    meant = compare(load(a), load(b))
    facts = told(command, "compare", a, b)
    prices, arrows = facts.pop("prices"), facts.pop("map")
    assert len(arrows) == (2 if (a, b) == ("pure-dp", "zcdp") else 0)  # by way of gaussian-dp
    assert [len(prices[name]) for name in ("first", "second")] == [len(load(n).multiverse.invariants) for n in (a, b)]
    assert facts == {
        "first": {"name": a, "notation": load(a).notation},
        "second": {"name": b, "notation": load(b).notation},
        "blocks": {
            block.block: {"question": block.question, "verdict": block.verdict, "reason": block.reason}
            for block in meant.blocks
        },
        "overall": overall,
        "because": meant.because,
        "to_change": list(meant.to_change),
    }
    shown = words(command, "compare", a, b)
    verdict = {"stronger": "the first is STRONGER", "weaker": "the first is WEAKER", "equal": "EQUAL"}
    for block in meant.blocks:
        assert flat(f"{block.question} {verdict.get(block.verdict, 'INCOMPARABLE')}: {block.reason}") in shown
    assert flat(f"Overall: {verdict[overall] if overall else 'no verdict'}. {meant.because}") in shown
    assert ("For a verdict one would have to:" in shown) == (overall is None)


def test_a_stated_factor_between_units_is_used_and_quoted(command: Command) -> None:
    names = ("das-2020-topdown", "das-2020-phsafe")
    because = "a person lives in one household"
    factor = UnitFactor(old="household", new="person", factor=1, because=because)
    meant = compare(load(names[0]), load(names[1]), units=[factor])
    facts = told(command, "compare", *names, "--kappa", " household : person = 1", "--because", because)
    block = facts["blocks"]["input_premetric"]
    assert (block["verdict"], block["reason"]) == ("weaker", meant.blocks[2].reason)
    assert block["reason"].endswith(f"a change of one person changes at most 1 household record ({because})")
    assert facts["overall"] == meant.overall


# ---- lint and export ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "checks"),
    [
        (["randomised-response"], 0, []),
        (["das-2020"], 0, ["post-imputation-units", "settings-from-other-data", "large-budget"]),
        (["approximate-dp", "--budget", "1", "--records", "1000"], 0, ["stage-not-said"]),
        (["approximate-dp", "--budget", "1", "--records", "1000000000"], 0, ["delta-too-large", "stage-not-said"]),
        (["approximate-dp", "--budget", "1", "--records", "10000000000"], 1, ["delta-too-large", "stage-not-said"]),
        (["pure-dp", "--budget", "inf"], 1, ["infinite-budget", "stage-not-said"]),
        (["psa-2020-block-group-block-size-5pct", "--before", "psa-2020-state-county-5pct"], 1,
         ["fell-by-invariants", "post-imputation-units", "large-budget"]),
    ],
)  # fmt: skip
def test_lint_leaves_with_one_only_on_a_serious_finding(
    arguments: list[str], code: int, checks: list[str], command: Command
) -> None:
    given = dict(zip(arguments[1::2], arguments[2::2], strict=True))
    specification = load(arguments[0])
    specification = specification.with_budget(given["--budget"]) if "--budget" in given else specification
    before = load(given["--before"]) if "--before" in given else None
    meant = lint(specification, before=before, records=int(given["--records"]) if "--records" in given else None)
    status, out, _ = command("spec", "lint", *arguments, "--json")
    findings = json.loads(out)["findings"]
    assert (status, [finding["check"] for finding in findings]) == (code, checks)
    assert findings == [
        {"check": f.check, "severity": f.severity, "message": f.message, "advice": f.advice} for f in meant
    ]
    status, out, _ = command("spec", "lint", *arguments)
    in_words = [f"{f.severity}: {f.check} {f.message} Advice: {f.advice}" for f in meant]
    assert (status, flat(out)) == (code, flat(" ".join(in_words) or "nothing found; that is not a proof of protection"))


@pytest.mark.parametrize(
    ("options", "write"),
    [
        ([], lambda s: to_registry(s, name=catalogue.load("das-2020").title)),
        (["--title", "T", "--curator", "C"], lambda s: to_registry(s, name="T", curator="C")),
        (["--format", "markdown", "--title", "T"], lambda s: to_markdown(s, title="T")),
        (["--format", "json"], to_json),
    ],
)  # fmt: skip
def test_an_export_is_printed_told_and_written_alike(
    options: list[str], write: Callable[[Specification], str], command: Command
) -> None:
    text = write(load("das-2020"))
    assert command("spec", "export", "das-2020", *options) == (0, text, "")
    format_ = options[1] if options[:1] == ["--format"] else "opendp"
    assert told(command, "spec", "export", "das-2020", *options) == {
        "name": "das-2020",
        "format": format_,
        "text": text,
    }
    assert command("spec", "export", "das-2020", *options, "--out", "out") == (0, "", "wrote out\n")
    assert Path("out").read_text(encoding="utf-8") == text


def test_a_plan_file_is_not_taken_for_a_specification(tmp_path: Path, command: Command) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text('[data]\nfile = "homes.csv"\n[mechanism]\nname = "noisy-tables"\n', encoding="utf-8")
    code, _, err = command("spec", "show", "--explain", str(plan))
    assert code == 2
    assert f"this is a plan file, not a specification. Fix: run `stirred plan {plan}`" in " ".join(err.split())
    assert "missing" not in err
