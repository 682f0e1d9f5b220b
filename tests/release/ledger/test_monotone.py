"""No release lowers a total: every number is judged on pairs of files that exist for every release."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stirred.release.ledger import Ledger, LedgerError, OverLimitError
from stirred.release.ledger.currency import Copies, Currency
from stirred.release.ledger.row import Charge
from stirred.release.ledger.total import Total, total
from stirred.spec import GDP, PURE, ZCDP, InputPremetric, Margin, Multiverse, Specification, UnitFactor, approximate
from stirred.spec.convert_output import zcdp_to_epsilon
from stirred.spec.exact import exact
from tests.depth import examples
from tests.release.ledger.making import DOMAIN, limit, pure, request, specification
from tests.spec.strategies import FEW

TINY = Fraction(1, 10**10)
SWAPPED = Multiverse(
    invariants=(Margin(of="person", variables=("size", "county")),),
    nearest=2,
    nearest_because="both tables of a swap are fixed",
)
PERSONS = replace(DOMAIN, record_types=("person",))
HOUSEHOLDS = UnitFactor(old="household", new="person", factor=1, because="one household each")
TWO_HOUSEHOLDS = UnitFactor(old="household", new="person", factor=2, because="a person may have two homes")


def total_of(specifications: Sequence[Specification], currency: Currency | None = None) -> Total:
    charges = [Charge(number=i, id=str(i), specification=str(i)) for i in range(len(specifications))]
    return total(charges, lambda digest: specifications[int(digest)], currency=currency)


def swap(budget: str, **blocks: Any) -> Specification:
    return pure(budget, **blocks).with_flavor(multiverse=SWAPPED)


def test_a_release_of_narrower_records_does_not_lower_the_approximate_total() -> None:
    """With the narrower release files at distance 1 exist, but the swap is the same for any two of these."""
    before = [swap("9.065"), specification("1/100")]
    narrower = specification("1/100", domain=PERSONS)
    approximately = Currency(output=approximate(TINY))
    first, second = total_of(before, approximately), total_of([*before, narrower], approximately)
    assert first.specification is not None
    assert second.specification is not None
    assert first.specification.budget.shown == "59.08"
    assert second.specification.budget.realised >= first.specification.budget.realised
    assert second.specification.input_premetric.within == 2


def test_many_small_pure_losses_do_not_shrink_beside_one_of_zcdp() -> None:
    """1,000 releases of 1/100 cost far less than their sum at a small delta; so they do from the start."""
    approximately = Currency(output=approximate(TINY))
    charges = [Charge(number=i, id=str(i), specification="pure") for i in range(1000)]
    also = [*charges, Charge(number=1000, id="1000", specification="zcdp")]
    known = {"pure": pure("1/100"), "zcdp": specification("1/1000")}
    first, second = (total(those, known.__getitem__, currency=approximately) for those in (charges, also))
    assert first.specification is not None
    assert second.specification is not None
    assert first.specification.budget.realised <= second.specification.budget.realised < exact(10)


def test_pure_losses_beside_a_delta_do_not_shrink_when_one_of_zcdp_comes() -> None:
    """Many pure losses share what a release with its own delta leaves, whether another one needs it or not."""
    near = InputPremetric(name="d_HamS", unit="person", within=1)
    keyed = pure("1/10").with_flavor(input_premetric=near, output_premetric=approximate("1/1000"))
    before = [keyed, *[pure("1/10")] * 100]
    currency = Currency(output=approximate("1/100"))
    first, second = total_of(before, currency), total_of([*before, specification("1/10000")], currency)
    assert first.specification is not None
    assert second.specification is not None
    assert first.specification.budget.realised <= second.specification.budget.realised < exact(5)
    assert second.specification.output_premetric.delta == Fraction(1, 100)


def test_a_pure_total_in_approximate_dp_is_that_of_the_nearest_files_there_are() -> None:
    found = total_of([swap("3")], Currency(output=approximate(TINY))).specification
    assert found is not None
    assert found.budget.realised == 6
    assert found.input_premetric.within == 2


def test_copies_bring_the_nearest_files_closer() -> None:
    records = swap("9.06")
    records = records.with_flavor(input_premetric=replace(records.input_premetric, post_imputation=True))
    also = replace(specification("1/100"), flavor=replace(records.flavor, output_premetric=ZCDP))
    wanted = Currency(output=approximate(TINY), copies=Copies(factor=2, because="copied once"))
    found = total_of([records, also], wanted).specification
    assert found is not None
    assert found.input_premetric.within == 1
    rho2 = total_of([records, also], Currency(output=ZCDP)).specification
    assert rho2 is not None
    assert found.budget.realised == zcdp_to_epsilon(rho2.budget.realised * 4, delta=TINY)


def test_a_whole_lowers_no_total_of_its_parts(tmp_path: Any) -> None:
    """A whole of the same epsilon that compares fewer files is a smaller rho squared."""
    ledger = Ledger.create(tmp_path / "a.ledger", dataset="d")
    ledger.add(request(specification=pure("10")))
    with pytest.raises(LedgerError, match="is less than the ρ²="):
        ledger.add(request(specification=swap("10"), includes=[1]))
    parts = Ledger.create(tmp_path / "b.ledger", dataset="d")
    parts.add(request(specification=swap("10")))
    whole = pure("10").with_flavor(multiverse=Multiverse(invariants=SWAPPED.invariants))
    wanted = Currency(output=approximate(TINY))
    first = parts.total(wanted).specification
    parts.add(request(specification=whole, includes=[1]))
    second = parts.total(wanted).specification
    assert first is not None
    assert second is not None
    assert second.budget.realised >= first.budget.realised


# ---- any sequence of releases -------------------------------------------------------------------

_BUDGETS = st.sampled_from(["1/100", "1/5", "1", "3", "12"])


@st.composite
def releases(draw: st.DrawFn) -> Specification:
    """Return a release of some flavor: output, unit, invariants, records, distance, neighbours."""
    output = draw(st.sampled_from([PURE, PURE, ZCDP, ZCDP, GDP, approximate("1e-12")]))
    made = specification(draw(_BUDGETS), output=output, unit=draw(st.sampled_from(["person", "person", "household"])))
    if draw(st.booleans()):
        made = made.with_flavor(multiverse=SWAPPED)
    if draw(st.booleans()):
        made = made.with_flavor(domain=PERSONS)
    premetric = made.input_premetric
    premetric = replace(premetric, name=draw(st.sampled_from(["d_HamS", "d_HamS", "d_HamS", "d_Ham"])))
    if output.delta and draw(st.booleans()):
        premetric = premetric.neighbours(1)
    return made.with_flavor(input_premetric=premetric)


CURRENCIES = [
    Currency(unit="person", units=(units,), output=output)
    for units in (HOUSEHOLDS, TWO_HOUSEHOLDS)
    for output in (None, PURE, GDP, ZCDP, approximate("1e-6"), approximate("9/10"))
]


@settings(FEW, max_examples=examples(25), deadline=None)
@given(st.lists(releases(), min_size=2, max_size=5), st.sampled_from(CURRENCIES))
def test_a_further_release_never_lowers_a_total(made: list[Specification], currency: Currency) -> None:
    for before, after in pairwise(total_of(made[: k + 1], currency) for k in range(len(made))):
        for part in after.parts:
            earlier = [one for one in before.parts if set(one.entries) <= set(part.entries)]
            for one in earlier:
                same = one.specification.output_premetric.name == part.specification.output_premetric.name
                if same:
                    old, new = (float(each.specification.budget.realised) for each in (one, part))
                    assert new >= old * (1 - 1e-12), (one.specification.notation, part.specification.notation)
                    reaches = [each.specification.input_premetric.within or 1 for each in (one, part)]
                    assert reaches[0] <= reaches[1]
        if before.specification is None and before.parts:
            assert after.specification is None, "what did not add up adds up"


@settings(FEW, max_examples=examples(20), deadline=None)
@given(
    st.lists(releases(), min_size=2, max_size=4),
    st.sampled_from(["1", "10", "60"]),
    st.sampled_from([{"output": "pure"}, {"output": "zcdp"}, {"output": "approximate", "delta": "1e-10"}]),
)
def test_what_a_policy_refuses_it_refuses_after_a_further_release(
    made: list[Specification], budget: str, output: dict[str, str]
) -> None:
    units = [{"old": "household", "new": "person", "factor": 2, "because": "two homes"}]
    policy = limit(budget, units=units, **output)

    (one,) = policy.limits
    totals = [total_of(made[:k], one.currency) for k in range(len(made) + 1)]

    def refused(k: int) -> bool:
        last, now, then = made[k], (lambda _: totals[k]), (lambda _: totals[k + 1])
        with suppress(OverLimitError):
            policy.check(who="ana", specification=last, now=now, then=then)
            return False
        with pytest.raises(OverLimitError) as refusal:
            policy.check(who="ana", specification=last, now=now, then=then)
        assert not any("would fall" in problem.what for problem in refusal.value.problems)
        return True

    verdicts = [refused(k) for k in range(len(made))]
    assert verdicts == sorted(verdicts)
