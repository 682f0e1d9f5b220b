"""Doubts about single columns: identifiers that were not named or that recur, values alike, numbers beyond bounds.

A column looks like an identifier by its name, or because nearly every record has a value of its own. The rule is one
for drafting codebooks, planning and publishing. It does not look at decimals: an amount of money differs from record to
record and identifies by that no more than any other measurement. Only decimals that are swapped are judged like other
numbers, and coordinates, which are the address of a home. Times of day show who was where when. Whether decimals tell
the area, as a latitude does, is searched in ``column_doubts``.

All look inside the confidential file: they are for the custodian, and stand in no public file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import numpy as np
import polars as pl

from stirred.data.codes import all_different, differing, encode
from stirred.data.columns import select
from stirred.data.household_rows import household_rows
from stirred.data.microdata import Microdata
from stirred.data.problems import number
from stirred.data.whole import MISSING_LIKE
from stirred.spec.doubts import Doubt
from stirred.spec.problems import setting

# A name alone makes no identifier: a column with fewer values is a code, and so is one with more records to a value,
# unless it is named like what identifies directly.
_FEW_VALUES: Final = 20
_RECORDS_TO_A_VALUE: Final = 20
# Columns with other names have so many values, or more, for a hundred records.
NEARLY_ALL: Final = 90
# Of so few records nothing can be said.
_FEWEST: Final = 5
_ENOUGH: Final = 50
# Of numbers with fractions so many of a hundred have one; ids with a point now and then are still ids.
_FRACTIONS: Final = 10
# So many records, spread over the file, show of most columns that they are not nearly unique.
_GLANCE: Final = 20_000

_OF = (
    "p|per|pers|person|h|hh|hhold|house|household|home|fam|family|dwelling|unit|case|resp|respondent|user|rec|record|row|"
    "mem|member|ind|indiv|individual|subj|subject|patient|client|customer|emp|employee|worker|student|pupil|firm|company|"
    "plant|tax|taxpayer|nat|national|citizen|account|serial|seq|sample|interview|panel|unique|u|g"
)
_ID = re.compile(rf"(?:{_OF})?id(?:s|no|nr|num|number|code|key|entifier|{_OF})?")
_NUMBER = re.compile(r"(?:serial|ser|case|hh|household|pers|person|rec|record|account|acct)(?:no|nr|num|number)|serial")
# Names under which persons and places to find them are kept: each is one, however often it recurs.
_DIRECT: Final = frozenset([
    "uuid", "guid", "ssn", "nino", "dni", "cpf", "bsn", "nif", "passport", "iban", "email", "phone", "telephone",
    "mobile", "address", "addr", "street", "apellido", "apellidos", "prenom", "cognome", "surname", "forename",
    "nickname",
])  # fmt: skip
# Words that are part of many names, and mean an identifier where more than half of the values differ.
_KEYS: Final = frozenset(["key", "keys", "ref", "refs", "reference", "no", "nr", "num", "number", "nir"])
_NAMES: Final = frozenset(["name", "names", "nombre", "nombres", "nom", "noms"])
# Whose name it is, or which part: that of a county is none of a person.
_OF_A_PERSON = re.compile(
    rf"(?:{_OF}|first|last|full|given|family|middle|maiden|birth|legal|head|holder|father|mother|spouse|child|contact)s?"
)
# The id of a household: where it recurs, a file has several rows for one. The number of a house recurs in every street.
_OF_HOUSEHOLDS = "h|hh|hhold|house|household|hogar|haushalt|menage|fam|family|dwelling"
_HOUSEHOLD_ID = re.compile(
    rf"(?:{_OF_HOUSEHOLDS})(?:id|key|ident|serial|sn)|(?:id|nro|num)(?:{_OF_HOUSEHOLDS})|hh|household|(?:hh|household)code|"
    r"(?:hh|household|serial)(?:no|nr|num|number)|serial"
)


# Words under which coordinates are kept. `long` and `geo` alone mean other things, and so do x and y.
_COORDINATES: Final = frozenset([
    "lat", "latitude", "lats", "breite", "breitengrad", "lon", "lng", "longitude", "lons", "longitud", "latitud",
    "laengengrad", "coord", "coords", "coordinate", "coordinates", "xcoord", "ycoord", "coordx", "coordy", "easting",
    "northing", "eastings", "northings", "gps", "gpsx", "gpsy", "utmx", "utmy", "pointx", "pointy", "geom", "wkt",
])  # fmt: skip
# Of two neighbouring columns without such a name so many decimals, and a region of so many degrees away from 0.
_DECIMALS: Final = 4
_DEGREES: Final = 25
# A column holds values of an identifier if so many of its values are among them, a twentieth of its records or more,
# and ten times as many as chance would bring about.
_SHARED_VALUES: Final = 5
_SHARED_RECORDS: Final = 20
_MORE_THAN_CHANCE: Final = 10
_DAY: Final = r"^\s*\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([T ]|$)"
KEEP: Final = f"list the columns to keep with {setting('hold')}, without"
DATE_STEP: Final = 'step = "date", to = "month" under [[prepare]] of a plan'
_CLOCK: Final = (
    r"^\s*(\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}[T ]\s*)?\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?"
    r"\s*([AaPp]\.?[Mm]\.?|Z|[+-]\d{2}:?\d{2})?\s*$"
)


def named_like_an_identifier(name: str) -> bool:
    """Say whether a word in a column's name is one under which identifiers are kept.

    >>> [named_like_an_identifier(n) for n in ("id", "personID", "SERIALNO", "hh_id", "UTILNAME", "Email")]
    [True, True, True, True, True, True]
    >>> [named_like_an_identifier(n) for n in ("width", "residence", "candidate", "period", "idtype", "medicaid")]
    [False, False, False, False, False, False]
    """
    return any(_is_identifying(word) for word in _words(name))


def named_like_a_household_id(name: str) -> bool:
    """Say whether a column is named like the id of a household.

    >>> [named_like_a_household_id(n) for n in ("hid", "HHID", "household_id", "SERIALNO", "id_hogar")]
    [True, True, True, True, True]
    >>> [named_like_a_household_id(n) for n in ("pid", "personID", "id", "house_number", "household_type")]
    [False, False, False, False, False]
    """
    return bool(_HOUSEHOLD_ID.fullmatch("".join(_words(name))))


def _named_directly(name: str) -> bool:
    """Say whether a column is named like what identifies a person directly: a name, an address, a tax number.

    >>> [_named_directly(n) for n in ("name", "last_name", "LastName", "Surname", "SSN", "phone2", "head name")]
    [True, True, True, True, True, True, True]
    >>> [_named_directly(n) for n in ("county_name", "UTILNAME", "hid", "name of the product")]
    [False, False, False, False]
    """
    words = [word for word in _words(name) if word]
    if any(word in _DIRECT for word in words):
        return True
    whose = [re.sub("(?:name|nombre)s?$", "", word) for word in words if word not in _NAMES]
    named = len(whose) < len(words) or any(word.endswith("name") for word in words)
    return named and all(_OF_A_PERSON.fullmatch(word) for word in whose)


def _words(name: str) -> list[str]:
    parts = re.split(r"[\W\d_]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name))
    return [part.lower() for part in parts]


def _is_identifying(word: str) -> bool:
    known = word in _DIRECT or word in _NAMES or word.endswith("name")
    return known or bool(_ID.fullmatch(word) or _NUMBER.fullmatch(word))


def identifying(column: pl.Series) -> str:
    """Say in words why a column looks like an identifier; empty where it does not.

    >>> identifying(pl.Series("hid", [n // 2 for n in range(60)]))
    'is named like an identifier and has 30 values in 60 records'
    >>> identifying(pl.Series("mark", [*range(95), *range(5)]))
    'has 95 values in 100 records'
    >>> identifying(pl.Series("idtype", [1, 2, 3] * 20)), identifying(pl.Series("spent", [n / 7 for n in range(60)]))
    ('', '')
    """
    if column.dtype == pl.Boolean or column.dtype.is_nested() or column.dtype in (pl.Binary, pl.Object, pl.Null):
        return ""
    known = column.drop_nulls()
    if named_like_an_identifier(column.name):
        values = known.n_unique()
        # A thousand households may share a few dozen surnames, and every one is a name.
        if _many(values, len(known)) or (_named_directly(column.name) and values > _FEW_VALUES):
            return f"is named like an identifier and has {values:,} values in {len(known):,} records"
    return nearly_unique(known) or _keyed(column.name, known)


def _keyed(name: str, known: pl.Series) -> str:
    """Say in words that a column is named like a key and has as many values as one."""
    if not _KEYS & {*_words(name)}:
        return ""
    values = known.n_unique()
    as_many = 2 * values > len(known) and _many(values, len(known)) and not _decimal(known)
    return f"is named like an identifier and has {values:,} values in {len(known):,} records" if as_many else ""


def _many(values: int, records: int) -> bool:
    """Say whether a column has as many values as an identifier has, of a record or of a few that belong together."""
    if records <= _FEW_VALUES:
        return 1 < values == records
    return values > _FEW_VALUES and values * _RECORDS_TO_A_VALUE >= records


def nearly_unique(column: pl.Series, *, decimals: bool = False) -> str:
    """Say in words how many values a column has, if there are nearly as many as records; for decimals if asked.

    A text that is different for every record is a name, a code or an address in the smallest file; numbers, such as
    ages, differ there by chance.
    """
    known = column.drop_nulls()
    if len(known) <= _FEW_VALUES:
        texts = len(known) > _FEWEST and _has_letters(known) and all_different(known)
        return "is different for every record" if texts else ""
    if not decimals and _decimal(known):
        return ""
    glance = known.gather_every(max(1, len(known) // _GLANCE))
    # Fewer records repeat fewer values: with many repeated here, more are repeated among all.
    if 10 * glance.n_unique() < 8 * len(glance):
        return ""
    if all_different(known):
        return "is different for every record"
    values = known.n_unique()
    # Ages of a few dozen persons differ nearly all, by chance.
    nearly = 100 * values >= NEARLY_ALL * len(known) and len(known) >= _ENOUGH
    return f"has {values:,} values in {len(known):,} records" if nearly else ""


def _has_letters(column: pl.Series) -> bool:
    """Say whether a column holds texts with letters: numbers written as text are numbers."""
    if column.dtype not in (pl.String, pl.Categorical, pl.Enum):
        return False
    return bool(column.cast(pl.String).str.contains(r"\p{L}").all())


def identifier_doubt(column: pl.Series, why: str, *, swapped: bool = False) -> Doubt:
    """Return the doubt about one column that looks like an identifier; days can be made coarser."""
    name = column.name
    days = f"; of days the month, quarter or year can be kept alone: {DATE_STEP}" if dated(column) else ""
    how = "it is swapped: all its values are released" if swapped else "it is released as it is"
    coarser = "; otherwise swap something coarser, such as an area" if swapped else ""
    if column.dtype.is_numeric() and not swapped and column.n_unique() < len(column):
        coarser = f'; if it measures something, band or round it ([[prepare]] of a plan), or {KEEP} "{name}"'
    return Doubt(
        kind="identifier",
        about=name,
        what=f'"{name}" {why}, and {how}: it may identify',
        remedy=f"if it is an identifier, name it with {setting('id', name)}{coarser}{days}",
    )


def coordinates(columns: Sequence[pl.Series]) -> list[tuple[str, ...]]:
    """Return the columns that look like coordinates: by their name, or as a pair of neighbours by their values.

    >>> draw = [((n * 7919) % 1000) / 1000 + 0.00012 for n in range(100)]
    >>> home = [pl.Series("lat", draw), pl.Series("a", [42 + d for d in draw]), pl.Series("b", [d - 71 for d in draw])]
    >>> coordinates(home), coordinates([pl.Series("score", draw), pl.Series("rate", draw[::-1])])
    ([('lat',), ('a', 'b')], [])
    """
    named = [column.name for column in columns if _named_like_a_coordinate(column)]
    found: list[tuple[str, ...]] = [(name,) for name in named]
    degrees = [None if column.name in named else _degrees(column) for column in columns]
    for (one, first), (other, second) in zip(
        zip(columns, degrees, strict=True), zip(columns[1:], degrees[1:], strict=True), strict=False
    ):
        if first is not None and second is not None and min(first, second) <= 90:
            found.append((one.name, other.name))
    return found


def _named_like_a_coordinate(column: pl.Series) -> bool:
    words = [word for word in _words(column.name) if word]
    if not ({*words, "".join(words)} & _COORDINATES):
        return False
    known = column.drop_nulls()
    glance = known.gather_every(max(1, len(known) // _GLANCE))
    return _many(glance.n_unique(), len(glance))


def _degrees(column: pl.Series) -> float | None:
    """Return the largest value of a column that may be a latitude or longitude; None where it is neither."""
    glance = column.gather_every(max(1, len(column) // _GLANCE)).drop_nulls()
    numbers = glance
    if glance.dtype == pl.String:
        numbers = glance.str.strip_chars().cast(pl.Float64, strict=False).drop_nulls()
        if len(numbers) < len(glance):
            return None
    elif not (glance.dtype.is_float() or glance.dtype.is_decimal()):
        return None
    numbers = numbers.cast(pl.Float64).drop_nans()
    if len(numbers) < _ENOUGH or 2 * numbers.n_unique() < len(numbers):
        return None
    low, high = float(numbers.min()), float(numbers.max())  # type: ignore[arg-type]
    fine = (numbers * 10 ** (_DECIMALS - 1) % 1).is_between(1e-6, 1 - 1e-6)
    near = high - low <= _DEGREES and high - low < abs(low + high) / 2
    return max(abs(low), abs(high)) if near and max(abs(low), abs(high)) <= 180 and 2 * fine.sum() > len(fine) else None


def timed(column: pl.Series) -> bool:
    """Say whether a column has times of day, of which there are many.

    >>> timed(pl.Series("seen", [f"2020-05-{1 + n % 28:02} 0{n % 9}:{n % 60:02}" for n in range(90)]))
    True
    >>> timed(pl.Series("shift", ["06:00", "14:00", "22:00"] * 30)), timed(pl.Series("day", ["2020-05-01"] * 90))
    (False, False)
    """
    glance = column.gather_every(max(1, len(column) // _GLANCE)).drop_nulls()
    known = len(glance)
    if glance.dtype == pl.Datetime:
        glance = glance.filter(glance != glance.dt.truncate("1d"))
    elif glance.dtype == pl.String:
        glance = glance.filter(glance.str.contains(_CLOCK))
    elif glance.dtype != pl.Time:
        return False
    return glance.n_unique() > _FEW_VALUES and 2 * len(glance) > known


def dated(column: pl.Series) -> bool:
    """Say whether a column has days, with or without a time of day; texts by the numbers and signs that most have.

    >>> dated(pl.Series("born", ["1970-12-31", "1971-01-05 07:30", None])), dated(pl.Series("mark", [19701231]))
    (True, False)
    """
    if column.dtype in (pl.Date, pl.Datetime):
        return True
    known = column.gather_every(max(1, len(column) // _GLANCE)).drop_nulls()
    return known.dtype == pl.String and 2 * int(known.str.contains(_DAY).sum()) > len(known)


def values_of(column: pl.Series, identifier: pl.Series) -> str:
    """Say in words that a column has values of an identifier; empty where it does not, or chance may bring it about.

    Where ids are numbers one after the other, any number is one of them: then nothing is known.

    >>> cases = pl.Series("case", [f"c{n * 7919 % 10007}" for n in range(100)])
    >>> values_of(pl.Series("infector", [*cases[:40], *[None] * 60]), cases)
    'has values of the identifier "case" in 100% of the records that have one'
    >>> values_of(pl.Series("age", range(100)), pl.Series("case", range(100)))
    ''
    """
    if not (_is_code(column) and _is_code(identifier)):
        return ""
    known = column.gather_every(max(1, len(column) // _GLANCE)).drop_nulls().cast(pl.String).str.strip_chars()
    values = known.unique()
    if len(values) <= _FEW_VALUES and 2 * len(values) < len(known):
        return ""
    ids = identifier.drop_nulls().cast(pl.String).str.strip_chars()
    shared = ids.filter(ids.is_in(values.implode())).unique()
    among = int(known.is_in(shared.implode()).sum())
    if len(shared) < _SHARED_VALUES or _SHARED_RECORDS * among < len(known):
        return ""
    numbers = ids.cast(pl.Int64, strict=False)
    if not numbers.null_count():
        width = int(numbers.max()) - int(numbers.min()) + 1  # type: ignore[arg-type]
        if among * width < _MORE_THAN_CHANCE * numbers.n_unique() * len(known):
            return ""
    share = f"{100 * among / len(known):.3g}% of the records that have one"
    return f'has values of the identifier "{identifier.name}" in {share}'


def _is_code(column: pl.Series) -> bool:
    return column.dtype.is_integer() or column.dtype in (pl.String, pl.Categorical, pl.Enum)


def _decimal(column: pl.Series) -> bool:
    """Say whether a column holds numbers with fractions, also where these are written as text."""
    if column.dtype == pl.String:
        text = column.head(_GLANCE)
        # A text that stands for a missing value does not make a number another kind of thing.
        text = text.filter(~text.str.strip_chars().is_in(list(MISSING_LIKE)) & (text.str.strip_chars() != ""))
        fractions = text.str.contains(r"^\s*[+-]?\d*[.,]\d+\s*$")
        return bool(text.str.contains(r"^\s*[+-]?(\d+([.,]\d*)?|[.,]\d+)\s*$").all()) and _enough(fractions)
    if column.dtype.is_decimal() or column.dtype.is_float():
        numbers = column.cast(pl.Float64).drop_nans()
        return _enough(numbers != numbers.floor())
    return False


def _enough(fractions: pl.Series) -> bool:
    return 100 * int(fractions.sum()) >= _FRACTIONS * len(fractions) > 0


# ---- doubts ------------------------------------------------------------------------------------------------------

# So many persons, spread over the file, show of nearly every column that it is a code.
_GLANCE_AT_PERSONS: Final = 1_000
# Of so many persons the numbers inside their households are compared, and the columns that a household shares.
_LOOKED_AT: Final = 2_000_000
# With more rows to a value a column is no id of a household, but its number inside a house, or a type.
_ROWS_TO_A_HOUSEHOLD: Final = 20
_PERSONS: Final = f"if a row is a person, say so with {setting('unit', 'person', planned=True)}"


def identifier_doubts(data: Microdata, hold: Sequence[str], *, unit: str, swap: Sequence[str] = ()) -> Iterator[Doubt]:
    """Yield doubts about released columns that look like identifiers, and about identifiers that recur.

    Values that are swapped leave too, each as often as it was, beside the match variables even exactly.
    """
    yield from identifying_columns(data, swap, swapped=True)
    yield from unnamed_identifiers(data, hold)
    yield from _of_others(data, hold, swap)
    yield from repeated_ids(data, unit=unit)


def identifying_columns(data: Microdata, names: Sequence[str], *, swapped: bool = False) -> Iterator[Doubt]:
    """Yield doubts about columns of records that look like identifiers, or have nearly as many values as records."""
    for name in names:
        column = data.households[name]
        if why := identifying(column) or nearly_unique(column, decimals=True):
            yield identifier_doubt(column, why, swapped=swapped)


def unnamed_identifiers(data: Microdata, hold: Sequence[str]) -> Iterator[Doubt]:
    """Yield doubts about released columns that look like identifiers and are not named as such."""
    for name in hold:
        if why := identifying(column := data.households[name]):
            yield identifier_doubt(column, why)
    if data.persons is None:
        return
    for name in data.person_variables:
        column = data.persons[name]
        glance = column.gather_every(max(1, len(column) // _GLANCE_AT_PERSONS))
        if not named_like_an_identifier(name) and 10 * glance.n_unique() < len(glance):
            continue
        why = identifying(column).replace("record", "person") or _of_households(data, name)
        if why:
            yield identifier_doubt(column, why)


def _of_others(data: Microdata, hold: Sequence[str], swap: Sequence[str]) -> Iterator[Doubt]:
    """Yield doubts about released columns that hold ids of other records, and about held coordinates and times.

    A column that looks like an identifier is looked at too: who accepts that has not accepted its times of day.
    """
    homes = [data.households[name] for name in hold]
    people: list[pl.Series] = []
    ids = [data.households[name] for name in data.identifiers if name in data.households.columns]
    if data.persons is not None:
        people = [data.persons[name] for name in data.person_variables]
        ids += [data.persons[name] for name in data.id if name in data.persons.columns]
    for column in (*homes, *people, *(data.households[name] for name in swap)):
        if why := next(filter(None, (values_of(column, each) for each in ids)), ""):
            yield identifier_doubt(column, why, swapped=column.name in swap)
    for file in (homes, people):
        yield from (_coordinates(names) for names in coordinates(file))
        yield from (_times(column.name) for column in file if timed(column))


def _coordinates(names: Sequence[str]) -> Doubt:
    columns = " and ".join(f'"{name}"' for name in names)
    look, them = ("look like coordinates", "them") if len(names) > 1 else ("looks like a coordinate", "it")
    return Doubt(
        kind="coordinates",
        about="+".join(names),
        what=f"{columns} {look} and would be published unchanged: a home can be found on a map",
        remedy=f'leave {them} out, or round {them} to the size of a district: step = "round" under '
        "[[prepare]] of a plan",
    )


def _times(name: str) -> Doubt:
    return Doubt(
        kind="times",
        about=name,
        what=f'"{name}" has times of day and would be published unchanged: anyone who knows when something happened '
        "finds the record",
        remedy=f"leave it out, or keep the month, quarter or year alone: {DATE_STEP}",
    )


def _of_households(data: Microdata, name: str) -> str:
    """Say whether a column of persons is the same for all of a household and different for nearly every one."""
    assert data.persons is not None
    column = data.persons[name].head(_LOOKED_AT)
    values = column.n_unique()
    # A household has two persons or three: with far fewer values than households it is no identifier of theirs.
    if 4 * values < min(data.households.height, len(column)):
        return ""
    house = household_rows(data)[: len(column)]
    codes = encode(column.to_frame(), [name]).codes
    if differing(house, codes, count=data.households.height).any():
        return ""
    _, first = np.unique(house, return_index=True)
    return nearly_unique(column.gather(first)).replace("record", "household")


def repeated_ids(data: Microdata, *, unit: str) -> Iterator[Doubt]:
    """Yield doubts where records share their identifiers: the promise is for one record, and a unit may have several.

    Other identifiers than that of the record, such as an address, may be shared. So may the number of a person
    inside the household.
    """
    own = [data.households[name] for name in data.identifiers if name in data.households.columns]
    if any(all_different(column) for column in own) or (len(own) > 1 and not _recur_together(own)):
        own = []
    if unit != "household":
        own = [column for column in own if not named_like_a_household_id(column.name)]  # it has several of them
    yield from (_repeated(column.name, column, of=unit) for column in own)
    if unit == "household" and not own:
        yield from _several_rows(data)
    if data.persons is None or data.hid is None:
        return
    of_persons = [name for name in data.id if name in data.persons.columns and name not in data.households.columns]
    columns = {name: data.persons[name] for name in of_persons}
    # The promise is for a household with all its persons: one of them in two records does not weaken it.
    if any(all_different(column) for column in columns.values()):
        return
    for name, column in columns.items():
        # One that seldom recurs is meant for the whole file, any other for the household.
        if 2 * column.n_unique() > len(column):
            yield _repeated(name, column, of="person", refuses=False)
            continue
        # Pairs take many times the memory of a column; a file that numbers persons twice does so from its first rows.
        inside = select(data.persons.head(_LOOKED_AT), [data.hid, name]).to_struct()
        if inside.is_duplicated().any():
            yield _repeated(name, inside, of="person", place=" inside a household", refuses=False)


def _several_rows(data: Microdata) -> Iterator[Doubt]:
    """Yield the doubt about a file of persons that is given as one of households.

    The id of the household tells that it has several rows, whether it is named, held or dropped.
    """
    for name in filter(named_like_a_household_id, data.households.columns):
        column = data.households[name].drop_nulls()
        values, rows = column.n_unique(), len(column)
        if 1 < values < rows <= _ROWS_TO_A_HOUSEHOLD * values:
            yield Doubt(
                kind="unit",
                about=name,
                what=f'the file has several rows for a household: "{name}" has {values:,} values in {rows:,} rows. '
                "What is promised is for one row, and would be called a promise for one household",
                remedy=f"{_PERSONS}; or give households and persons as two files, with "
                f"{setting('persons', 'FILE')} and {setting('hid', name)}",
            )


def _recur_together(columns: Sequence[pl.Series]) -> bool:
    """Say whether even all identifiers together stand in several records: household and person number are one id."""
    return bool(pl.DataFrame(columns).is_duplicated().any())


def _repeated(name: str, values: pl.Series, *, of: str, place: str = "", refuses: bool = True) -> Doubt:
    records = number(int((values.is_duplicated() & values.is_not_null()).sum()), "record")
    persons = f"{_PERSONS}; " if of == "household" else ""
    return Doubt(
        kind="regroup",
        about=name,
        what=f'"{name}" is repeated in {records}{place}: are they the same {of}? What is promised is for one record, '
        f"and holds for a {of} only where it has one",
        remedy=f"if they are, give one record for each {of}; {persons}some identifiers may recur, such as an address: "
        f"then name the one that tells records apart with {setting('id')}, too",
        refuses=refuses,
    )


_MOST_SHOWN: Final = 3


def similar_values(name: str, values: Iterable[Any]) -> Iterator[Doubt]:
    """Yield one doubt about similar values of one variable.

    >>> print(*similar_values("town", [" Logroño", "Haro", "Logroño"]))
    "town" has values that are the same but for blanks or letter case (' Logroño' and 'Logroño'): each is ...
    """
    alike: dict[str, list[str]] = {}
    for value in sorted({value for value in values if isinstance(value, str)}):
        alike.setdefault(" ".join(value.lower().split()), []).append(value)
    groups = [" and ".join(map(repr, each)) for each in alike.values() if len(each) > 1]
    if groups:
        more = f"; {len(groups) - _MOST_SHOWN:,} more" if len(groups) > _MOST_SHOWN else ""
        yield Doubt(
            kind="similar-values",
            about=name,
            what=f'"{name}" has values that are the same but for blanks or letter case '
            f"({'; '.join(groups[:_MOST_SHOWN])}{more}): each is swapped and counted as a value of its own",
            public=f'"{name}" has values that are the same but for blanks or letter case',
            remedy="if they are one, correct the file first",
            refuses=False,
        )


_MOST_CLAMPED: Final = 0.05  # of the records, or of a sum, that clamping may change before it refuses


@dataclass(frozen=True, slots=True, eq=False)
class PublishedTable:
    """A table of domains with a number each: the columns that tell them apart, which records count, and the noise."""

    title: str
    by: pl.DataFrame
    noise: float  # its standard deviation, in the unit of what is clamped
    inside: Any = None  # which records count; all of them if None


def clamped_doubts(
    name: str,
    values: Any,
    ends: tuple[float | Fraction, float | Fraction],
    *,
    weights: Any = None,
    published: Iterable[PublishedTable] = (),
) -> Iterator[Doubt]:
    """Yield how many numbers lie beyond their declared bounds, and refuse where that changes what is estimated.

    A few count as the nearer bound and are noted. More than a twentieth of the records, or of the (weighted) sum of
    absolute values, and the sum that is published is not of this file: noise and interval would say nothing about that.
    The same is asked of every published domain, where clamping changes it by more than its noise does.

    >>> doubt, = clamped_doubts("income", [10, 20, 900, 5000], (0, 100))
    >>> doubt.name, doubt.refuses
    ('clamped:income', True)
    >>> print(doubt.what)
    2 of 4 values of "income" lie beyond the declared bounds 0 and 100 and count as the nearer one; that ...
    """
    given, (low, high) = np.asarray(values, dtype=np.float64), (float(end) for end in ends)
    share = np.ones(given.size) if weights is None else np.asarray(weights, dtype=np.float64)
    beyond = (given < low) | (given > high)
    count = int(beyond.sum())
    if not count:
        return
    size, moved = share * np.abs(given), share * np.abs(np.clip(given, low, high) - given)
    changed, of = _part(moved.sum(), size.sum()), "sum" if weights is None else "weighted sum"
    worst, words = 0.0, ""
    for table in published:
        inside = np.ones(given.size, dtype=bool) if table.inside is None else table.inside
        coded = encode(table.by.filter(inside), table.by.columns) if table.by.width else None
        code = np.zeros(int(inside.sum()), dtype=np.intp) if coded is None else coded.codes
        records = np.bincount(code)
        cut, shift, sums = (np.bincount(code, each[inside]) for each in (beyond, moved, size))
        for cell in np.flatnonzero(shift > table.noise).tolist():
            part = max(cut[cell] / records[cell], _part(shift[cell], sums[cell]))
            if part > max(worst, _MOST_CLAMPED):
                levels = {} if coded is None else coded.levels.row(cell, named=True)
                cells = " and ".join(f"{column} is {value!r}" for column, value in levels.items())
                worst, words = (
                    part,
                    (
                        f"; {f'where {cells}' if cells else f'in {table.title!r}'} it is {cut[cell]:,.0f} of "
                        f"{records[cell]:,.0f}, and changes its {of} by {_part(shift[cell], sums[cell]):.1%}"
                    ),
                )
    yield Doubt(
        kind="clamped",
        about=name,
        what=f'{count:,} of {given.size:,} values of "{name}" lie beyond the declared bounds {low:,.10g} and '
        f"{high:,.10g} and count as the nearer one; that changes the {of} of all by {changed:.1%}{words}",
        public=f'values of "{name}" lie beyond the declared bounds and count as the nearer one',
        remedy="declare bounds that hold for the whole population, from public knowledge and not read off this file",
        refuses=bool(words) or count > _MOST_CLAMPED * given.size or changed > _MOST_CLAMPED,
    )


def _part(moved: float, size: float) -> float:
    return float(moved / (size or moved or 1))
