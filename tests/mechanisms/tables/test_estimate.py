"""Consistent tables: equal to dense least squares, with its variances, also where the number of records is exact."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stirred.mechanisms.tables.noise.measures import Measure, consistent, with_kept
from stirred.randomness.entropy import Entropy
from tests.depth import examples

SIZES = {"a": 2, "b": 3, "c": 2}


def measures(
    tables: list[tuple[str, ...]], losses: list[Fraction], *, keep: list[str], gaussian: bool = True, sizes: Any = SIZES
) -> list[Measure]:
    asked = [
        Measure(
            title=" x ".join(by) or "all",
            variables=by,
            sizes=tuple(sizes[v] for v in by),
            one=2,
            square=2,
            gaussian=gaussian,
            loss=loss,
        )
        for by, loss in zip(tables, losses, strict=True)
    ]
    return [*with_kept(asked, [frozenset(each) for each in keep])]


def margins(by: tuple[str, ...]) -> np.ndarray:
    """The matrix that adds up the full table to one of its margins."""
    full = [*product(*(range(n) for n in SIZES.values()))]
    names = [*SIZES]
    cells = [*product(*(range(SIZES[v]) for v in by))]
    return np.array([[tuple(cell[names.index(v)] for v in by) == wanted for cell in full] for wanted in cells], float)


def covariance(measure: Measure) -> np.ndarray:
    """The covariance of a table's noise: inside the universe what is kept is projected out, symmetrically."""
    rest = np.eye(measure.cells)
    for kept in measure.kept:
        own = margins_of(measure, kept)
        rest = rest @ (np.eye(measure.cells) - own.T @ np.linalg.pinv(own @ own.T) @ own)
    return rest * float(measure.cell.variance) / rest[0, 0]


def margins_of(measure: Measure, kept: frozenset[str]) -> np.ndarray:
    cells = [*product(*(range(n) for n in measure.sizes))]
    key = [tuple(c for c, v in zip(cell, measure.variables, strict=True) if v in kept) for cell in cells]
    return np.array([[each == group for each in key] for group in dict.fromkeys(key)], float)


def dense(
    tables: list[Measure], noisy: dict[str, np.ndarray], total: int | None
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The best linear unbiased estimate, also where covariances are singular (Rao): values and variances.

    An exact total is one more observation, without noise.
    """
    design = np.vstack([*(margins(each.variables) for each in tables), *([] if total is None else [margins(())])])
    cov = np.zeros((len(design), len(design)))
    place = 0
    for each in tables:
        cov[place : place + each.cells, place : place + each.cells] = covariance(each)
        place += each.cells
    middle = np.linalg.pinv(cov + design @ design.T)
    solve = np.linalg.pinv(design.T @ middle @ design) @ design.T @ middle
    exact = [] if total is None else [[total]]
    estimate = design @ solve @ np.concatenate([*(noisy[each.title] for each in tables), *exact])
    spread = np.diag(design @ solve @ cov @ (design @ solve).T)
    ends = np.cumsum([each.cells for each in tables])[: None if total is not None else -1]
    titles = [each.title for each in tables]
    return (
        dict(zip(titles, np.split(estimate, ends), strict=False)),
        dict(zip(titles, np.split(spread, ends), strict=False)),
    )


TABLES: list[tuple[str, ...]] = [(), ("a",), ("b",), ("b", "a"), ("a", "c"), ("c", "b"), ("a", "b", "c")]


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.sampled_from(TABLES), min_size=1, max_size=4, unique=True),
    st.sampled_from(["", "total", "a", "ca", "a|b", "ab|c"]),
    st.integers(0, 2**32),
    st.booleans(),
)
def test_consistent_tables_are_dense_least_squares(
    tables: list[tuple[str, ...]], kept: str, seed: int, exact: bool
) -> None:
    draw = np.random.default_rng(seed)
    losses = [Fraction(int(n), 7) for n in draw.integers(1, 20, len(tables))]
    keep = [] if not kept else kept.replace("total", "").split("|")
    free = [by for by in tables if not keep or _inside(by, keep)]
    found = measures(free, losses[: len(free)], keep=keep)
    truth = draw.integers(0, 50, math.prod(SIZES.values()))
    noisy = {m.title: (margins(m.variables) @ truth).astype(int) + _kept_noise(m, draw) for m in found}
    if not found:
        return
    total = int(truth.sum()) if exact else None
    ours = consistent(found, noisy, total=total)
    values, variances = dense(found, noisy, total)
    for each in found:
        assert np.allclose(ours[each.title].values.reshape(-1), values[each.title], atol=1e-7)
        assert np.allclose(ours[each.title].variance, variances[each.title], rtol=1e-6, atol=1e-9)


def _inside(by: tuple[str, ...], keep: list[str]) -> bool:
    """Whether noise can be drawn inside a table: it is not kept itself, nor has it a variable beside two margins."""
    inside = {frozenset(by) & {*each} for each in keep}
    largest = [one for one in inside if not any(one < other for other in inside)]
    return frozenset(by) not in largest and (len(largest) < 2 or frozenset().union(*largest) == {*by})


def _kept_noise(measure: Measure, draw: np.random.Generator) -> np.ndarray:
    """Whole numbers with the sums that the noise must have, of whatever law."""
    own = Entropy.from_seed(str(draw.integers(1 << 30)))
    return measure.drawn(measure.cells, own)


def test_tables_agree_on_what_they_share_and_totals_stay_what_they_are() -> None:
    found = measures([("a", "b"), ("b", "c"), ("c",)], [Fraction(1), Fraction(2), Fraction(1, 3)], keep=["b"])
    draw = np.random.default_rng(5)
    truth = draw.integers(0, 50, math.prod(SIZES.values()))
    noisy = {m.title: (margins(m.variables) @ truth).astype(int) + _kept_noise(m, draw) for m in found}
    ours = {title: each.values for title, each in consistent(found, noisy).items()}
    exact = (margins(("b",)) @ truth).tolist()
    assert np.allclose(ours["a x b"].sum(axis=0), exact)
    assert np.allclose(ours["b x c"].sum(axis=1), exact)
    assert np.allclose(ours["b x c"].sum(axis=0), ours["c"])
    assert ours["c"].sum() == pytest.approx(truth.sum())
