"""The factor of every step is that of all small files at distance one, and is attained there (atlas, section 7)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stirred.spec import (
    PURE,
    ZCDP,
    Budget,
    ConversionRefusedError,
    Domain,
    Flavor,
    InputPremetric,
    Margin,
    Multiverse,
    OutputPremetric,
    Specification,
    SpecificationError,
    catalogue,
    compose,
    exact,
    pull_back,
)
from stirred.spec.convert import REFUSED, STEPS
from stirred.spec.document import from_json, to_json
from stirred.spec.explanation import explain

File = tuple[Any, ...]


def specification(name: str, *, output: OutputPremetric = PURE, budget: str = "1", **more: Any) -> Specification:
    premetric = InputPremetric(name=name, unit="person", post_imputation=more.pop("post_imputation", True), **more)
    domain = Domain(name="X", dataset="a file", stage="edited-file")
    flavor = Flavor(domain=domain, multiverse=Multiverse(), input_premetric=premetric, output_premetric=output)
    return Specification(flavor=flavor, budget=Budget.constant(budget))


def files(name: str, *, values: int, size: int) -> list[File]:
    """All files, of one size where the distance is bounded, and otherwise of every size up to it."""
    sizes = [size] if name in ("d_HamS", "d_Ham") else range(size + 1)
    return [x for n in sizes for x in product(range(values), repeat=n)]


def worst(step: Callable[[File], File], *, before: str, after: str, values: int, size: int) -> Fraction | None:
    """The largest growth of any distance, None where a finite one becomes infinite or a zero one positive."""
    found = Fraction(0)
    d0, d1 = (InputPremetric(name=name, unit="record").distance for name in (before, after))
    for x, y in combinations(files(before, values=values, size=size), 2):
        apart, now = d0(list(x), list(y)), d1(list(step(x)), list(step(y)))
        if apart.is_infinite:
            continue
        if now.is_infinite or (apart == 0 and now != 0):
            return None
        if apart != 0:
            found = max(found, now.rational / apart.rational)
    return found


def copied(copies: int) -> Callable[[File], File]:
    """The first record is the donor of ``copies`` records that are missing for everyone."""
    return lambda x: (*x, *(x[0] for _ in range(copies)))


def clipped_at_rank(j: int) -> Callable[[File], File]:
    return lambda x: tuple(min(v, sorted(x, reverse=True)[j - 1]) for v in x) if len(x) >= j else x


def joined(x: File) -> File:
    return tuple((v, row) for v in x for row in range(v))


# Step, the number that is stated, distance before and after, the function, and how many values and records are listed.
CASES: dict[str, tuple[str, int | None, str, str, Callable[[File], File], int, int]] = {
    "recode": ("recode", None, "d_HamS", "d_HamS", lambda x: tuple(v // 2 for v in x), 4, 3),
    "recode, ordered": ("recode", None, "d_Ham", "d_Ham", lambda x: tuple(v // 2 for v in x), 4, 3),
    "edit, add or remove": ("edit", None, "d_InsDel", "d_InsDel", lambda x: tuple(max(v, 1) for v in x), 3, 3),
    "fixed clip": ("clip", None, "d_SymDiff", "d_SymDiff", lambda x: tuple(min(v, 2) for v in x), 4, 3),
    "forget order": ("forget-order", None, "d_Ham", "d_HamS", lambda x: tuple(sorted(x)), 3, 4),
    "forget order, add or remove": ("forget-order", None, "d_InsDel", "d_SymDiff", lambda x: tuple(sorted(x)), 3, 3),
    "one copy": ("impute-copies", 2, "d_Ham", "d_HamS", copied(1), 3, 3),
    "two copies": ("impute-copies", 3, "d_Ham", "d_HamS", copied(2), 3, 3),
    "one copy, ordered": ("impute-copies", 2, "d_Ham", "d_Ham", copied(1), 3, 3),
    "one copy by position": ("impute-by-position", 2, "d_Ham", "d_Ham", copied(1), 3, 3),
    "filter": ("filter", None, "d_SymDiff", "d_SymDiff", lambda x: tuple(v for v in x if v), 3, 3),
    "filter, order kept": ("filter", None, "d_InsDel", "d_InsDel", lambda x: tuple(v for v in x if v), 3, 3),
    "deduplicate": ("deduplicate", None, "d_SymDiff", "d_SymDiff", lambda x: tuple(sorted({*x})), 3, 4),
    "deduplicate, order kept": ("deduplicate", None, "d_InsDel", "d_InsDel", lambda x: tuple(dict.fromkeys(x)), 3, 4),
    "join": ("join", 3, "d_SymDiff", "d_SymDiff", joined, 4, 2),
    "join, order kept": ("join", 3, "d_InsDel", "d_InsDel", joined, 4, 2),
    "second largest": ("clip-at-rank", 2, "d_HamS", "d_HamS", clipped_at_rank(2), 4, 4),
    "second largest, ordered": ("clip-at-rank", 2, "d_Ham", "d_Ham", clipped_at_rank(2), 4, 3),
    "third largest": ("clip-at-rank", 3, "d_HamS", "d_HamS", clipped_at_rank(3), 4, 4),
    "fourth largest": ("clip-at-rank", 4, "d_HamS", "d_HamS", clipped_at_rank(4), 3, 5),
    "second largest, add or remove": ("clip-at-rank", 2, "d_SymDiff", "d_SymDiff", clipped_at_rank(2), 4, 3),
    "second largest, insert or delete": ("clip-at-rank", 2, "d_InsDel", "d_InsDel", clipped_at_rank(2), 4, 3),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_factor_of_a_step_is_the_largest_growth_of_any_distance(case: str) -> None:
    step, stated, before, after, function, values, size = CASES[case]
    derived = pull_back(specification(after), step, lipschitz=stated).specification
    assert derived.input_premetric.name == before
    assert derived.budget.realised == exact(worst(function, before=before, after=after, values=values, size=size) or 0)


def test_a_change_is_an_addition_and_a_removal_before_a_step_as_well() -> None:
    assert worst(copied(1), before="d_Ham", after="d_SymDiff", values=2, size=3) == 4
    assert pull_back(specification("d_SymDiff"), "impute-copies", lipschitz=2).specification.budget.realised == exact(4)


def by_nearest(x: File) -> File:
    """Half the records lack their value and take that of the nearest donor."""
    donors = [v for v in x if v >= 0] or [0]
    return tuple(v if v >= 0 else min(donors) for v in x)


def mean_imputed(x: File) -> File:
    mean = Fraction(sum(x), len(x))
    return tuple(mean for _ in x)


def median_clipped(x: File) -> File:
    return tuple(min(v, sorted(x)[(len(x) - 1) // 2]) for v in x)


def ranks(x: File) -> File:
    return tuple((v, 1 + sum(other < v for other in x)) for v in x)


def self_joined(x: File) -> File:
    return tuple((a, b) for a in x for b in x)


GROWS: dict[str, tuple[str, str, Callable[[File], File], list[tuple[int, int, int]]]] = {
    "impute-mean": ("impute-mean", "d_HamS", mean_imputed, [(2, 2, 2), (2, 3, 3)]),
    "impute-nearest": ("impute-nearest", "d_HamS", lambda x: by_nearest((*(-1 for _ in x), *x[:1])),
                       [(2, 2, 3), (2, 3, 4)]),
    "impute-sequential": ("impute-sequential", "d_HamS", lambda x: tuple(x[0] for _ in x), [(2, 2, 2), (2, 3, 3)]),
    "clip-at-median": ("clip-at-median", "d_HamS", median_clipped, [(3, 3, 2), (3, 5, 3)]),
    "rank": ("rank", "d_Ham", ranks, [(3, 2, 2), (4, 3, 3)]),
    "self-join": ("self-join", "d_HamS", self_joined, [(3, 2, 3), (3, 3, 5)]),
}  # fmt: skip


@pytest.mark.parametrize("case", GROWS)
def test_steps_whose_factor_grows_with_the_file_are_refused(case: str) -> None:
    step, name, function, grown = GROWS[case]
    for values, size, factor in grown:
        found = worst(function, before="d_Ham", after=name, values=values, size=size)
        assert found == factor
    with pytest.raises(ConversionRefusedError) as caught:
        pull_back(specification(name), step, lipschitz=1)
    assert "has no factor" in caught.value.problems[0].what
    assert "--lipschitz" in caught.value.problems[0].remedy


def linked(x: File) -> File:
    """Records at most 1 apart on a line become one cluster, each replaced by the cluster's mean."""
    clusters: list[list[int]] = []
    for v in sorted(x):
        if clusters and v - clusters[-1][-1] <= 1:
            clusters[-1].append(v)
        else:
            clusters.append([v])
    return tuple(Fraction(sum(c), len(c)) for c in clusters)


