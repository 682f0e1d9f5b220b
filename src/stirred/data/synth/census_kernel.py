"""Drawing households and persons of the synthetic census. Importing this module loads numba.

Random numbers come from SplitMix64 (Steele, Lea, Flood 2014), a counter run through a mixing function:
each chunk starts its own counter, so the result depends on neither the number of threads nor their
order. This is a generator for made-up data, never for a release. Compiled functions call only functions
of this file: numba's cache does not notice changes elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar, cast

import numpy as np
from numba import njit

from stirred.data.synth.census_shares import (
    LARGEST_GQ,
    LARGEST_HOUSEHOLD,
    NO_RENT,
    OLDEST,
    OWNERS_FOLLOW_TABLE,
    SAME_GROUP,
    SAME_SEX,
    SINGLE_PERSON,
    TAIL_STOPS,
    WHOLE_HOUSEHOLD,
    WITHIN_IMPUTED,
)

P = ParamSpec("P")
R = TypeVar("R")

# Compiled code keeps the constants it was compiled with, and the cache on disk does not notice when
# another file changes them; so they are passed as an argument, and stand here in their order.
CONSTANTS: Final = np.array(
    [
        TAIL_STOPS,
        OWNERS_FOLLOW_TABLE,
        NO_RENT / 1000,
        SAME_SEX[2] / 1000,
        SAME_SEX[3] / 1000,
        SAME_GROUP["relative"],
        SAME_GROUP["nonrelative"],
        WHOLE_HOUSEHOLD,
        WITHIN_IMPUTED,
        SINGLE_PERSON,
        LARGEST_HOUSEHOLD,
        LARGEST_GQ,
        OLDEST,
    ],
    dtype=np.float64,
)
_TAIL, _FOLLOW, _FREE, _SAME_SPOUSE, _SAME_PARTNER, _RELATIVE, _NONRELATIVE = range(7)
_WHOLE, _WITHIN, _SINGLE, _MOST, _MOST_GQ, _OLDEST = range(7, 13)


def _compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function as machine code, kept on disk where there is a place for it."""
    try:
        machine_code = njit(cache=True, nogil=True)(function)
    except RuntimeError:
        machine_code = njit(nogil=True)(function)
    return cast(Callable[P, R], machine_code)


@_compiled
def _uniform(state: Any) -> float:
    """Return the next number from 0 up to, but not including, 1."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    word = state[0]
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return float((word ^ (word >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53


@_compiled
def _bell(state: Any) -> float:
    """Return a number with mean 0 and variance 1 that is nearly normal and never beyond 3."""
    return 2.0 * (_uniform(state) + _uniform(state) + _uniform(state) - 1.5)


@_compiled
def _pick(shares: Any, state: Any) -> int:
    """Return a class by its running shares."""
    u = _uniform(state)
    last = shares.size - 1
    for i in range(last):
        if u < shares[i]:
            return i
    return last


@_compiled
def _between(low: int, high: int, state: Any) -> int:
    """Return a whole number from low to high, both included."""
    return low + int(_uniform(state) * (high - low + 1))


@_compiled
def _householder_age(kind: int, tables: Any, state: Any) -> int:
    band = _pick(tables.householder_age[kind], state)
    low = int(tables.age_bands[band])
    if band == 0:
        age = low + int(10 * max(_uniform(state), _uniform(state)))
        return age + 3 if kind <= 6 and age < 18 else age
    if band < 7:
        return low + int(10 * _uniform(state))
    return low + int(18 * (1 - np.sqrt(1 - _uniform(state))))


@_compiled
def _tenure(kind: int, age: int, owner_share: float, tables: Any, constants: Any, state: Any) -> int:
    band = min((age - 15) // 10, 7)
    chance = tables.owners[kind, band] if _uniform(state) < constants[_FOLLOW] else owner_share
    if _uniform(state) < chance:
        return 2 if _uniform(state) < tables.free_and_clear[band] else 1
    return 4 if _uniform(state) < constants[_FREE] else 3


@_compiled
def _facility_size(kind: int, tables: Any, constants: Any, state: Any) -> int:
    normal = np.sqrt(-2 * np.log(1 - _uniform(state))) * np.cos(2 * np.pi * _uniform(state))
    size = np.exp(tables.gq_size[kind, 0] + tables.gq_size[kind, 1] * normal)
    return int(min(max(np.rint(size), 1), constants[_MOST_GQ]))


@_compiled
def draw_households(
    state: Any,
    tables: Any,
    constants: Any,
    starts: Any,
    size_shares: Any,
    owners: Any,
    gq_rate: Any,
    size: Any,
    tenure: Any,
    household_type: Any,
    gq_type: Any,
    householder_age: Any,
) -> int:
    """Fill the columns of the households, tract by tract, and return the number of persons."""
    persons = 0
    for tract in range(starts.size - 1):
        for i in range(starts[tract], starts[tract + 1]):
            if _uniform(state) < gq_rate[tract]:
                kind = _pick(tables.gq_share, state)
                gq_type[i] = kind
                size[i] = _facility_size(kind, tables, constants, state)
                tenure[i] = 0
                household_type[i] = 0
            else:
                members = 1 + _pick(size_shares[tract], state)
                kind = _pick(tables.type_by_size[members], state)
                if members == 7:
                    while members < constants[_MOST] and _uniform(state) >= constants[_TAIL]:
                        members += 1
                age = _householder_age(kind, tables, state)
                gq_type[i] = 0
                size[i] = members
                household_type[i] = kind
                householder_age[i] = age
                tenure[i] = _tenure(kind, age, owners[tract], tables, constants, state)
            persons += size[i]
    return persons


@_compiled
def _partner_age(age: int, male: bool, constants: Any, state: Any) -> int:
    other = int(np.rint(age + 4 * _bell(state) + (-2 if male else 2)))
    return 18 + int(4 * _uniform(state)) if other < 18 else min(other, int(constants[_OLDEST]))


@_compiled
def _minor_age(age: int, state: Any) -> int:
    """Return the age of a child under 18 whose parent was at least 15, and rarely above 50, at birth."""
    return _between(min(max(age - 50, 0), 17), min(17, age - 15), state)


@_compiled
def _feasible(role: int, age: int, minors: bool) -> int:
    """Return the relationship, or brother or sister where the householder's age rules it out."""
    if role == 4 and not minors and age < 33:
        return 7
    if role == 5 and age < 36:
        return 7
    if role == 6 and age > 65:
        return 7
    return role


