"""One opening for every mechanism: no plan goes around the doubts about a file."""

from __future__ import annotations

import copy
import tomllib
from dataclasses import fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stirred import Entropy
from stirred.data.microdata import as_microdata
from stirred.data.problems import PlanError
from stirred.data.public_tables import PublicTable, ReleasedTable
from stirred.mechanisms import registry
from stirred.mechanisms.plain import PlainMechanism, Settings
from stirred.mechanisms.protocol import Mechanism, for_rehearsal, for_sampling, judged_by_policy
from stirred.mechanisms.records.laws.permutation import PermutationSwap
from stirred.mechanisms.records.pairs.targeted import TargetedSwap
from stirred.mechanisms.tables.cellkey.design import design_ptable
from stirred.mechanisms.tables.cellkey.mechanism import CellKey
from stirred.mechanisms.tables.noise.mechanism import NoisyTables
from stirred.mechanisms.topdown.mechanism import TopDown
from stirred.spec import catalogue
from stirred.spec.domain import Domain
from stirred.spec.doubts import DoubtError
from stirred.spec.specification import Specification
from tests.mechanisms.tables.making import toy_h
from tests.mechanisms.tables.toy import HOUSEHOLDS
from tests.release.test_public_edition import CASES, laid_out

# A plan of every mechanism in use, and the one that needs the tables of another.
NAMED = {tomllib.loads(case.plan)["mechanism"]["name"]: case for case in reversed(CASES.values())}
PEOPLE = pl.DataFrame({"ward": ["a", "a", "b"], "sex": ["m", "f", "f"]})
ENTROPIES = (Entropy.from_os, lambda: Entropy.from_seed("a test"))


def given(name: str, folder: Path) -> tuple[Mechanism, Any]:
    """Return a mechanism with a file that it can plan."""
    if name == "safetab-h":
        return toy_h(), HOUSEHOLDS.drop("hid")
    prepared = laid_out(NAMED[name], NAMED[name].truth(), folder / "files")
    return prepared.mechanism, prepared.data


@pytest.mark.parametrize("name", registry.names())
def test_a_plan_that_was_not_searched_for_doubts_is_never_released(name: str, tmp_path: Path) -> None:
    mechanism, data = given(name, tmp_path)
    plan = mechanism.plan(data, doubts=False)
    assert "not-searched (refuses the release)" in str(plan)
    for entropy in ENTROPIES:
        with pytest.raises(DoubtError, match="without searching for doubts"):
            mechanism.release(data, entropy(), plan=plan)
        with pytest.raises(DoubtError, match="no doubt that can be accepted"):
            mechanism.release(data, entropy(), plan=plan, accept=["not-searched"])


@pytest.mark.parametrize("name", ["permutation-swap", "targeted-record-swap", "noisy-tables", "topdown"])
def test_a_plan_for_sampling_makes_test_draws_alone(name: str, tmp_path: Path) -> None:
    mechanism, data = given(name, tmp_path)
    plan = for_sampling(mechanism.plan(data, doubts=False))
    with pytest.raises(DoubtError, match="test draws, which need a seed"):
        mechanism.release(data, Entropy.from_os(), plan=plan)
    assert mechanism.release(data, Entropy.from_seed("a test"), plan=plan).specification.seeded


@pytest.mark.parametrize("name", registry.names())
def test_a_plan_of_other_settings_or_other_data_is_never_released(name: str, tmp_path: Path) -> None:
    """A plan states the promise, and a release draws by its own settings: they must be the same."""
    mechanism, data = given(name, tmp_path)
    accepted = [doubt.name for doubt in mechanism.plan(data).doubts if doubt.refuses]
    other = TopDown(levels=["ward"], attributes=["sex"], values={"sex": ["m", "f"]}, rho=3).plan(PEOPLE)
    with pytest.raises(PlanError, match="the plan was made for another mechanism"):
        mechanism.release(data, Entropy.from_os(), plan=other, accept=accepted)
    microdata = as_microdata(data)
    fewer, plan = replace(microdata, households=microdata.households.head(-1)), mechanism.plan(data)
    with pytest.raises(PlanError, match="the plan was made for other data"):
        mechanism.release(fewer, Entropy.from_os(), plan=plan, accept=accepted)


def test_cell_keys_do_not_draw_by_another_table_than_their_promise() -> None:
    people = pl.DataFrame({"county": ["A", "B"] * 60})
    wide, narrow = (
        CellKey(ptable=design_ptable(D=d, V=v).table, tables=[["county"]], values={"county": ["A", "B"]}, zeros="fixed")
        for d, v in ((5, Fraction(2)), (1, Fraction(1, 1000)))
    )
    with pytest.raises(PlanError, match="the same with other settings"):
        narrow.release(people, Entropy.from_os(), plan=wide.plan(people), accept=["large-delta"])


def topdown(**settings: Any) -> TopDown:
    codes = {"sex": ["m", "f"]}
    settings = {"rho": "1/2", **settings}
    return TopDown(levels=["ward"], attributes=["sex"], values=codes, totals=["ward"], **settings)