def test_linking_records_on_a_line_already_costs_three_and_is_refused() -> None:
    assert worst(linked, before="d_SymDiff", after="d_SymDiff", values=3, size=3) == 3
    with pytest.raises(ConversionRefusedError, match="3 records on a line"):
        pull_back(specification("d_SymDiff"), "link")


@pytest.mark.parametrize("step", ["filter", "deduplicate", "join"])
def test_a_step_that_changes_the_size_has_no_factor_for_a_bounded_distance(step: str) -> None:
    assert worst(lambda x: tuple(v for v in x if v), before="d_HamS", after="d_HamS", values=2, size=2) is None
    with pytest.raises(ConversionRefusedError, match="number of records"):
        pull_back(specification("d_HamS"), step, lipschitz=2)


def test_donors_by_position_have_no_factor_where_order_does_not_count() -> None:
    assert worst(copied(1), before="d_HamS", after="d_HamS", values=2, size=2) is None
    with pytest.raises(ConversionRefusedError, match="order"):
        pull_back(specification("d_HamS"), "impute-by-position", lipschitz=2)


@pytest.mark.parametrize(("factor", "rho2"), [(1, "55.371"), (2, "221.484"), (3, "498.339")])
def test_the_2020_census_before_imputation(factor: int, rho2: str) -> None:
    found = pull_back(catalogue.load("das-2020").specification, "impute-copies", lipschitz=factor).specification
    assert found.budget.realised == exact(rho2)
    assert found.input_premetric.symbol == "d_Ham^person"
    assert found.input_premetric.post_imputation is False
    assert "before the file was completed by imputation" in found.domain.stage
    assert from_json(to_json(found)) == found


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.sampled_from([PURE, ZCDP]))
def test_the_factors_of_a_chain_multiply(factors: list[int], output: OutputPremetric) -> None:
    found = specification("d_Ham", output=output, budget="3/2")
    whole = Fraction(1)
    for factor in factors:
        found, whole = pull_back(found, "impute-copies", lipschitz=factor).specification, whole * factor
    assert found.budget.realised == exact(Fraction(3, 2) * (whole**2 if output == ZCDP else whole))
    assert len(found.domain.prepared) == len(factors)


