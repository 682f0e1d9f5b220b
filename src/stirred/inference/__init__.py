"""What anyone can learn from a release: limits of tests and of posteriors, and correcting published tables."""

from stirred.inference.credal import DensityRatioBall, ProbabilityInterval
from stirred.inference.density import DensityBand, DensityBounds, density_bounds, rr_bounds, sum_bounds
from stirred.inference.distances import (
    constant_odds_distance,
    density_ratio_distance,
    linear_vacuous_distance,
    multiplicative_distance,
)
from stirred.inference.geometry import (
    binomial,
    components,
    count_distance,
    coupling_distance,
    exponent,
    is_unit_graph,
    max_distance,
    within_invariants,
)
from stirred.inference.kernel import Loss, geometric_counts, geometric_sum, privacy_loss, randomised_response
from stirred.inference.learned import Learned, UnsupportedFlavor, explain, pure_loss, what_could_be_learned
from stirred.inference.posterior import exact_posterior, posterior_band, posterior_bounds
from stirred.inference.pufferfish import Pair, PufferfishLoss, pufferfish_distance, pufferfish_loss, record_pairs
from stirred.inference.testing import (
    guessing_bound,
    laplace_power,
    np_power,
    power_bounds,
    required_loss,
    total_variation_bound,
    zcdp_power_bound,
)
from stirred.inference.weights import Ends, OutcomeWeights

__all__ = [
    "DensityBand",
    "DensityBounds",
    "DensityRatioBall",
    "Ends",
    "Learned",
    "Loss",
    "OutcomeWeights",
    "Pair",
    "ProbabilityInterval",
    "PufferfishLoss",
    "UnsupportedFlavor",
    "binomial",
    "components",
    "constant_odds_distance",
    "count_distance",
    "coupling_distance",
    "density_bounds",
    "density_ratio_distance",
    "exact_posterior",
    "explain",
    "exponent",
    "geometric_counts",
    "geometric_sum",
    "guessing_bound",
    "is_unit_graph",
    "laplace_power",
    "linear_vacuous_distance",
    "max_distance",
    "multiplicative_distance",
    "np_power",
    "posterior_band",
    "posterior_bounds",
    "power_bounds",
    "privacy_loss",
    "pufferfish_distance",
    "pufferfish_loss",
    "pure_loss",
    "randomised_response",
    "record_pairs",
    "required_loss",
    "rr_bounds",
    "sum_bounds",
    "total_variation_bound",
    "what_could_be_learned",
    "within_invariants",
    "zcdp_power_bound",
]
