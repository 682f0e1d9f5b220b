"""What filling in missing answers does to a loss."""

from __future__ import annotations

from typing import Final

from stirred.spec.exact import Exact
from stirred.spec.given_numbers import Number, loss
from stirred.spec.problems import wrong
from stirred.survey.refusals import NotSeparable, refusal

METHODS: Final = {
    "none": "nothing was filled in",
    "own-values": "each record from its own answers alone, by a rule that was fixed beforehand",
    "model": "each record from its own answers and parameters estimated from the sample with a loss",
    "hot-deck": "answers of one record are copied into others",
}


def copies(method: str, donor_cap: int | None = None) -> int:
    """Return in how many records one person's answers stand at most: 1 + k for a donor who is copied k times.

    That the choice of donors does not follow the answers is assumed: otherwise one changed answer moves donors too.

    >>> copies("own-values"), copies("hot-deck", donor_cap=3)
    (1, 4)
    """
    if method not in METHODS:
        raise wrong(f"there is no method {method!r}", where="method", remedy=", ".join(METHODS))
    if method != "hot-deck":
        return 1
    if donor_cap is None:
        raise refusal(
            NotSeparable, "a hot deck copies answers of one record into others, so one person counts in many records",
            where="imputation", remedy="impute each record from its own answers (own-values), or limit how often one "
            "record is copied, and write that as donor_cap: the noise then covers all its copies",
        )  # fmt: skip
    if donor_cap < 0:
        raise wrong(f"{donor_cap} is below 0", where="donor_cap", remedy="write the largest number of copies")
    return 1 + donor_cap


def imputation_loss(eps1: Number, eps2: Number, method: str, *, donor_cap: int | None = None) -> Exact:
    """Return the loss of estimates with loss ``eps2`` from a sample that was imputed before.

    ``eps1`` is the loss with which the parameters of a model were estimated: both add up.

    >>> imputation_loss("1/2", 1, "model").shown(), imputation_loss(0, 1, "hot-deck", donor_cap=3).shown()
    ('1.5', '4')
    """
    fitted, estimated = loss(eps1, where="fitted"), loss(eps2, where="epsilon")
    many = copies(method, donor_cap)
    if method != "model" and fitted != 0:
        raise wrong("only a model has parameters with a loss", where="fitted", remedy="write 0, or the method model")
    return fitted + many * estimated
