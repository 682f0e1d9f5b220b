"""The kinds of output premetrics, as data: what each measures, and what it admits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SUM: Final = "sum"
ROOT: Final = "root of sum of squares"
PRODUCT: Final = "product of one plus each"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind; ``composes`` says how the customary numbers of fresh releases combine.

    ``metric`` says that the triangle inequality holds, ``infinite_on_disjoint`` that laws without a common outcome are
    infinitely far apart, ``immune`` that no function of the output increases the distance (Proposition 2.5.4).
    """

    measured: str  # in what, in everyday words
    words: str
    classic: str
    parameter: str  # the customary number a budget is stored and shown in
    greek: str
    metric: bool
    composes: str
    infinite_on_disjoint: bool
    immune: bool = True
    at_most_one: bool = False


KINDS: Final = {
    "D_Mult": Kind(
        "odds",
        "largest factor by which the probability of any output can change, as its logarithm",
        "pure differential privacy", "epsilon", "ε", True, SUM, True,
    ),
    "D_Max": Kind(
        "odds, one way",
        "largest factor by which an output is more probable under the first dataset than under the second, as its "
        "logarithm",
        "one-sided or asymmetric differential privacy", "epsilon", "ε", True, SUM, True,
    ),
    "D_Mult^delta": Kind(
        "probabilities, by a factor and delta",
        "logarithm of the smallest factor such that every set of outputs is at most that factor times as probable "
        "under one dataset as under another, plus delta",
        "approximate differential privacy", "epsilon", "ε", False, SUM, True,
    ),
    "D_NoR": Kind(
        "odds, on average",
        "normalised Rényi distance: an average, not the worst case, of the factor by which probabilities change",
        "zCDP, zero-concentrated differential privacy", "rho2", "ρ²", True, SUM, True,
    ),
    "D_Renyi": Kind(
        "odds, on average",
        "Rényi divergence of one order, in the worse direction",
        "Rényi differential privacy", "epsilon", "ε", False, SUM, True,
    ),
    "D_GDP": Kind(
        "how well versions can be told apart",
        "distance of two unit normals that are as hard to tell apart",
        "Gaussian differential privacy", "mu", "μ", True, ROOT, True,
    ),
    "D_TV": Kind(
        "probabilities",
        "largest change in the probability of any event",
        "total variation", "tau", "τ", True, SUM, False, at_most_one=True,
    ),
    "D_Tr": Kind(
        "how well versions can be told apart",
        "number of times that a curve of test power must be applied to cover every test between the two",
        "f-differential privacy, by a trade-off curve", "steps", "s", True, SUM, True,
    ),
    "D_KL": Kind(
        "odds, on average",
        "Kullback-Leibler divergence: the average logarithm of the factor by which probabilities change, in the worse "
        "direction",
        "KL privacy", "epsilon", "ε", False, SUM, True,
    ),
    "D_H": Kind(
        "overlap of probabilities",
        "Hellinger distance: the root of 1 minus the overlap of the two laws",
        "Hellinger privacy", "eta", "η", True, ROOT, False, at_most_one=True,
    ),
    "D_chi2": Kind(
        "squared change of probabilities",
        "chi-squared divergence: the average squared relative change of probabilities, in the worse direction",
        "chi-squared privacy", "chi2", "χ²", False, PRODUCT, True,
    ),
    "D_W1": Kind(
        "how far numbers move",
        "Wasserstein distance: how far a published number must be moved, on average, to turn one law into the other",
        "Wasserstein privacy", "w", "w", True, SUM, False, immune=False,
    ),
}  # fmt: skip
