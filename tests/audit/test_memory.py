"""What Python returns holds nothing of the input but its values: no buffer, no dictionary, no metadata."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import polars as pl
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from stirred import Entropy
from stirred.audit.memory import leftover_memory
from stirred.audit.order import audit_order
from stirred.data.microdata import Microdata
from stirred.mechanisms.records.laws.permutation import PermutationSwap

RECORDS = 4_000  # more than a thousand different texts are kept as they are, not numbered
COUNTIES = 4
SWAP = PermutationSwap(match=["size"], swap=["county"], rate="1/2")
# A text of its own in every record is what the attack goes by.
NOTES = ["identifier:note"]


def homes(seed: int = 3) -> pl.DataFrame:
    """Households in the order of their counties, as files often are, each with a text of its own in random order."""
    rng = np.random.default_rng(seed)
    texts = [f"what the interviewer wrote about household {number:06d}" for number in rng.permutation(RECORDS)]
    kinds = [f"a long name of a kind of household {number:04d}" for number in rng.integers(0, 2_000, RECORDS)]
    few = [f"one of a few long descriptions {number}" for number in rng.permutation(RECORDS) % 7]
    return pl.DataFrame(
        {
            "county": [f"the county with number {row * COUNTIES // RECORDS}" for row in range(RECORDS)],
            "size": rng.integers(1, 4, RECORDS),
            "note": texts,
            "kind": pl.Series(kinds, dtype=pl.Categorical),
            "few": few,
            "income": pl.Series([None if x < 0.2 else x for x in rng.random(RECORDS)]),
        }
    )


def recovered(released: Any, before: pl.DataFrame) -> float:
    """Attack: order the released records by the place of their text in the pickle, and say how many counties are right.

    The attacker knows that files come in the order of their counties, and how many households each has.
    """
    written = pickle.dumps(released)
    notes = [str(text) for text in released["note"]]
    place = np.argsort(np.argsort([written.find(text.encode()) for text in notes]))
    guessed = np.sort(before["county"].to_numpy())[place]
    truth = dict(before.select("note", "county").iter_rows())
    return float(np.mean([truth[note] == guess for note, guess in zip(notes, guessed, strict=True)]))


def kinds() -> list[tuple[str, Callable[[pl.DataFrame], Any]]]:
    return [
        ("polars", lambda frame: frame),
        ("pandas", lambda frame: frame.with_columns(pl.col("kind").cast(pl.String)).to_pandas()),
        ("pandas categories", lambda frame: frame.to_pandas()),
        ("pyarrow", lambda frame: frame.to_arrow()),
    ]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("library", "turned"), kinds(), ids=[name for name, _ in kinds()])
def test_the_counties_cannot_be_read_from_the_memory_of_a_released_frame(
    library: str, turned: Callable[[pl.DataFrame], Any]
) -> None:
    before = homes()
    released = SWAP.release(turned(before), Entropy.from_os(), accept=NOTES).public["data"]
    # Half of the records keep their county, and rows come out by county: that is the swap, and not the memory.
    assert recovered(released, before) < 3 / 4, library
    assert leftover_memory(released).findings == ()
    assert {"note", "kind", "few", "county"} <= set(leftover_memory(released).seen)


@pytest.mark.filterwarnings("ignore")
def test_parts_and_one_frame_hold_nothing_of_the_input() -> None:
    release = SWAP.release(homes(), Entropy.from_os(), accept=NOTES)
    for frame in (*release.public.parts("data"), release.public.frame("data")):
        assert leftover_memory(frame).findings == ()


@pytest.mark.filterwarnings("ignore")
def test_persons_hold_nothing_of_the_input() -> None:
    before = homes().with_row_index("hid")
    people = pl.DataFrame(
        {
            "hid": before["hid"].sample(fraction=1, shuffle=True, seed=4),
            "word": [f"what a person answered, number {number}" for number in range(RECORDS)][::-1],
        }
    )
    data = Microdata(households=before, persons=people, hid="hid")
    release = SWAP.release(data, Entropy.from_os(), accept=[*NOTES, "identifier:word"])
    found = leftover_memory(release.public["persons"])
    assert found.findings == ()
    assert "word" in found.seen


def test_the_attack_works_on_a_frame_that_is_only_reordered() -> None:
    before = homes()
    leaky = before.sample(fraction=1, shuffle=True, seed=8)
    assert recovered(leaky, before) == 1
    found = leftover_memory(leaky)
    assert '"note": its texts stand in memory in another order than its rows or its values do' in found.findings
    assert any('"kind"' in finding for finding in found.findings)


def leaky_frames() -> dict[str, tuple[Any, str]]:
    hidden = pa.Array.from_buffers(
        pa.int64(), 4, [pa.py_buffer(bytes([0b0101])), pa.py_buffer(np.array([1, 999, 3, 888]).tobytes())]
    )
    texts = pl.Series("note", [f"a long text with the number {number}" for number in range(3_000)])
    return {
        "texts of rows that were left out": (pa.table({"note": texts.to_arrow()}).slice(7, 20), "more text in memory"),
        "texts in another order": (texts.sample(fraction=1, shuffle=True, seed=2).to_frame(), "in another order"),
        "categories by first appearance": (
            pl.Series("kind", ["b", "a", "c"], dtype=pl.Categorical).gather([1, 0, 2]).to_frame(),
            "numbered in another order",
        ),
        "categories that no row has": (
            pl.Series("kind", ["a", "b"], dtype=pl.Enum(["a", "b", "secret"])).to_frame(),
            "categories that no row has",
        ),
        "numbers under missing values": (pl.Series("x", hidden).to_frame(), "under its missing values"),
        "an index": (pd.DataFrame({"x": [1, 2]}, index=[7, 5]), "an index of its own"),
        "metadata": (pa.table({"x": [1]}).replace_schema_metadata({"order": "3 1 2"}), "has metadata"),
    }


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", leaky_frames())
def test_what_a_frame_holds_besides_its_values_is_found(kind: str) -> None:
    frame, words = leaky_frames()[kind]
    assert any(words in finding for finding in leftover_memory(frame).findings), leftover_memory(frame)


def test_the_order_audit_looks_at_the_object_that_is_returned() -> None:
    """The rows are in an order that says nothing, and the texts stand in memory as the input had them."""
    small = pl.DataFrame(
        {"county": list("AABBCC") * 4, "note": [f"a long text with the number {number}" for number in range(24)]}
    )

    def shuffled(frame: pl.DataFrame, entropy: Entropy) -> pl.DataFrame:
        order = np.argsort(entropy.words("order", chunk=0, count=frame.height))
        return frame.rechunk()[order]

    found = audit_order(shuffled, small.sort("county"), runs=40)
    assert found.alarm
    assert "in memory" in found.in_words

    def rebuilt(frame: pl.DataFrame, entropy: Entropy) -> pl.DataFrame:
        return pl.DataFrame(shuffled(frame, entropy).to_dicts())

    assert not audit_order(rebuilt, small.sort("county"), runs=40).alarm
