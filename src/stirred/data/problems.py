"""Problems with a custodian's file: collected all at once, each with column, count, first rows and remedy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from unicodedata import category

from stirred.spec.problems import Problem, StirredError


class DataError(StirredError):
    """A file that cannot be used as it is."""


class PlanError(StirredError):
    """A plan that cannot be carried out as it is."""


def bad_file(what: str, *, where: str, remedy: str, public: str = "") -> DataError:
    """Return (not raise) the error for one problem with a file; ``public`` is ``what`` without its values."""
    return DataError([Problem(what=what, where=where, remedy=remedy, public=public)])


def bad_plan(what: str, *, where: str, remedy: str, public: str = "") -> PlanError:
    """Return (not raise) the error for one problem with a plan; ``public`` is ``what`` without values of a file."""
    return PlanError([Problem(what=what, where=where, remedy=remedy, public=public)])


def counted(rows: Sequence[int], *, total: int | None = None) -> str:
    """Write where something stands: the number of rows and the first of them, counted from 1.

    >>> counted([11, 39, 40]), counted([0]), counted(list(range(9)))
    ('3 rows: 12, 40, 41', '1 row: 1', '9 rows: 1, 2, 3, 4, 5, ...')
    """
    count = len(rows) if total is None else total
    first = ", ".join(str(row + 1) for row in rows[:5])
    more = ", ..." if count > min(len(rows), 5) else ""
    return f"{number(count, 'row')}: {first}{more}"


def number(count: int, one: str, many: str | None = None) -> str:
    """Write how many, in the singular where it is one.

    >>> number(1, "row"), number(1_200, "row"), number(2, "count is", "counts are")
    ('1 row', '1,200 rows', '2 counts are')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def listed(names: Sequence[str]) -> str:
    """Write names in quotes.

    >>> listed(["a", "b"])
    '"a", "b"'
    """
    return ", ".join(f'"{name}"' for name in names)


def taken_names(names: Sequence[str], *, by: str) -> str:
    """Write that we use names of columns ourselves.

    >>> taken_names(["sum", "low"], by="tables")
    '"sum", "low" are names that tables use for something else'
    """
    return f"{listed(names)} {'are names' if len(names) > 1 else 'is a name'} that {by} use for something else"


def control_letters(text: str, *, allowed: str = "") -> str:
    """Return the first control letters of a text by their numbers; nothing if there are none."""
    found = sorted({letter for letter in text if _is_control(letter) and letter not in allowed})
    return ", ".join(f"U+{ord(letter):04X}" for letter in found[:3])


# Letters by their class that are drawn as nothing: fillers, and signs that choose a variant of the letter before.
_UNDRAWN: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")


def invisible_letters(text: str) -> str:
    """Return the first letters that nothing draws, by their numbers; nothing if there are none.

    Joiners between letters belong to the spelling of some languages.

    >>> invisible_letters("Homes\U000e0041 and\u200b"), invisible_letters("\u0645\u06cc\u200c\u062e")
    ('U+200B, U+E0041', '')
    """
    found = set()
    for place, letter in enumerate(text):
        if letter < "\u00ad":
            continue
        joins = letter in "\u200c\u200d" and text[place - 1 : place].isalpha() and text[place + 1 : place + 2].isalpha()
        variant = "\ufe00" <= letter <= "\ufe0f" or "\U000e0000" <= letter <= "\U000e0fff"
        if not joins and (variant or letter in _UNDRAWN or category(letter) in ("Cf", "Co", "Cn")):
            found.add(letter)
    return ", ".join(f"U+{ord(letter):04X}" for letter in sorted(found)[:3])


def _is_control(letter: str) -> bool:
    return letter < " " or "\x7f" <= letter <= "\x9f" or "\ud800" <= letter <= "\udfff"
