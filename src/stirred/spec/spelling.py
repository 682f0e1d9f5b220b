"""Names that were probably meant: columns, options, and keys of plans, codebooks and policies."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final


def near(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that was probably meant, whatever its case of letters.

    >>> near("Countie", ["county", "size"]), near("x", ["county"])
    ('county', None)
    """
    by_letters = {each.lower(): each for each in known}
    found = get_close_matches(name.lower(), by_letters, n=1)
    return by_letters[found[0]] if found else None


def meant(name: str, known: Iterable[str]) -> str:
    """Write the beginning of a remedy that asks for the name that was probably meant, or nothing.

    >>> meant("countie", ["county", "size"]), meant("x", ["county"])
    ("did you mean 'county'? ", '')
    """
    found = near(name, known)
    return f"did you mean '{found}'? " if found else ""


# Methods that people ask for by the names of other programs, which have them.
_SDCMICRO: Final = {
    "pram": "pram()", "localsuppression": "localSuppression()", "kanon": "kAnon()", "kanonymity": "kAnon()",
    "microaggregation": "microaggregation()", "mdav": "microaggregation()", "addnoise": "addNoise()",
    "noise": "addNoise()", "rankswap": "rankSwap()", "shuffle": "shuffle()", "localrecprog": "LocalRecProg()",
}  # fmt: skip
_TAU_ARGUS: Final = {
    **dict.fromkeys(("p%", "p%rule", "ppercent", "ppercentrule", "pq", "pqrule"), 'the safety rule "P%"'),
    **dict.fromkeys(("dominance", "dominancerule", "nk", "nkrule"), "the dominance rule"),
    **dict.fromkeys(("suppression", "secondarysuppression", "cellsuppression", "hypercube"), "secondary suppression"),
    "controlledrounding": "controlled rounding",
    "cta": "controlled tabular adjustment",
    "controlledtabularadjustment": "controlled tabular adjustment",
}
_OF_R: Final = {
    **dict.fromkeys(("synthpop", "synthesis", "syntheticdata"), "the R package synthpop does it: syn()"),
    **dict.fromkeys(("smallcountrounding", "plsrounding"), "the R package SmallCountRounding does it: PLSrounding()"),
    **dict.fromkeys(("gausssuppression", "suppresssmallcounts"), "the R package GaussSuppression does it"),
}
# Methods that are here, under another name or as another command.
_HERE: Final = {
    **dict.fromkeys(("ckm", "cellkeymethod", "ptable"), 'the mechanism "cell-key" does it'),
    **dict.fromkeys(("recordswap", "recordswapping", "trs"), 'the mechanism "targeted-record-swap" does it'),
    **dict.fromkeys(("suda", "dissuda"), "it measures, and changes nothing: `stirred risk FILE --keys COLUMNS`"),
    **dict.fromkeys(
        ("ldiversity", "tcloseness"),
        "it measures, and changes nothing: `stirred risk FILE --keys COLUMNS --sensitive COLUMN`",
    ),
}


def elsewhere(name: str) -> tuple[str, str] | None:
    """Return what to answer to the name of a method that another program has.

    >>> print(*elsewhere("localSuppression"), sep=". ")
    'localSuppression' is not in stirred. sdcMicro does it: localSuppression()
    >>> print(*elsewhere("CKM"), sep=": ")
    'CKM' is called otherwise here: the mechanism "cell-key" does it
    >>> elsewhere("top-code") is None
    True
    """
    plain = re.sub("[^a-z%]", "", name.lower())
    if plain in _HERE:
        return f"'{name}' is called otherwise here", _HERE[plain]
    if plain in _OF_R:
        return f"'{name}' is not in stirred", _OF_R[plain]
    for program, methods in (("sdcMicro", _SDCMICRO), ("tau-ARGUS", _TAU_ARGUS)):
        if plain in methods:
            return f"'{name}' is not in stirred", f"{program} does it: {methods[plain]}"
    return None


def crossed(text: str) -> list[str]:
    """Return the variables of a table as custodians write it.

    >>> crossed("county x size"), crossed("county"), crossed("county,size"), crossed("county*size")
    (['county', 'size'], ['county'], ['county', 'size'], ['county', 'size'])
    """
    parts = re.split(r"\s+[x*×]\s+", text)
    if len(parts) == 1:
        parts = re.split(r"[,*]", text)
    return [part.strip() for part in parts if part.strip()]
