"""Doubts about values: two that are the same but for blanks or letter case are two areas, and seldom meant as such.

They look inside the confidential file: they are for the custodian, and stand in no public file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from stirred.data.codes import Coded
from stirred.mechanisms.swapping.strata import Strata

_MOST_SHOWN: Final = 3


def similar_values(strata: Strata, swap: Coded) -> Iterator[str]:
    """Warn of values of match and swap variables that are the same but for blanks or letter case."""
    for at, name in enumerate(strata.match):
        yield from _similar(name, (stratum.values[at] for stratum in strata.table))
    for column in swap.levels.get_columns():
        yield from _similar(column.name, column.unique())


def _similar(name: str, values: Iterable[Any]) -> Iterator[str]:
    """Warn of similar values of one variable, once.

    >>> print(*_similar("town", [" Logroño", "Haro", "Logroño"]))
    "town" has values that are the same but for blanks or letter case (' Logroño' and 'Logroño'): each is ...
    """
    alike: dict[str, list[str]] = {}
    for value in sorted({value for value in values if isinstance(value, str)}):
        alike.setdefault(" ".join(value.lower().split()), []).append(value)
    groups = [" and ".join(map(repr, each)) for each in alike.values() if len(each) > 1]
    if groups:
        more = f"; {len(groups) - _MOST_SHOWN:,} more" if len(groups) > _MOST_SHOWN else ""
        yield (
            f'"{name}" has values that are the same but for blanks or letter case '
            f"({'; '.join(groups[:_MOST_SHOWN])}{more}): each is swapped and counted as a value of its own; if they "
            "are one, correct the file first"
        )
