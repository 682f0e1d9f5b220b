"""Specifications and requests as small as they can be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stirred.release.ledger import Entry, Ledger, Policy, Request
from stirred.spec import (
    PURE,
    ZCDP,
    Budget,
    Domain,
    Flavor,
    InputPremetric,
    Invariant,
    Margin,
    Multiverse,
    OutputPremetric,
    Specification,
)

DOMAIN = Domain(name="register", dataset="the households of a register", record_types=("person", "household"))
COUNTIES = Margin(of="household", level="county")


def specification(
    budget: str = "1",
    *,
    output: OutputPremetric = ZCDP,
    unit: str = "person",
    invariants: Sequence[Invariant] = (),
    domain: Domain = DOMAIN,
) -> Specification:
    flavor = Flavor(
        domain=domain,
        multiverse=Multiverse(invariants=tuple(invariants)),
        input_premetric=InputPremetric(name="d_HamS", unit=unit),
        output_premetric=output,
    )
    return Specification(flavor=flavor, budget=Budget.constant(budget))


def pure(budget: str = "1", **blocks: Any) -> Specification:
    return specification(budget, output=PURE, **blocks)


def request(budget: str = "1", **facts: Any) -> Request:
    facts.setdefault("specification", specification(budget))
    return Request(**{"mechanism": "noise", "purpose": "a test", "who": "ana", **facts})


def released(ledger: Ledger, budget: str = "1", **facts: Any) -> Entry:
    """Take a release through its life."""
    entry = ledger.reserve(request(budget, **facts))
    ledger.draw(entry.id)
    return ledger.commit(entry.id, bundle="checksum")


def limit(budget: str, **settings: Any) -> Policy:
    """Return a policy with one limit on persons, in rho squared unless said otherwise."""
    stated = {"budget": budget, "output": "zcdp", "unit": "person", **settings}
    return Policy.from_document({"limits": [stated], "invariants": {"acceptable": "any"}})
