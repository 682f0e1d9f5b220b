"""Who is protected how far: an amplified loss holds only before somebody who does not know the sample."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from stirred.spec.exact import Exact
from stirred.spec.given_numbers import Number, probability
from stirred.survey.amplify import Claim, amplify
from stirred.survey.design import Design
from stirred.survey.unit_designs import Poisson


@dataclass(frozen=True, slots=True, kw_only=True)
class Attacker:
    """Somebody, what they know, and the loss that the release has before them."""

    name: str
    knows: str
    epsilon: Exact


def attackers(epsilon: Number, design: Design, *, rho: Number = "1/2", **claimed: Any) -> tuple[Attacker, ...]:
    """Return the loss before everybody who may know something of the sample (section 6.5.1).

    Who knows nothing of the sample knows the design, and so believes its rate: a lower ``rho`` learns less than that.

    >>> from stirred.survey.designs import TwoStage
    >>> [(a.name, a.epsilon.shown(3)) for a in attackers(1, TwoStage(1, 10, 1, 4))]
    [('knows nothing', '0.043'), ('knows the PSU', '0.358'), ('believes', '0.621'), ('nosy neighbour', '1.000'), ...]
    """
    belief, found = probability(rho, where="rho"), amplify(epsilon, design, **claimed)
    claim, cluster = Claim(**claimed), design.known_cluster(found.inner)

    def believed(chance: Fraction) -> Exact:
        if found.relation == "add-remove" and claim.frames == "substitute":  # a replaced record is two steps
            return Poisson((chance,)).only_added(found.inner)
        return design.believed(found.inner, chance)

    often = design.shape.draws  # a sampled unit may fill every draw
    journalist = believed(Fraction(1)) if often == 1 else often * found.inner
    doubtful = (
        ", below its rate by the design" if float(claim.duplicates * believed(belief)) < float(found.epsilon) else ""
    )
    rows = [
        ("knows the PSU", "which clusters were drawn, as is often public", cluster),
        ("believes", f"that the unit was sampled, with probability {belief}{doubtful}", believed(belief)),
        ("nosy neighbour", "that the unit was sampled", believed(Fraction(1))),
        ("journalist", "nothing, but is content with any sampled record", journalist),
    ]
    told = [Attacker(name=name, knows=knows, epsilon=claim.duplicates * e) for name, knows, e in rows if e is not None]
    return (
        Attacker(name="knows nothing", knows="the design alone, and so believes its rate", epsilon=found.epsilon),
        *told,
    )
