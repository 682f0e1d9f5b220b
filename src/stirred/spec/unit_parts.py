"""Which units are made of which others: a household of persons, a user of user-days, a node of edges."""

from __future__ import annotations

from typing import Final

from stirred.spec.invariant import plural

# From the coarsest to the finest; names on one level are of one size.
_PEOPLE: Final = {"person", "individual", "respondent", "user", "patient", "customer", "client", "student"}
_EVENTS: Final = {"visit", "admission", "event", "transaction", "purchase", "trip", "session", "claim", "prescription"}
_CHAINS: Final = [
    [{"household", "family"}, _PEOPLE, _EVENTS], [_PEOPLE, {"attribute"}], [{"record"}, {"attribute"}],
    [{"node"}, {"edge"}],
    [{"company", "business", "firm", "enterprise"}, {"establishment"}, {"employee"}, _EVENTS],
]  # fmt: skip
_TIMES: Final = ("hour", "day", "week", "month", "quarter", "year")


def is_part(unit: str, *, of: str) -> bool:
    """Say whether several of a unit make up one of another, so that protecting one is the weaker promise.

    >>> is_part("person", of="household"), is_part("user-day", of="user"), is_part("person", of="100 persons")
    (True, True, True)
    >>> is_part("household", of="person"), is_part("person", of="tree")
    (False, False)
    """
    number, _, things = of.partition(" ")
    grouped = number.isdecimal() and things in (unit, plural(unit))
    levels = [[next((i for i, names in enumerate(chain) if one in names), None) for one in (of, unit)]
              for chain in _CHAINS]  # fmt: skip
    chained = any(coarse is not None and fine is not None and coarse < fine for coarse, fine in levels)
    return grouped or chained or unit.startswith((f"{of}-", f"{of} "))


def whole_of(unit: str) -> str | None:
    """Return whose the unit is, where one person has many of it as a rule; None where it is a whole.

    >>> whole_of("user-day"), whole_of("patient visit"), whole_of("visit"), whole_of("person")
    ('user', 'patient', 'person', None)
    """
    owner, _, part = unit.replace("-", " ").rpartition(" ")
    if part in _EVENTS or (owner and part in _TIMES):
        return owner or "person"
    return None