def test_neighbours_must_stay_neighbours() -> None:
    near = specification("d_Ham", within=5)
    found = pull_back(near, "own step", lipschitz=2, because="two rows at most").specification
    assert (found.input_premetric.within, found.budget) == (2, near.budget)  # 2 apart before, at most 4 after
    assert pull_back(near, "recode").specification.input_premetric == near.input_premetric
    with pytest.raises(ConversionRefusedError, match="neighbours only"):
        pull_back(specification("d_Ham", within=1), "own step", lipschitz=2, because="two rows at most")


def refusals() -> Iterator[tuple[dict[str, Any], str]]:
    yield {"step": "impute-copies"}, "state 1 + the largest number of copies"
    yield {"step": "impute-copies", "lipschitz": "3/2"}, "state 1 + the largest number of copies"
    yield {"step": "impute-copys", "lipschitz": 2, "because": "x"}, "did you mean impute-copies"
    yield {"step": "my own"}, "needs --lipschitz K and --because TEXT"
    yield {"step": "my own", "lipschitz": 2}, "say why"
    yield {"step": "my own", "lipschitz": 0, "because": "x"}, "above 0"
    yield {"step": "recode", "lipschitz": "1/2"}, "leave it out"


@pytest.mark.parametrize(("given", "remedy"), [*refusals()])
def test_what_is_missing_or_too_small_is_told(given: dict[str, Any], remedy: str) -> None:
    with pytest.raises((SpecificationError, ConversionRefusedError)) as caught:
        pull_back(specification("d_HamS"), **given)
    assert remedy in caught.value.problems[0].remedy


def test_figures_of_the_file_before_and_after_a_step_are_not_taken_for_one_another() -> None:
    counties = Multiverse(invariants=(Margin(of="person", level="county"),))
    raw = specification("d_Ham", post_imputation=False).with_flavor(multiverse=counties)
    raw = raw.with_flavor(domain=Domain(name="X", dataset="a file", stage="raw-responses"))
    edited = specification("d_HamS").with_flavor(multiverse=counties)
    back = pull_back(edited, "impute-copies", lipschitz=2, stage="raw-responses").specification
    both = compose([raw, back]).specification
    assert both.budget.realised == exact(3)
    assert len(both.multiverse.invariants) == 2


def test_every_step_has_a_case_here() -> None:
    assert {*STEPS} == {c[0] for c in CASES.values()}
    assert {*REFUSED} == {c[0] for c in GROWS.values()} | {"link", "clip-at-quantile"}  # tests/release has the latter


def test_versions_before_a_step_may_be_closer_than_any_two_after_it() -> None:
    """Of the files 01 and 10 with the total 1, every two are 2 apart; before a copy of each record they are 1 apart."""
    swapped = catalogue.load("psa-1940-massachusetts-50pct").specification
    near = swapped.with_flavor(input_premetric=replace(swapped.input_premetric, within=2))
    before = pull_back(near, "impute-copies", lipschitz=2).specification
    assert (before.input_premetric.within, before.multiverse.nearest) == (1, 1)
    assert "nothing is promised" not in str(explain(before))


def test_files_that_a_recode_makes_one_are_not_said_to_be_two_apart() -> None:
    """Without 'tenure', files that differ in one tenure are one file: 1 apart before, with the same figures."""
    swapped = catalogue.load("psa-1940-massachusetts-50pct").specification
    assert swapped.multiverse.nearest == 2
    assert "on the fixed figures are at least 2 apart" in str(explain(swapped))
    told = str(explain(pull_back(swapped, "recode").specification))
    assert "on the fixed figures and differ once prepared are at least 2 apart" in told
