"""Columns that look like identifiers: by their name, or because nearly every record has a value of its own.

The rule is one for drafting codebooks, planning and publishing. It does not look at decimals: an amount of money
differs from record to record and identifies by that no more than any other measurement. Only decimals that are swapped
are judged like other numbers, and coordinates, which are the address of a home. Times of day show who was where when.
Whether decimals tell the area, as a latitude does, is looked at elsewhere
(`column_doubts.py`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import polars as pl

from stirred.data.codes import all_different
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
