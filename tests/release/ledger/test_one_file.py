"""One file, one domain: whatever words a promise uses for its file, what is known about the file decides."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

import pytest

from stirred.data.problems import PlanError
from stirred.mechanisms import registry
from stirred.release.ledger import Ledger, Request
from stirred.release.ledger.currency import Currency
from stirred.release.ledger.row import Charge
from stirred.release.ledger.total import Total, total
from stirred.release.plan_file import plan_from, to_toml
from stirred.release.prepared import prepare
from stirred.spec import PURE, ZCDP, Specification, UnitFactor
from stirred.spec.comparison import compare
from stirred.spec.convert_output import group_delta, pure_to_rho2
from stirred.spec.document import AccountDocument, from_json, to_json
from stirred.spec.exact import add_up
from stirred.survey.estimates.mechanism import SurveyEstimates
from tests.mechanisms.tables.making import one_table, toy_h, toy_p
from tests.world import households, stirred, world

ROLES = {"match": ["size"], "swap": ["county"]}
TABLE = {"tables": [{"variables": ["county", "tenure"]}]}
GEOGRAPHY = {"hierarchy": ["county"], "similar": ["size"], "risk_variables": ["tenure"]}
PAIRS = {"state": "county", "geography": ["county", "size"], "adults": "size", "minors": "size", "tenure": "tenure",
         "unique_on": ["size"], "unique_in": "county", "by_block_size": {"5": "1/10"}, "race": "tenure",
         "unique_race": "1/2", "cap": "3%"}  # fmt: skip
ESTIMATES = {"epsilon": 1, "attest": ["design-weights"], "weight_bounds": [1, 10], "variance": "none",
             "estimates": [{"kind": "table", "by": ["tenure"]}]}  # fmt: skip
# Settings by mechanism, and what else the plan says; every mechanism that runs on a small file of households.
PLANS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "permutation-swap": ({**ROLES, "rate": "1/2"}, {}),
    "conditioned-swap": ({**ROLES, "rate": "1/2"}, {}),
    "mallows-swap": ({**ROLES, "epsilon": 2}, {}),
    "shuffle-swap": ({**ROLES, "rate": "9/10"}, {}),
    "two-stage-swap": ({**ROLES, "rate": "1/2", "fine_match": ["tenure"], "fine_rate": "1/2"}, {}),
    "response-swap": ({**ROLES, "rate": "1/2", "respond": "tenure", "change": "1/10"}, {}),
    "noisy-swap": ({**ROLES, "rate": "1/2", "noise_epsilon": 1}, TABLE),
    "targeted-record-swap": (GEOGRAPHY, {}),
    "pairwise-swap-2010": (PAIRS, {}),
    "cell-key": ({"ptable": "ptable.csv"}, TABLE),
    "noisy-tables": ({"rho": "1/2"}, TABLE),
    "topdown": ({"levels": ["county"], "attributes": ["tenure"], "rho": 1, "queries": ["detailed"],
                 "totals": ["county"], "unit": "household"}, {}),
    "survey-estimates": (ESTIMATES, {"data": {"households": None, "sample": "homes.parquet", "record": "household"},
                                     "design": {"weights": "size"}}),
}  # fmt: skip
WITH_PERSONS = ("permutation-swap", "conditioned-swap", "targeted-record-swap")
# The tabulators of 2020 ask for the codes of the census, so their promises are taken for a file of that name.
OF_2020: dict[str, Callable[[], Any]] = {"safetab-p": toy_p, "safetab-h": toy_h, "phsafe": lambda: one_table(2)}

Promises = Mapping[str, Specification]


def test_every_registered_mechanism_is_among_the_pairs() -> None:
    assert {*PLANS, *OF_2020} == {*registry.names()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = world(tmp_path_factory.mktemp("one-file"), people=True, codebook=True)
    (place / "people.parquet").rename(place / "persons.parquet")
    assert not stirred("ptable", "design", "--D", "2", "--V", "9/10", "--out", "ptable.csv", cwd=place).returncode
    return place


def content(name: str, **data: Any) -> dict[str, Any]:
    settings, more = PLANS[name]
    given = {"households": "homes.parquet", "codebook": "codebook.toml", **more.get("data", {}), **data}
    given |= {} if "persons" in given else {"id": ["hid"]}
    return {**more, "data": given, "mechanism": {"name": name, **settings}, "release": {"out": "out"}}


@pytest.fixture(scope="module")
def promises(folder: Path) -> Promises:
    """The promise of each mechanism as a ledger returns it, all recorded as releases of one file."""
    ledger = Ledger.create(folder / "all.ledger", dataset="register")
    for name in PLANS:
        record(ledger, name, folder)
    for name in WITH_PERSONS:
        record(ledger, name, folder, codebook=None, persons="persons.parquet", hid="hid")
    for name, made in OF_2020.items():
        promise = made().specification(name="a file of the census")
        named = {"data": {"name": "register"}}
        ledger.add(Request(mechanism=name, specification=promise, inputs={"file": "0" * 64}, parameters=named))
    return {label(entry.mechanism, entry.inputs): entry.specification for entry in ledger.entries()
            if entry.specification}  # fmt: skip


def label(name: str, inputs: Mapping[str, str]) -> str:
    return f"{name} with persons" if "persons" in inputs else name


def record(ledger: Ledger, name: str, folder: Path, **data: Any) -> None:
    made = prepare(plan_from(content(name, **data), source="plan.toml", folder=folder))
    ledger.add(Request(mechanism=name, specification=made.plan.specification, inputs=made.inputs))


def together(promises: Promises, *names: str, currency: Currency | None = None) -> Total:
    charges = [Charge(number, str(number), name) for number, name in enumerate(names, 1)]
    return total(charges, promises.__getitem__, currency=currency)


def why_apart(one: Specification, other: Specification) -> str:
    """Return why the theory has no total for two promises about one file; empty where it has one."""
    with_delta = [each for each in (one, other) if each.output_premetric.delta]
    if with_delta:
        # Cell keys: (epsilon, delta) where one record is added or removed. A record that changes is two of these, and
        # two releases have twice the delta: of this table nothing is left in either case.
        delta, epsilon = with_delta[0].output_premetric.delta, with_delta[0].budget.realised
        assert 2 * delta >= 1
        assert group_delta(epsilon, delta, size=2) >= 1
        pure = {each.output_premetric for each in (one, other)} == {PURE, with_delta[0].output_premetric}
        if pure and not any(each.input_premetric.bounded for each in (one, other)):
            units = {each.input_premetric.unit for each in (one, other)}
            return "protect different units" if len(units) > 1 else ""
        return "the deltas add up|measure change differently|is one removed and one added"
    units = {each.input_premetric.unit for each in (one, other)}
    return "protect different units" if len(units) > 1 else ""  # nobody stated how many persons a household has


def expected(*each: Specification) -> Any:
    """Return the sum in the strongest measure that all reach; where one is zCDP, every other is converted (R17)."""
    if all(one.output_premetric == PURE for one in each):
        return add_up(one.budget.realised for one in each)
    assert {one.output_premetric for one in each} <= {PURE, ZCDP}
    return add_up(
        one.budget.realised
        if one.output_premetric == ZCDP
        else pure_to_rho2(one.budget.realised, nearest=one.multiverse.nearest)
        for one in each
    )


def test_every_pair_of_mechanisms_on_one_file_has_one_total_where_the_theory_gives_one(promises: Promises) -> None:
    """R16: relative to what both hold fixed, the losses add up."""
    for one, other in combinations_with_replacement(promises, 2):
        found, each = together(promises, one, other), (promises[one], promises[other])
        if why := why_apart(*each):
            reasons = [*(problem.what for problem in found.apart), *(aside.reason for aside in found.alone)]
            assert found.specification is None, (one, other)
            assert any(piece in reason for piece in why.split("|") for reason in reasons), (one, other, reasons)
            continue
        whole = found.specification
        assert whole is not None, (one, other, found.apart, found.alone)
        unbounded = [promise for promise in each if promise.budget.is_unbounded]
        assert bool(found.unbounded) == bool(unbounded), (one, other)
        if unbounded:
            assert whole.budget.is_unbounded
        else:
            assert float(whole.budget.realised) == pytest.approx(float(expected(*each)), rel=1e-12), (one, other)
        for promise in each:
            assert whole.multiverse.refines(promise.multiverse), (one, other)
        seen = {promise.domain.looked_at for promise in each}
        assert len(seen) == 1 or whole.multiverse.nearest == 1, (one, other)


def test_a_stated_factor_joins_persons_and_households(promises: Promises) -> None:
    factor = UnitFactor(old="household", new="person", factor=1, because="one home each")
    stated = Currency(unit="person", units=(factor,))
    found = together(promises, "permutation-swap", "safetab-p", currency=stated)
    assert found.specification is not None
    assert found.specification.input_premetric.unit == "person"


OLD_WORDS = {
    "permutation-swap": "the released columns of the confidential file '{}'",
    "noisy-tables": "the columns of the confidential file '{}' that the tables use",
    "topdown": "the confidential file '{}'",
    "survey-estimates": "a sample as drawn, with what its units would answer",
}


def in_old_words(name: str, promise: Specification) -> Specification:
    """The promise as the version before wrote it, read from its document: nothing but words says which file it is."""
    words = OLD_WORDS[name].format(promise.domain.name)
    return promise.with_flavor(domain=replace(promise.domain, dataset=words, identity=frozenset()))


def test_a_ledger_of_the_version_before_gets_the_better_total(promises: Promises, tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "old.ledger", dataset="register")
    old = {name: in_old_words(name, promises[name]) for name in OLD_WORDS}
    for name, promise in old.items():
        ledger.add(Request(mechanism=name, specification=promise, inputs={"households": "a" * 64}))
    found = Ledger.open(tmp_path / "old.ledger").total()
    assert found.specification is not None, found.apart
    assert found.specification.budget.realised == expected(*old.values())
    assert found.specification.domain.dataset == "the confidential file 'homes'"
    assert [entry.specification for entry in ledger.entries()] == [*old.values()], "entries say what they said"
    more = Request(mechanism="noisy-tables", specification=promises["noisy-tables"], inputs={"file": "a" * 64})
    assert ledger.would(more).specification is not None


def test_without_anything_known_of_the_file_words_decide_as_before(promises: Promises) -> None:
    old = {name: in_old_words(name, promises[name]) for name in OLD_WORDS}
    assert together(old, "permutation-swap", "permutation-swap").specification is not None
    found = together(old, "permutation-swap", "noisy-tables")
    assert found.specification is None
    assert "the domains differ" in found.apart[0].what


def test_what_is_called_like_the_dataset_of_the_ledger_is_of_it(promises: Promises, tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "named.ledger", dataset="homes")
    for name in ("permutation-swap", "noisy-tables"):
        ledger.add(Request(mechanism=name, specification=in_old_words(name, promises[name])))
    assert ledger.total().specification is not None
    stray = in_old_words("topdown", promises["topdown"])
    stray = stray.with_flavor(domain=replace(stray.domain, name="another register"))
    ledger.add(Request(mechanism="topdown", specification=stray))
    assert ledger.total().specification is None


def test_what_a_sample_was_drawn_from_is_not_the_file(promises: Promises, tmp_path: Path) -> None:
    """Amplification rests on a draw that figures of the sample, held fixed, may tell: nothing is added up."""
    ledger = Ledger.create(tmp_path / "frame.ledger", dataset="homes")
    settings: dict[str, Any] = {
        "epsilon": "1/2",
        "estimates": ESTIMATES["estimates"],
        "weight_bounds": [1, 10],
        "variance": "none",
    }
    frame = SurveyEstimates(**{
        **settings, "setting": 11, "sampling": {"design": "srswor", "n": 60, "N": 600}, "sample": "s",
        "attest": ["design-weights", "random-sample", "secret-sample"], "values": {"tenure": ["owned", "rented"]},
    })  # fmt: skip
    promise = frame.specification(name="homes", columns=["tenure"])
    for name, own in (("frame", promise), ("noise", promises["noisy-tables"]), ("swap", promises["mallows-swap"])):
        ledger.add(Request(mechanism=name, specification=own, inputs={"households": "a" * 64}))
    assert [part.entries for part in ledger.total().parts] == [(1,), (2, 3)]


# ---- the same file under another key, and another file


def test_households_and_file_with_one_path_are_one_file(folder: Path, tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "keys.ledger", dataset="register")
    record(ledger, "permutation-swap", folder)
    record(ledger, "noisy-tables", folder, households=None, file="homes.parquet", record="household")
    assert [[*entry.inputs] for entry in ledger.entries()] == [["households"], ["file"]]
    assert ledger.total().specification is not None
    shown = stirred("ledger", "show", tmp_path / "keys.ledger", cwd=tmp_path).stdout
    assert "different files" not in shown


@pytest.mark.parametrize("key", ["households", "file"])
def test_another_file_is_refused_whichever_key_names_it(folder: Path, tmp_path: Path, key: str) -> None:
    ledger = Ledger.create(tmp_path / "other.ledger", dataset="register")
    record(ledger, "permutation-swap", folder)
    households(30).write_parquet(tmp_path / "few.parquet")
    data = {"households": None, "record": "household", key: str(tmp_path / "few.parquet")}
    plan = content("noisy-tables", **data)
    plan["release"] |= {"ledger": str(tmp_path / "other.ledger")}
    with pytest.raises(PlanError, match="this is not the file of entry 1"):
        prepare(plan_from(plan, source="plan.toml", folder=folder))


def test_the_bundle_of_another_file_is_added_only_by_the_name_of_the_dataset(folder: Path, tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "others.ledger", dataset="register")
    record(ledger, "permutation-swap", folder)
    made = prepare(plan_from(content("noisy-tables"), source="plan.toml", folder=folder))
    bundle = tmp_path / "bundle"
    (bundle / "public").mkdir(parents=True)
    (bundle / "public" / "specification.json").write_text(to_json(made.plan.specification))
    stated = {"plan": {"data": {"households": "few.parquet"}}, "inputs": {"households": "b" * 64}, "files": {}}
    (bundle / "manifest.json").write_text(json.dumps(stated))
    for named in ((), ("--name", "another")):
        refused = stirred("ledger", "add", ledger.name, str(bundle), *named, cwd=tmp_path)
        assert refused.returncode == 2
        assert "this is not the file of entry 1, released before from 'register'" in " ".join(refused.stderr.split())
    assert len([*ledger.entries()]) == 1
    added = stirred("ledger", "add", ledger.name, str(bundle), "--name", "register", cwd=tmp_path)
    assert not added.returncode, added.stderr
    assert [*ledger.entries()][-1].parameters["data"]["name"] == "register"  # it stays in the record


def test_the_persons_of_an_earlier_release_may_be_the_records_of_the_next(folder: Path, tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "persons.ledger", dataset="register")
    record(ledger, "permutation-swap", folder, codebook=None, persons="persons.parquet", hid="hid")
    plan = {
        "data": {"file": "persons.parquet", "record": "person", "id": ["hid"]},
        "mechanism": {"name": "permutation-swap", "match": [], "swap": ["age"], "rate": "1/2", "unit": "person"},
        "release": {"out": "out", "ledger": str(tmp_path / "persons.ledger")},
    }
    assert not prepare(plan_from(plan, source="plan.toml", folder=folder)).other_files


# ---- compared


def plan_files(folder: Path, *names: str, **sections: Any) -> list[str]:
    """Write plans of one file beside it; the release goes to a folder named like the mechanism."""
    for name in names:
        plan = {**content(name, **sections.pop("data", {})), "release": {"out": name}, **sections}
        (folder / f"{name}.toml").write_text(to_toml(plan_from(plan, source=name, folder=folder)), encoding="utf-8")
    return [f"{name}.toml" for name in names]


@pytest.fixture
def place(folder: Path, tmp_path: Path) -> Path:
    """A folder of its own with the file."""
    return Path(shutil.copytree(folder, tmp_path / "place", ignore=shutil.ignore_patterns("*.ledger*")))


def test_plans_of_one_file_protect_the_same_file(place: Path) -> None:
    """A permutation beside a targeted swap said that it is two files, and called the setting of the latter a loss."""
    names = ("permutation-swap", "targeted-record-swap", "noisy-tables", "topdown")
    done = stirred("compare", *plan_files(place, *names), cwd=place)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "domain: " not in said, "equal blocks are not listed"
    assert "figures of different files" not in said
    assert "swaprate 5%" in said
    assert "epsilon inf" not in said
    assert "noisy-tables beside permutation-swap: multiverse: stronger (it holds less fixed" in said
    assert "output_premetric: weaker" in said


def test_plans_that_name_one_path_by_two_keys_are_compared(place: Path) -> None:
    plans = plan_files(place, "permutation-swap")
    plans += plan_files(
        place, "mallows-swap", data={"households": None, "file": "homes.parquet", "record": "household"}
    )
    done = stirred("compare", *plans, cwd=place)
    assert done.returncode == 0, done.stderr
    assert "domain: " not in done.stdout


def test_each_plan_is_compared_as_it_prepares_the_file(place: Path) -> None:
    step = {"step": "recode", "column": "tenure", "map": {"owned": "home", "rented": "home"}}
    plans = plan_files(place, "permutation-swap") + plan_files(place, "mallows-swap", prepare=[step])
    done = stirred("compare", *plans, cwd=place)
    assert done.returncode == 0, done.stderr
    assert "prepared differently" in " ".join(done.stdout.split())


def test_bundles_of_one_file_are_compared_by_what_their_manifests_know(place: Path) -> None:
    """Made without a ledger and by the version before: words differ, and the checksum of the file is the same."""
    both = ("permutation-swap", "noisy-tables")
    for name, plan in zip(both, plan_files(place, *both), strict=True):
        assert stirred("release", plan, "--seed", "1", "--quiet", cwd=place).returncode == 0
        written = place / name / "public" / "specification.json"
        text = written.read_text(encoding="utf-8")
        assert "the confidential file 'homes'" in text
        written.write_text(text.replace("the confidential file 'homes'", OLD_WORDS[name].format("homes")), "utf-8")
    told = json.loads(stirred("compare", *both, "--beta", "0.05", "--json", cwd=place).stdout)
    assert [block["verdict"] for block in told["blocks"].values()] == [
        "equal",
        "weaker",
        "equal",
        "stronger",
        "incomparable",
    ]
    alone = json.loads(
        stirred("compare", *(f"{one}/public" for one in both), "--beta", "0.05", "--json", cwd=place).stdout
    )
    assert alone["blocks"]["domain"]["verdict"] == "incomparable", "of a published folder only the words are known"
    known = hashlib.sha256((place / "homes.parquet").read_bytes()).hexdigest()
    inside = [path for path in place.rglob("*") if path.is_file() and known in path.read_text("utf-8", "replace")]
    assert {path.name for path in inside} == {"manifest.json"}, "a checksum lets anyone test a guess of the whole file"


def test_a_published_specification_tells_its_file_by_the_ledger(promises: Promises) -> None:
    """The id of the ledger stands in it already; the checksums that the ledger holds do not."""
    names = ("permutation-swap", "noisy-tables")
    for ledgers, verdict in ((("one", "one"), "equal"), (("one", "other"), "incomparable")):
        texts = [
            to_json(in_old_words(name, promises[name]), account=AccountDocument(ledger=ledger, entry=1))
            for name, ledger in zip(names, ledgers, strict=True)
        ]
        assert compare(*map(from_json, texts)).blocks[0].verdict == verdict
    assert promises["permutation-swap"].domain.identity
    assert "identity" not in to_json(promises["permutation-swap"])