@_compiled
def _member_age(role: int, age: int, minors: bool, constants: Any, state: Any) -> int:
    oldest = int(constants[_OLDEST])
    if role == 4:
        if minors and (age < 33 or _uniform(state) < 0.84):
            return _minor_age(age, state)
        u = _uniform(state)
        return 18 + int((min(age - 15, 60) - 17) * u * u)
    if role == 5:
        u = _uniform(state)
        return int((min(age - 36, 35) + 1) * u * u)
    if role == 6:
        return age + 18 + int(18 * _uniform(state))
    if role == 7:
        return min(max(int(np.rint(age + 5 * _bell(state))), 0), oldest)
    if role == 8:
        return int(75 * _uniform(state))
    return min(max(int(np.rint(age + 8 * _bell(state))), 15), oldest)


@_compiled
def _race(group: int, tables: Any, state: Any) -> int:
    """Return the race code of a member of a group: the six races alone, several, or Hispanic."""
    if group < 6:
        return group + 1
    shares = tables.multiracial if group == 6 else tables.hispanic
    return min(int(np.searchsorted(shares, _uniform(state), side="right")), 62) + 1


@_compiled
def draw_persons(
    state: Any,
    tables: Any,
    constants: Any,
    starts: Any,
    group_shares: Any,
    imputation: Any,
    first_hid: int,
    size: Any,
    household_type: Any,
    gq_type: Any,
    householder_age: Any,
    hid: Any,
    pid: Any,
    relationship: Any,
    sex: Any,
    age: Any,
    race: Any,
    hispanic: Any,
    imputed: Any,
) -> None:
    """Fill the columns of the persons, household by household."""
    row = 0
    for tract in range(starts.size - 1):
        shares = group_shares[tract]
        for i in range(starts[tract], starts[tract + 1]):
            kind = household_type[i]
            facility = gq_type[i]
            # Signed: an age of a byte minus 50 would not be negative.
            own_age: Any = np.int64(householder_age[i])
            householder_group = 0
            male = False
            minors = kind == 1 or kind == 3 or kind == 5 or kind == 6
            couple = 1 <= kind <= 4
            chance = constants[_SINGLE] * imputation[tract]
            if facility:
                chance = 0.03 * imputation[tract]
            elif _uniform(state) < constants[_WHOLE] * imputation[tract]:
                chance = constants[_WITHIN]
            for k in range(size[i]):
                # Who: relationship, sex and age.
                if facility:
                    role = 10 if facility <= 4 else 11
                    is_male = _uniform(state) < tables.gq_male[facility]
                    years = tables.gq_age[facility, 0] + tables.gq_age[facility, 1] * _bell(state)
                    years = min(max(np.rint(years), tables.gq_age[facility, 2]), tables.gq_age[facility, 3])
                    person_age = int(years)
                elif k == 0:
                    role = 1
                    is_male = _uniform(state) < tables.householder_male[kind]
                    male = is_male
                    person_age = own_age
                elif k == 1 and couple:
                    role = 2 if kind <= 2 else 3
                    same = _uniform(state) < constants[_SAME_SPOUSE if role == 2 else _SAME_PARTNER]
                    is_male = male if same else not male
                    person_age = _partner_age(own_age, male, constants, state)
                elif minors and k == (2 if couple else 1):
                    role = 4
                    is_male = _uniform(state) < tables.member_male[4]
                    person_age = _minor_age(own_age, state)
                else:
                    row_of_table = tables.further_by_type[kind]
                    if kind == 9 and k == 1:
                        row_of_table = 2
                    role = _feasible(4 + _pick(tables.further[row_of_table], state), own_age, minors)
                    is_male = _uniform(state) < tables.member_male[role]
                    person_age = _member_age(role, own_age, minors, constants, state)
                # Race and Hispanic origin, mostly shared within the household.
                alike = constants[_NONRELATIVE] if role == 9 else constants[_RELATIVE]
                if role == 1:
                    group = _pick(shares, state)
                    householder_group = group
                elif role < 10 and _uniform(state) < alike:
                    group = householder_group
                else:
                    group = _pick(shares, state)
                hid[row] = first_hid + i
                pid[row] = k + 1
                relationship[row] = role
                sex[row] = 1 if is_male else 2
                age[row] = person_age
                race[row] = _race(group, tables, state)
                hispanic[row] = 1 if group == 7 else 0
                imputed[row] = 1 if _uniform(state) < chance else 0
                row += 1
