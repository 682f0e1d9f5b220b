"""Which units are made of which others: a household of persons, a user of user-days, a node of edges."""

from __future__ import annotations

from typing import Final

from stirred.spec.invariant import plural

# From the coarsest to the finest.
_CHAINS: Final = [
    ["household", "person", "transaction"], ["person", "visit"], ["person", "attribute"], ["record", "attribute"],
    ["user", "event"], ["user", "transaction"], ["node", "edge"],
    ["company", "establishment", "employee", "transaction"], ["business", "establishment", "employee", "transaction"],
]  # fmt: skip


def is_part(unit: str, *, of: str) -> bool:
    """Say whether several of a unit make up one of another, so that protecting one is the weaker promise.

    >>> is_part("person", of="household"), is_part("user-day", of="user"), is_part("person", of="100 persons")
    (True, True, True)
    >>> is_part("household", of="person"), is_part("person", of="tree")
    (False, False)
    """
    number, _, things = of.partition(" ")
    grouped = number.isdecimal() and things in (unit, plural(unit))
    chained = any(unit in chain and of in chain and chain.index(of) < chain.index(unit) for chain in _CHAINS)
    return grouped or chained or unit.startswith((f"{of}-", f"{of} "))
