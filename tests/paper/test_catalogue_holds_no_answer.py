"""The catalogue stores settings, and the published answers come out of the system."""

import re
import tomllib
from collections.abc import Iterator
from importlib import resources
from typing import Any

import pytest

from stirred.spec import catalogue
from tests.paper.published import TABLE_5

FILES = sorted(
    (file for file in resources.files(catalogue).iterdir() if file.name.endswith(".toml")), key=lambda file: file.name
)
SETTINGS = {
    "(3379/12343)^2",
    "(542/339)^2",
    "7.7005",
    "4.9622",
    "2.56",
    "4.96",
    "0.07",
    "7.70",
    "15.29",
    "19.776",
    "17.79",
    "2.515",
    "ln(3)",
}
ANSWERS = (
    *("17.08", "15.43", "14.68", "12.48"),  # Table 2
    *("2.70", "17.90", "34.33", "26.34", "52.83"),  # Table 3
    *("2.63", "55.371", "55.37", "126.78"),  # Theorem 2, Table 4
    *(printed for row in TABLE_5 for printed in (row.at_5_percent, row.at_50_percent)),
    *("18.29", "1.20", "6.91", "35.4", "95.2", "221.48", "364.31"),  # sections 3.5, 3.6 and 5.2
)


def numbers(text: str) -> set[str]:
    """Return every decimal number in the text, as written."""
    return set(re.findall(r"(?<![\w.])\d+\.\d+(?![\w.]*\d)", text))


def leaves(value: Any) -> Iterator[str]:
    """Yield every scalar inside tables and arrays, as text."""
    if isinstance(value, dict):
        for inner in value.values():
            yield from leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner)
    else:
        yield str(value)


def test_the_search_for_numbers_finds_them() -> None:
    assert numbers('value = "17.08" # and 8.42; (19.36) but not 117.081') == {"17.08", "8.42", "19.36", "117.081"}


def test_there_are_files_to_search() -> None:
    assert {file.name for file in FILES} >= set(catalogue.FILES)


# What a source prints is shown beside our number, which does not use it: the key ``printed`` and nothing else.
PRINTED = re.compile(r'^printed = "[\d.]+"\n', flags=re.MULTILINE)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.name))
def test_no_printed_answer_stands_in_a_catalogue_file(file: Any) -> None:
    """Tables 2 to 5, Theorem 2 and sections 3.5, 3.6 and 5.2: not even in a comment."""
    assert not numbers(PRINTED.sub("", file.read_text(encoding="utf-8"))) & set(ANSWERS)


def test_what_a_source_prints_does_not_make_our_number(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [name for name in catalogue.names() if catalogue.load(name).printed]
    assert len(names) > 20
    before = {name: catalogue.load(name).specification for name in names}
    raw = {name: ({**entry, "printed": "0.01"}, file) for name, (entry, file) in catalogue._raw().items()}
    monkeypatch.setattr(catalogue, "_raw", lambda: raw)
    catalogue._entry.cache_clear()
    try:
        assert {catalogue.load(name).printed for name in names} == {"0.01"}
        assert {name: catalogue.load(name).specification for name in names} == before
    finally:
        catalogue._entry.cache_clear()


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.name))
def test_budgets_hold_only_published_settings(file: Any) -> None:
    """Theorem 1 needs a rate and a stratum; Tables 3 and 4 give rho squared; nothing else has a value."""
    for entry in tomllib.loads(file.read_text(encoding="utf-8"), parse_float=str)["entries"]:
        if "compose" in entry:
            assert "budget" not in entry, f"{entry['name']} is computed from its parts"
            continue
        policy = entry["budget"]["policy"]
        if policy["name"] == "permutation-swapping":
            assert set(policy) == {"name", "strata"}
            assert all(set(stratum) == {"rate", "largest_stratum"} for stratum in policy["strata"])
        elif policy["name"] == "constant":
            assert set(leaves(policy)) - {"constant"} <= SETTINGS, entry["name"]
        else:
            assert policy["name"] == "free"
