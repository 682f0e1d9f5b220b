"""What `stirred spec` refuses: each message says what is wrong, where and how to mend it, and nothing is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stirred.cli.main import run
from stirred.spec import catalogue
from stirred.spec.document import to_json
from stirred.spec.problems import Problem
from tests.cli.running import APPROXIMATE, SURVEY

Refused = Callable[..., str]
NUMBER = "write a fraction, decimal (with a point) or percentage, such as '1/20', '0.05' or '5%'"
LOSS = "write a number such as '3/4', '0.75' or 'ln(3)', or 'inf' if nothing is promised"
IDLE = ("this option has no effect here", "leave it out, or see --help")
TO_TINY = ("--output", "approximate", "--delta", "1e-10")


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Refused:
    """Run a command that must be refused and return its problems in words; no file may appear or change."""
    monkeypatch.chdir(tmp_path)

    def files() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def call(*arguments: str) -> str:
        before = files()
        assert run([*arguments] if arguments[0] == "compare" else ["spec", *arguments]) == 2
        out, err = capsys.readouterr()
        assert files() == before
        if "--json" not in arguments:
            assert out == ""
            return err
        assert err == ""
        return "".join(f"{Problem(**problem)}\n" for problem in json.loads(out)["errors"])

    return call


def line(where: str, what: str, remedy: str) -> str:
    return f"{Problem(where=where, what=what, remedy=remedy)}\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = ", "spec.toml: this is not TOML (Invalid value"),
        ("a = inf", 'spec.toml: this is not TOML (inf is not a number here; write "inf" in quotes for infinity)'),
        ("schema_version = 1", "spec.toml domain: 'domain' is missing. Fix: add it."),
    ],
)
def test_a_specification_in_toml_is_checked_as_strictly(refused: Refused, text: str, said: str) -> None:
    Path("spec.toml").write_text(text, encoding="utf-8")
    assert said in refused("show", "spec.toml")


# ---- names and files ------------------------------------------------------------------------------

EVERYWHERE = [("show",), ("compare", "das-2020"), ("compose", "das-2020"), ("convert", "--unit", "x"),
              ("lint",), ("lint", "das-2020", "--before"), ("export",)]  # fmt: skip


@pytest.mark.parametrize("command", EVERYWHERE, ids=" ".join)
def test_every_subcommand_suggests_the_nearest_name(command: tuple[str, ...], refused: Refused) -> None:
    assert refused(*command, "psa-2010-3pct") == line(
        "catalogue",
        "there is no specification called 'psa-2010-3pct'",
        "did you mean psa-2010-4pct or psa-2010-2pct or psa-2020-state-county-5pct? "
        "`stirred spec list` shows all names; a file ends in .json",
    )


@pytest.mark.parametrize("command", EVERYWHERE, ids=" ".join)
def test_a_name_unlike_any_other_is_refused_without_a_suggestion(command: tuple[str, ...], refused: Refused) -> None:
    assert "Fix: `stirred spec list` shows all names" in refused(*command, "zzzzzz")


EXAMPLE = "write a specification.json; `stirred spec export NAME --format json` gives an example"
OUTPUTS = "one of pure, zcdp, approximate, gdp, renyi, tv, kl, hellinger, chi2"
SCHEMA = "see `stirred plan --schema specification`, or an example from `stirred spec export NAME --format json`"
FILES: list[tuple[bytes, list[tuple[str, str, str]]]] = [
    (b"[", [("", "this is not JSON (Expecting value: line 1 column 2 (char 1))", EXAMPLE)]),
    (b" \n", [("", "the file is empty", EXAMPLE)]),
    (b"\xff\xfe", [("", "this is not text in UTF-8", "save the file as UTF-8")]),
    (b'{"a": "\\ud800"}', [("", "the text holds half a character", "save the file as UTF-8")]),
    (b"[" * 100_000, [("", "the file is nested too deeply", EXAMPLE)]),
    (b'{"a": 1, "a": 2}', [("", "the key 'a' stands twice in one place", "correct it there")]),
    (b'{"a": NaN}', [("", 'NaN is not a number in JSON; write "inf" in quotes for infinity', "correct it there")]),
    (b"[1]", [("", "this is list and not a specification",
               "write an object with domain, multiverse, input_premetric, output_premetric and budget")]),
]  # fmt: skip
WRONG_BLOCKS: list[tuple[dict[str, Any], list[tuple[str, str, str]]]] = [
    ({"extra": 1}, [(" extra", "there is no setting called 'extra'", "remove it, or check its spelling")]),
    ({"multiverse": {"invariants": [{"kind": "margn", "of": "x"}]}, "input_premetric": {"name": "d_HamS"}},
     [(" multiverse.invariants entry 1", "there is no kind 'margn'",
       "did you mean 'margin'? There are margin, named, inequality"),
      (" input_premetric.unit", "'unit' is missing", "add it")]),
    ({"output_premetric": {"name": "D_Foo"}},
     [(" output_premetric name", "'D_Foo' is not an output premetric",
       "did you mean 'D_NoR'? There are: D_Mult, D_Max, D_Mult^delta, D_NoR, D_Renyi, D_GDP, D_TV, D_Tr, D_KL, D_H, "
       "D_chi2, D_W1")]),
    ({"budget": {"policy": {"value": "3/2"}}},
     [(" budget.policy", "'name' is missing", f"add name: {SCHEMA}")]),
    ({"output_premetric": {"name": "D_Tr", "curve": [["0", "0"], ["1/2", "1/4"], ["1", "1"]]}},
     [(" output_premetric curve", "the curve bends upwards at size 1/2",
       "a mixture of two tests is a test: raise the power there to the straight line")]),
    ({"output_premetric": {"name": "D_Mult", "delta": "1/2"}},
     [(" output_premetric delta", "delta 1/2 does not fit D_Mult",
       "D_Mult^delta needs a delta above 0 and below 1; the others take none")]),
    ({"budget": {"policy": {"name": "constant", "value": "3/2"}, "exact": "1"}},
     [(" budget exact", "exact is stated as '1', but it is '3/2'",
       "correct it, or leave 'exact' out: it is computed")]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "problems"),
    [*FILES, *((json.dumps({**SURVEY, **changed}).encode(), problems) for changed, problems in WRONG_BLOCKS)],
)
def test_a_file_that_is_no_specification_is_refused_with_every_problem(
    content: bytes, problems: list[tuple[str, str, str]], refused: Refused
) -> None:
    Path("bad.json").write_bytes(content)
    assert refused("show", "bad.json") == "".join(line(f"bad.json{where}", *rest) for where, *rest in problems)


def test_as_json_a_refusal_tells_every_problem_as_well(refused: Refused) -> None:
    changed, problems = WRONG_BLOCKS[1]
    Path("bad.json").write_text(json.dumps({**SURVEY, **changed}), encoding="utf-8")
    told = refused("show", "bad.json", "--json")
    assert told == refused("show", "bad.json")
    assert len(told.splitlines()) == len(problems) == 2


@pytest.mark.parametrize("name", ["none.json", "no/such"])
def test_a_missing_file_is_named(name: str, refused: Refused) -> None:
    reason = "cannot read the file: No such file or directory"
    assert refused("show", name) == line(name, reason, "check the path and its permissions")


@pytest.mark.parametrize("name", ["folder", "./folder", "folder.json"])
def test_a_folder_without_a_specification_is_named(name: str, refused: Refused) -> None:
    Path(name).mkdir()
    assert refused("show", name) == line(name, "this folder holds no specification.json", "name a bundle or a file")


# ---- options --------------------------------------------------------------------------------------

BELOW = "is below 1, but a change of one person changes at least one record"
LARGEST = "write the largest number of household records that one person changes, 1 or more"
UNITS = ("das-2020-topdown", "das-2020-phsafe")
WRONG: list[tuple[list[str], tuple[str, str, str]]] = [
    (["show", "das-2020", "--budget", "1"],
     ("--budget", "das-2020 has a budget already: ρ²=55.371",
      "leave --budget out; it is for definitions whose budget is a letter")),
    (["show", "pure-dp", "--explain", "--budget", "many"], ("--budget", "'many' is not a loss", LOSS)),
    (["export", "pure-dp", "--budget", "-1"], ("--budget", "-1 is negative", "write a loss of 0 or more")),
    (["lint", "das-2020", "--records", "0"], ("--records", "0 is below 1", "write 1 or more")),
    (["export", "das-2020", "--format", "word"],
     ("--format", "'word' is not a format", "one of opendp, json, markdown")),
    (["export", "das-2020", "--format", "latex"],
     ("--format", "LaTeX is no longer written; the last commit that has it is 03070069",
      "write --format markdown, whose formula is plain text that LaTeX can show")),
    (["export", "das-2020", "--format", "json", "--title", "T"], ("--title", *IDLE)),
    (["export", "das-2020", "--format", "markdown", "--curator", "C"], ("--curator", *IDLE)),
    (["export", "das-2020", "--out", "no/such"],
     ("no/such", "its parent folder does not exist, or may not be looked into",
      "create no first, or choose another place")),
    (["export", "das-2020", "--title", "\udcff", "--out", "out"],
     ("command line", "'\\udcff' is not UTF-8, or holds a NUL", "rename the file, or write the option again")),
    (["show"], ("stirred spec show", "Missing argument 'NAME|FILE'", "see `stirred spec show --help`")),
    (["shew"], ("stirred spec", "No such command 'shew'. Did you mean 'show'?", "see `stirred spec --help`")),
    # compare
    (["compare", *UNITS, "--kappa", "household:person"],
     ("--kappa", "'household:person' is not OLD:NEW=K", "write such as household:person=1")),
    (["compare", *UNITS, "--kappa", ":person=1"],
     ("--kappa", "':person=1' is not OLD:NEW=K", "write such as household:person=1")),
    (["compare", *UNITS, "--kappa", "household:person=x"],
     ("--kappa", "'x' is not a number that can be used here", NUMBER)),
    (["compare", *UNITS, "--kappa", "household:person=0"], ("--kappa", f"0 {BELOW}", LARGEST)),
    (["compare", *UNITS, "--kappa", "household:person=-3"], ("--kappa", f"-3 {BELOW}", LARGEST)),
    (["compare", *UNITS, "--kappa", "person:person=1"],
     ("--kappa", "'person:person=1' names one unit twice", "name two different units")),
    (["compare", *UNITS, "--kappa", "dog:person=1"],
     ("--kappa", "dog and person are not the units here", "use household, person")),
    # compose
    (["compose", "das-2020"], ("stirred spec compose", "there is one specification", "give two or more")),
    (["compose", "das-2020", "zcdp"],
     ("zcdp", "the budget is a letter without a value",
      "give it one first: `stirred spec export zcdp --budget 1 --format json --out chosen.json`")),
    (["compose", *UNITS],
     ("compose what", "the releases protect different units: person, household",
      "choose one with --unit person, and state a factor for each of the others with --kappa")),
    (["compose", *UNITS, "--unit", "person"],
     ("compose what", "nothing says how a change of one person bounds the number of changed household records",
      "state it: --kappa household:person=K")),
    (["compose", *UNITS, "--unit", "person", "--kappa", "household:person=1/2"], ("--kappa", f"1/2 {BELOW}", LARGEST)),
    (["compose", "das-2020", "das-2020-topdown", "--kappa", "household:person=1"], ("--kappa", *IDLE)),
    (["compose", *UNITS, "--unit", "person", "--kappa", "household:person=1", "--kappa", "person:household=6"],
     ("--kappa", *IDLE)),
    (["compose", "das-2020", "das-2020-topdown", "--delta", "1e-10"], ("--delta", *IDLE)),
    # convert
    (["convert", "das-2020"],
     ("stirred spec convert", "nothing to convert to", "give --output, --unit or --refine")),
    (["convert", "das-2020", "--output", "gauss"],
     ("--output", "'gauss' is not an output premetric", OUTPUTS)),
    (["convert", "das-2020", "--output", "", "--refine", "person"],
     ("--output", "'' is not an output premetric", OUTPUTS)),
    (["convert", "das-2020", "--output", "pure"],
     ("--output", "zCDP, zero-concentrated differential privacy gives no pure differential privacy: a rare output may "
      "still change the odds by any factor", "from D_NoR one can go to D_GDP, D_H, D_KL, D_Mult^delta, D_Renyi, D_TV, "
      "D_Tr, D_chi2")),
    (["convert", "das-2020", "--output", "w1"],
     ("--output", "zCDP, zero-concentrated differential privacy gives no Wasserstein privacy: how far numbers move "
      "says nothing about their probabilities, nor these about how far numbers move", "from D_NoR one can go to D_GDP, "
      "D_H, D_KL, D_Mult^delta, D_Renyi, D_TV, D_Tr, D_chi2")),
    (["convert", "das-2020", "--output", "f-dp"],
     ("--output", "a trade-off curve has corners, which no option takes",
      "use `change_output(..., to=trade_off(curve))` in Python")),
    (["convert", "pure-dp", "--output", "zcdp"],
     ("--budget", "the budget is a letter without a value", "choose one, such as `with_budget('1')` or `--budget 1`")),
    (["convert", "das-2020", "--output", "approximate"],
     ("--delta", "approximate DP needs a delta", "write such as --delta 1e-10")),
    (["convert", "das-2020", "--output", "approximate", "--delta", "0"],
     ("--delta", "delta 0 does not fit D_Mult^delta",
      "D_Mult^delta needs a delta above 0 and below 1; the others take none")),
    (["convert", "das-2020", "--output", "approximate", "--delta", "7"],
     ("--delta", "7 is not a probability",
      "write a fraction from 0 to 1, such as '1/20', '0.05' or '5%'; did you mean 7%?")),
    (["convert", "das-2020", "--output", "renyi"], ("--order", "Rényi DP needs an order", "write such as --order 2")),
    (["convert", "das-2020", "--output", "renyi", "--order", "1"],
     ("--order", "1 is not above 1", "write a number above 1")),
    (["convert", "das-2020", "--output", "renyi", "--order", "x"],
     ("--order", "'x' is not a number that can be used here", NUMBER)),
    (["convert", "das-2020", *TO_TINY, "--method", "sharp"],
     ("--method", "'sharp' is not a conversion", "choose bun-steinke or cks")),
    (["convert", "pure-dp", "--budget", "1", "--output", "zcdp", "--method", "cks"],
     ("--method", "'cks' is not a conversion", "choose sharp or bun-steinke")),
    (["convert", "das-2020", "--output", "tv", "--method", "cks"],
     ("--method", "'cks' is not a conversion", "leave it out: there is nothing to choose here")),
    (["convert", "das-2020", *TO_TINY, "--at-distance", "0"], ("--at-distance", "0 is below 1", "write 1 or more")),
    (["convert", "pure-dp", "--budget", "1", *TO_TINY, "--at-distance", "2"], ("--at-distance", *IDLE)),
    (["convert", "das-2020", "--output", "zcdp", "--at-distance", "0"], ("--at-distance", *IDLE)),
    (["convert", "das-2020", "--output", "zcdp", "--delta", "1e-10"], ("--delta", *IDLE)),
    (["convert", "das-2020", *TO_TINY, "--order", "2"], ("--order", *IDLE)),
    (["convert", "das-2020", "--refine", "person", "--method", "cks"], ("--method", *IDLE)),
    (["convert", "das-2020", "--output", "zcdp", "--factor", "6"], ("--factor", *IDLE)),
    (["convert", "das-2020", "--output", "zcdp", "--because", "six"], ("--because", *IDLE)),
    (["convert", "das-2020", "--output", "zcdp", "--people"], ("--people", *IDLE)),
    (["convert", "das-2020", "--unit", "household"],
     ("--factor", "nothing says how many old units one household changes",
      "state the largest number of person records that one household changes, and why: --factor 6 --because '...'")),
    (["convert", "das-2020", "--unit", "household", "--factor", "1/2"],
     ("--factor", "1/2 is below 1, but a change of one household changes at least one record",
      "write the largest number of old units that one new unit changes, 1 or more")),
    (["convert", "das-2020", "--unit", "household", "--factor", "six"],
     ("--factor", "'six' is not a number that can be used here", NUMBER)),
    (["convert", "das-2020", "--unit", "household", "--factor", "6", "--because", " "],
     ("--because", "no reason given for the factor",
      "say why no new unit holds more old units, such as 'households have at most 6 persons'")),
    (["convert", "das-2020", "--unit", "household", "--factor", "6", "--because", "\udcff", "--out", "out"],
     ("command line", "'\\udcff' is not UTF-8, or holds a NUL", "rename the file, or write the option again")),
    (["convert", "das-2020", "--unit", "person", "--factor", "6"],
     ("--unit", "the unit is person already", "name another unit")),
    (["convert", "das-2020", "--unit", "", "--factor", "6"],
     ("--unit", "no unit", "write such as 'person' or 'household'")),
    (["convert", "das-2020", "--refine", "houshold: size @ county"],
     ("--refine", "there is no kind of record called 'houshold' here",
      "did you mean household? There are: household, housing unit, occupied group quarters, person")),
    (["convert", "das-2020", "--refine", "household: size @ parish"],
     ("--refine", "there is no level called 'parish' here",
      "There are: block, block_group, county, state, tract")),
    (["convert", "das-2020", "--refine", "household: size x @ county"],
     ("--refine", "'household: size x @ county' cannot be read", "write such as 'household: size x tenure @ county'")),
    (["convert", "das-2020", "--refine", "household @ county @ state"],
     ("--refine", "'household @ county @ state' cannot be read", "write such as 'household: size x tenure @ county'")),
    (["convert", "das-2020", "--refine", "@ county"],
     ("--refine invariant", "a margin counts nothing", "say what it counts: of='household'")),
    (["convert", "das-2020", "--refine", "person: age x age"],
     ("--refine invariant number of persons by age x age", "a variable is named twice", "name each variable once")),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "problem"), WRONG, ids=[ascii(" ".join(case[0])) for case in WRONG])
def test_a_wrong_request_is_refused_with_what_where_and_remedy(
    arguments: list[str], problem: tuple[str, str, str], refused: Refused
) -> None:
    if arguments[0] in ("compose", "convert") and "--out" not in arguments:
        arguments = [*arguments, "--out", "never-written.json"]
    assert refused(*arguments) == line(*problem)


def test_a_delta_is_idle_where_every_release_has_its_own(refused: Refused) -> None:
    Path("own.json").write_text(json.dumps(APPROXIMATE), encoding="utf-8")
    assert refused("compose", "own.json", "own.json", "--delta", "1e-10") == line("--delta", *IDLE)


def test_files_of_different_domains_are_not_composed(refused: Refused) -> None:
    Path("survey.json").write_text(json.dumps(SURVEY), encoding="utf-8")
    Path("census.json").write_text(to_json(catalogue.load("das-2020").specification), encoding="utf-8")
    assert refused("compose", "survey.json", "census.json").startswith("compose who: the domains differ: survey, the ")