def test_topdown_refuses_what_a_final_doubt_forbids() -> None:
    mechanism = topdown(settings_from="this-data", area_list=PEOPLE.select("ward").unique())
    for plan in (None, mechanism.plan(PEOPLE), replace(mechanism.plan(PEOPLE), doubts=())._sealed()):
        with pytest.raises(DoubtError, match="void the guarantee"):
            mechanism.release(PEOPLE, Entropy.from_os(), plan=plan)


def test_topdown_refuses_areas_that_were_read_off_the_file() -> None:
    mechanism = topdown()
    with pytest.raises(DoubtError, match="read off the confidential file"):
        mechanism.release(PEOPLE, Entropy.from_os(), plan=mechanism.plan(PEOPLE))
    released = mechanism.release(PEOPLE, Entropy.from_os(), accept=["areas-from-file"])
    assert "areas-from-file" in released.specification.assumptions[-1]


def test_a_loss_without_bound_is_doubted_whatever_the_mechanism_says() -> None:
    homes = pl.DataFrame({"size": [1, 2] * 20, "county": ["E", "N", "N", "S"] * 10})
    mechanism = TargetedSwap(hierarchy=["county"], similar=["size"], swaprate="1/5")
    plan = mechanism.plan(homes)
    plan = replace(plan, doubts=())._sealed()
    with pytest.raises(DoubtError, match="nothing is promised"):
        mechanism.release(homes, Entropy.from_os(), plan=plan)


# ---- a changed copy, and a file that was changed in place


@pytest.mark.parametrize("name", registry.names())
def test_a_changed_copy_of_a_plan_is_never_released(name: str, tmp_path: Path) -> None:
    """A copy with other strata, cells or noise would be drawn by these, and state the promise of the first."""
    mechanism, data = given(name, tmp_path)
    plan = mechanism.plan(data)
    accepted = [doubt.name for doubt in plan.doubts if doubt.refuses]
    assert not plan.fault(mechanism, as_microdata(data))
    for each in fields(plan):
        if each.name == "origin":
            continue
        value = getattr(plan, each.name)
        changed = "another" if value is None or isinstance(value, (bool, int, str)) else copy.copy(value)
        changed = (*value, *value, None) if isinstance(value, tuple) else changed
        if changed is value:  # one that has no copies
            changed = None
        for entropy in ENTROPIES:
            with pytest.raises(PlanError, match=f"it was made: {each.name} changed since"):
                mechanism.release(data, entropy(), plan=replace(plan, **{each.name: changed}), accept=accepted)


def test_a_copy_without_its_doubts_or_its_seal_is_not_believed() -> None:
    mechanism = topdown()
    plan = mechanism.plan(PEOPLE)
    with pytest.raises(PlanError, match="doubts changed since"):
        mechanism.release(PEOPLE, Entropy.from_os(), plan=replace(plan, doubts=()))
    for origin in (None, replace(plan.origin, seal=None)):
        with pytest.raises(PlanError, match="keeps no note of who made it"):
            mechanism.release(PEOPLE, Entropy.from_os(), plan=replace(plan, origin=origin))


@pytest.mark.parametrize("name", ["permutation-swap", "noisy-tables", "topdown"])
def test_a_frame_that_was_changed_in_place_is_not_released(name: str, tmp_path: Path) -> None:
    mechanism, data = given(name, tmp_path)
    data = replace(data, households=data.households.clone())
    plan = mechanism.plan(data)
    accepted = [doubt.name for doubt in plan.doubts if doubt.refuses]
    first = data.households.columns[-1]
    data.households.replace_column(data.households.columns.index(first), data.households[first].reverse())
    with pytest.raises(PlanError, match="data changed since"):
        mechanism.release(data, Entropy.from_os(), plan=plan, accept=accepted)


class ForeignSettings(Settings):
    """A loss, and what a record is."""

    loss: str = "1"
    unit: str = "person"


class ForeignMechanism(PlainMechanism):
    """A mechanism of a package that makes its plans without ``Mechanism.plan``."""

    name = "foreign"
    title = "foreign"
    disturbed = "nothing"
    in_words = "Nothing is done."
    settings_model = ForeignSettings

    def specification(self, data: Any) -> Specification:
        promise = catalogue.load("pure-dp").specification.with_budget(self.settings.loss)
        return promise.with_flavor(domain=Domain.of_file("people", columns=("ward", "sex")))

    def draw(self, records: pl.DataFrame, entropy: Entropy) -> pl.DataFrame:
        return records

    def law(self, dataset: Any) -> Any:
        raise NotImplementedError

    def audit_universes(self) -> Any:
        raise NotImplementedError

    def plan(self, data: Any, *, doubts: bool = True) -> Any:
        return replace(super().plan(data, doubts=doubts), origin=None)


def test_a_plan_without_a_note_of_who_made_it_is_not_released() -> None:
    people = pl.DataFrame({"ward": ["a", "b"] * 30, "sex": ["m", "f", "f"] * 20})
    mechanism = ForeignMechanism(loss="1")
    for plan in (None, mechanism.plan(people), mechanism.plan(people, doubts=False)):
        with pytest.raises(PlanError, match="keeps no note of who made it for which data"):
            mechanism.release(people, Entropy.from_os(), plan=plan)


