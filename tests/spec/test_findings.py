"""Each check of the perverse guide speaks where its trick was used, and is silent where it was not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from stirred.spec import (
    GDP,
    PURE,
    TOTAL_VARIATION,
    ZCDP,
    Budget,
    Domain,
    Flavor,
    InputPremetric,
    Margin,
    Multiverse,
    OutputPremetric,
    Specification,
    approximate,
    catalogue,
)
from stirred.spec.budget import Derived, PermutationSwapping, SwappedStrata
from stirred.spec.exact import INFINITE, exact
from stirred.spec.findings import CHECKS, Context, lint
from tests.spec.strategies import GEOGRAPHY, invariant

PERSONS = InputPremetric(name="d_HamS", unit="person", post_imputation=False)
HOUSEHOLDS = InputPremetric(name="d_HamS", unit="household", post_imputation=False)
COUNTIES = Margin(of="person", level="county")
ALL_BY_BLOCK = Margin(of="person", variables=("*",), level="block")
ALL = Margin(of="person", variables=("*",))


def specification(
    budget: str | Budget = "1",
    *,
    premetric: InputPremetric = PERSONS,
    output: OutputPremetric = PURE,
    multiverse: Multiverse | None = None,
    domain: Domain | None = None,
    **others: Any,
) -> Specification:
    """Return a specification that no check finds anything wrong with, but for what is asked for."""
    return Specification(
        flavor=Flavor(
            domain=domain or Domain(name="X", dataset="a file", stage="sample"),
            multiverse=multiverse or Multiverse(),
            input_premetric=premetric,
            output_premetric=output,
        ),
        budget=budget if isinstance(budget, Budget) else Budget.constant(budget),
        settings_from="policy",
        **others,
    )


def fixing(*margins: Margin, **others: Any) -> Multiverse:
    return Multiverse(invariants=margins, **others)


def swapping(rate: str, size: int) -> Budget:
    return Budget(policy=PermutationSwapping(strata=(SwappedStrata(rate=Fraction(rate), largest_stratum=size),)))


def checks(now: Specification, **others: Any) -> dict[str, str]:
    return {finding.check: finding.severity for finding in lint(now, **others)}


TWO_APART: Mapping[str, Any] = {"nearest": 2, "nearest_because": "swapping"}
DOMAIN_OF_TWO = Domain(name="X", dataset="a bit", stage="sample", datasets=((0,), (1,)))
OVERLAPPING = Multiverse(universes=(frozenset({(0,), (1,)}), frozenset({(1,)})))
APART = Multiverse(universes=(frozenset({(0,)}), frozenset({(1,)})))
VARYING = Budget(policy=Derived(formula="f", value=exact(1), varies=True))

# What gives the finding, its severity, and what is as near to it as can be without.
SPOKEN: dict[str, tuple[Specification, str, Specification]] = {
    "infinite-budget": (specification(Budget.constant(INFINITE)), "serious", specification("10")),
    "large-budget": (specification("10.01"), "note", specification("10")),
    "large-budget in zCDP": (
        specification("10.01", output=ZCDP),
        "note",
        specification("1000", output=TOTAL_VARIATION),
    ),
    "singleton-universes": (
        specification(multiverse=fixing(ALL)),
        "serious",
        specification(multiverse=fixing(ALL, COUNTIES)),
    ),
    "singleton-universes by block": (
        specification(multiverse=fixing(ALL_BY_BLOCK, hierarchies=(GEOGRAPHY,))),
        "serious",
        specification(multiverse=fixing(replace(ALL_BY_BLOCK, level="tract"), hierarchies=(GEOGRAPHY,))),
    ),
    "singleton-universes by listing": (
        specification(domain=DOMAIN_OF_TWO, multiverse=Multiverse(invariants=(invariant({(0,): 0, (1,): 1}),))),
        "serious",
        specification(domain=DOMAIN_OF_TWO, multiverse=Multiverse(invariants=(invariant({(0,): 0, (1,): 0}),))),
    ),
    "neighbours-only": (
        specification(output=approximate("1e-9")),
        "warning",
        specification(output=approximate("1e-9"), premetric=PERSONS.neighbours()),
    ),
    "no-neighbours": (
        specification(premetric=PERSONS.neighbours(), multiverse=fixing(COUNTIES, **TWO_APART)),
        "serious",
        specification(premetric=PERSONS.neighbours(2), multiverse=fixing(COUNTIES, **TWO_APART)),
    ),
    "nearest-not-stated": (
        specification(swapping("1/2", 100), multiverse=fixing(COUNTIES)),
        "note",
        specification(swapping("1/2", 100), multiverse=fixing(COUNTIES, **TWO_APART)),
    ),
    "nothing-to-swap": (
        specification(swapping("1/2", 0), multiverse=fixing(COUNTIES, **TWO_APART)),
        "serious",
        specification(swapping("1/2", 2), multiverse=fixing(COUNTIES, **TWO_APART)),
    ),
    "stage-not-said": (
        specification(domain=Domain(name="X", dataset="a file")),
        "note",
        specification(),
    ),
    "stage-not-said of imputation": (
        specification(premetric=replace(PERSONS, post_imputation=None)),
        "note",
        specification(),
    ),
    "post-imputation-units": (
        specification(premetric=replace(PERSONS, post_imputation=True)),
        "warning",
        specification(),
    ),
    "settings-from-this-data": (
        replace(specification(), settings_from="this-data"),
        "serious",
        replace(specification(), settings_from="invariants"),
    ),
    "settings-from-other-data": (
        replace(specification(), settings_from="other-data"),
        "note",
        replace(specification(), settings_from=None),
    ),
    "budget-outside-partition": (
        specification(VARYING, multiverse=OVERLAPPING),
        "serious",
        specification(VARYING, multiverse=APART),
    ),
    "zero-budget": (
        replace(specification("0"), settings_from=None),
        "warning",
        replace(specification("0"), settings_from="policy"),
    ),
    "part-of-a-unit": (
        specification(premetric=replace(PERSONS, unit="user-day")),
        "warning",
        specification(premetric=replace(PERSONS, unit="user")),
    ),
    "part-of-output": (specification(measured_on=("the total",)), "warning", specification()),
    "seeded": (specification(seeded=True), "serious", specification(seeded=False)),
}


@pytest.mark.parametrize("case", SPOKEN)
def test_a_check_speaks_where_it_must_and_only_there(case: str) -> None:
    doubtful, severity, sound = SPOKEN[case]
    check = case.split()[0]
    assert checks(doubtful) == {check: severity}
    assert checks(sound) == {}


def test_a_bound_proved_for_every_distance_needs_no_neighbours() -> None:
    assert checks(specification(output=approximate("1e-9"), theorem=("Theorem 1",))) == {}


@pytest.mark.parametrize(
    ("delta", "records", "severity"),
    [
        ("1e-6", None, None),
        ("2e-6", None, "warning"),
        ("1e-6", 10_000, None),  # a hundredth of one over n is far enough
        ("1e-6", 10_001, "warning"),
        ("1e-6", 999_999, "warning"),
        ("1e-6", 1_000_000, "serious"),
    ],
)
def test_delta_is_held_against_the_number_of_records(delta: str, records: int | None, severity: str | None) -> None:
    now = specification(output=approximate(delta), premetric=PERSONS.neighbours())
    assert checks(now, records=records) == ({} if severity is None else {"delta-too-large": severity})


def test_the_delta_that_is_advised_is_small_enough() -> None:
    now = specification(output=approximate("1/1000"), premetric=PERSONS.neighbours())
    (finding,) = lint(now, records=331_449_281)
    assert "Use a delta of at most 1e-11" in finding.advice
    assert checks(specification(output=approximate("1e-11"), premetric=PERSONS.neighbours()), records=331_449_281) == {}


# What was stated before, what is stated now, and what is found.
FELL: dict[str, tuple[Specification, Specification, dict[str, str]]] = {
    "less noise is no trick": (specification("1"), specification("2"), {}),
    "more noise": (specification("2"), specification("1"), {}),
    "invariants were added": (
        specification("2"),
        specification("1", multiverse=fixing(COUNTIES)),
        {"fell-by-invariants": "serious"},
    ),
    "invariants were added, and the loss did not fall": (
        specification("2"),
        specification("2", multiverse=fixing(COUNTIES)),
        {"weaker": "note"},
    ),
    "invariants were taken away": (specification("2", multiverse=fixing(COUNTIES)), specification("1"), {}),
    "a bounded distance fixes the size, and that is nothing new": (
        specification("2", multiverse=fixing(Margin(of="person"))),
        specification("1"),
        {},
    ),
    "households became persons": (
        specification("2", premetric=HOUSEHOLDS),
        specification("1"),
        {"fell-by-unit": "serious"},
    ),
    "persons became households": (specification("2"), specification("1", premetric=HOUSEHOLDS), {}),
    "persons became records after imputation": (
        specification("2"),
        specification("1", premetric=replace(PERSONS, post_imputation=True)),
        {"fell-by-unit": "serious", "post-imputation-units": "warning"},
    ),
    "another measure": (specification("2"), specification("1", output=GDP), {"fell-by-output-premetric": "serious"}),
    "another measure, and more": (specification("1"), specification("2", output=GDP), {}),
    "a letter is not compared": (
        catalogue.load("pure-dp").specification,
        replace(catalogue.load("pure-dp").specification, settings_from="policy"),
        {},
    ),
}


@pytest.mark.parametrize("case", FELL)
def test_a_number_that_fell_without_noise_is_told(case: str) -> None:
    before, now, expected = FELL[case]
    assert checks(now, before=before) == expected


def test_what_was_newly_fixed_is_named() -> None:
    before, now, _ = FELL["invariants were added"]
    (finding,) = lint(now, before=before)
    assert "fell from ε=2 to ε=1" in finding.message
    assert str(COUNTIES) in finding.message


def test_the_most_serious_comes_first() -> None:
    now = specification("11", premetric=replace(PERSONS, post_imputation=True), seeded=True)
    assert list(checks(now)) == ["seeded", "post-imputation-units", "large-budget"]


def test_every_check_has_a_case_here() -> None:
    contexts = [Context(specification=doubtful) for doubtful, _, _ in SPOKEN.values()]
    contexts += [Context(specification=now, before=before) for before, now, _ in FELL.values()]
    contexts.append(Context(specification=specification(output=approximate("1/1000"))))
    assert [check for check in CHECKS if not any(list(check(context)) for context in contexts)] == []
