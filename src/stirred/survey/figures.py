"""Pictures of the chapters on surveys, as data: figures 6.1 and 7.2."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from stirred.mechanisms.protocol import Plot, Tiles
from stirred.spec.exact import Exact
from stirred.spec.given_numbers import Number, loss
from stirred.survey.compose import compose
from stirred.survey.design import amp
from stirred.survey.settings import STAGES, Setting

_STEPS: Final = 40
TRUE, NAIVE = "added, then amplified (true)", "amplified, then added (naive)"
_PIPELINE: Final = (*STAGES, "processed", "output")
# Panel, in words, and the setting; (a) starts after all stages that a setting can start at.
PANELS: Final[tuple[tuple[str, str, Setting | None], ...]] = (
    ("a", "the processed data, nothing fixed: weights vary, nothing amplifies", None),
    ("b", "the frame, given the population", Setting("frame", "population")),
    ("c", "the responses, given the frame", Setting("responding", "frame")),
)


def two_releases(epsilon: Exact, rate: Fraction) -> tuple[Exact, Exact]:
    """Return the loss of two releases from one sample, true and naive (section 6.5.2).

    >>> [round(float(each), 6) for each in two_releases(loss(1, where=""), Fraction(1, 10))]
    [0.494029, 0.31713]
    """
    return compose([epsilon, epsilon], [rate]), 2 * amp(epsilon, rate)


def figure_6_1(rate: Fraction, most: Number) -> Plot:
    """Return both curves against the loss of each release, in blue and in red as in the source."""
    points = [(series, float(epsilon), float(found)) for epsilon in _up_to(most)
              for series, found in zip((TRUE, NAIVE), two_releases(epsilon, rate), strict=True)]  # fmt: skip
    x = "epsilon of each of two releases on the sample"
    return Plot(points=tuple(points), x=x, y="epsilon of both", lines=True)


def figure_7_2() -> Tiles:
    """Return the pipeline of three settings: what is held fixed, where the mechanism starts, what it does."""
    found = []
    for panel, _, setting in PANELS:
        start = len(STAGES) if setting is None else STAGES.index(setting.start)
        fixed = 0 if setting is None or setting.invariant is None else STAGES.index(setting.invariant) + 1
        before = ["held fixed"] * fixed + ["may differ"] * (start - fixed)
        words = [*before, "starts here", *["mechanism"] * (len(STAGES) - start), "published"]
        found += [(f"({panel})", stage, word) for stage, word in zip(_PIPELINE, words, strict=True)]
    return Tiles(tiles=tuple(found), title="Where the mechanism starts in the survey pipeline, and what is held fixed")


def _up_to(most: Number) -> Sequence[Exact]:
    return [loss(most, where="epsilon") * Fraction(step, _STEPS) for step in range(_STEPS + 1)]