@pytest.mark.parametrize("name", registry.names())
def test_no_plan_states_another_loss_than_its_mechanism(name: str, tmp_path: Path) -> None:
    """The public way to say a promise more fully sealed any loss: 0.001 was released for 11.1."""
    mechanism, data = given(name, tmp_path)
    plan = mechanism.plan(data)
    with pytest.raises(PlanError, match="and this states"):
        plan.promising(plan.specification.with_budget("1/1000"))


@pytest.mark.parametrize("name", registry.names())
def test_the_settings_of_a_mechanism_stay_as_they_are(name: str, tmp_path: Path) -> None:
    mechanism, _ = given(name, tmp_path)
    foreign = ForeignMechanism(loss="1")
    for one in (mechanism, foreign):
        with pytest.raises(AttributeError):
            one.settings = one.settings


def test_tables_that_were_given_as_frames_are_compared_by_their_rows() -> None:
    """Mechanisms with other tables were equal, and one released by the plan of the other."""
    table = pl.DataFrame({"a": ["1", None], "b": ["x", "y"]})
    assert PublicTable.of(table) == PublicTable.of(table.clone())
    assert PublicTable.of(table) != PublicTable.of(table.with_columns(b=pl.lit("x")))
    assert PublicTable.of(table) != PublicTable.of(table.with_columns(a=pl.lit("1")))
    assert ReleasedTable.of(table) != ReleasedTable.of(table.rename({"a": "c"}))


def test_no_method_of_a_plan_seals_a_copy_that_was_changed() -> None:
    """``sealed`` was public, and ``judged`` and ``restated`` sealed whatever they were given."""
    topdown = TopDown(levels=["ward"], attributes=["sex"], values={"sex": ["m", "f"]}, rho="1/2")
    plan = topdown.plan(PEOPLE, doubts=False)
    assert not hasattr(plan, "sealed")
    bare = replace(plan, doubts=())
    for change in (
        lambda: judged_by_policy(bare, most=Fraction(1), set_by="a test"),
        lambda: bare.promising(bare.specification),
        lambda: bare.restated(lambda own: own),
    ):
        with pytest.raises(PlanError, match="is not as it was made: doubts"):
            change()
    with pytest.raises(PlanError, match="and this states"):
        plan.restated(lambda own: own.with_budget("1/1000000"))
    with pytest.raises(DoubtError):
        topdown.release(PEOPLE, Entropy.from_os(), plan=judged_by_policy(plan, most=Fraction(1), set_by="a test"))


HOMES = pl.DataFrame({"size": [1] * 4 + [2] * 4, "county": list("ABAB") * 2, "tenure": list("oorr") * 2})
SWAP = PermutationSwap(match=["size"], swap=["county"], rate="1/2")


@pytest.mark.parametrize(
    "forged",
    [
        lambda own: own.with_flavor(multiverse=replace(own.multiverse, invariants=own.multiverse.invariants[:1])),
        lambda own: own.with_flavor(input_premetric=replace(own.input_premetric, unit="person")),
        lambda own: own.with_flavor(domain=replace(own.domain, columns=("size",))),
        lambda own: replace(own, assumptions=(), relies_on=()),
    ],
)
def test_no_plan_states_another_promise_than_its_mechanism(forged: Any) -> None:
    """Only the loss was compared: a swap was released whose promise said that nothing is held fixed."""
    plan = SWAP.plan(HOMES)
    with pytest.raises(PlanError, match="specification: this"):
        plan.promising(forged(plan.specification))


def test_a_doubt_that_a_plan_claims_as_accepted_is_in_its_promise() -> None:
    plan = SWAP.plan(HOMES)
    with pytest.raises(PlanError, match="does not say which doubts were accepted"):
        plan.promising(plan.specification, accepted=("exposed",))


def test_the_plan_of_a_rehearsal_is_not_released() -> None:
    plan = SWAP.plan(HOMES)
    with pytest.raises(DoubtError, match="thrown away"):
        SWAP.release(HOMES, Entropy.from_os(), plan=for_rehearsal(plan, plan.specification.with_budget("0")))


@pytest.mark.parametrize("part", ["strata", "swap"])
def test_a_plan_whose_codes_were_changed_in_place_is_refused(part: str) -> None:
    """With other codes of its strata a swap did not keep the counts that it promised."""
    plan = SWAP.plan(HOMES)
    codes = plan.strata.coded.codes if part == "strata" else plan.swap.codes
    codes[:] = 0
    with pytest.raises(PlanError, match=f"{part}.* changed since, in a copy or in place"):
        SWAP.release(HOMES, Entropy.from_os(), plan=plan)


def test_a_plan_whose_cells_were_changed_in_place_is_refused() -> None:
    tables = NoisyTables(tables=[["county"]], values={"county": ["A", "B"]}, rho=1)
    plan = tables.plan(HOMES.drop("tenure"))
    plan.cells["county"] = plan.cells["county"].head(1)
    with pytest.raises(PlanError, match="cells changed since"):
        tables.release(HOMES.drop("tenure"), Entropy.from_os(), plan=plan)
