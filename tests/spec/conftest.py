"""Fixtures of the specification tests."""

from collections.abc import Iterator
from fractions import Fraction
from functools import partial

import pytest

from stirred.spec import output_premetric
from stirred.spec.renyi import normalised_renyi


@pytest.fixture(scope="module")
def coarse_zcdp() -> Iterator[None]:
    """Enclose D_NoR to one percent instead of one in a million: as certain, and fast enough to draw many laws."""
    with pytest.MonkeyPatch.context() as patch:
        coarse = partial(normalised_renyi, tolerance=Fraction(1, 100))
        patch.setattr(output_premetric, "normalised_renyi", coarse)
        yield
