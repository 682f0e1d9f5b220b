"""A swap whose records an engine reads, exchanges and gathers is the swap of this machine, record by record.

The engine here is one process that sends messages in any order and does everything twice, as a cluster may.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from stirred.data.frames import has_taken, scan_frame, take_parts, write_frame
from stirred.data.microdata import Microdata
from stirred.data.problems import PlanError
from stirred.engines.local import LocalEngine
from stirred.engines.protocol import EngineError, Sources
from stirred.mechanisms.protocol import Frames, Mechanism, VerificationError, Written, for_sampling
from stirred.mechanisms.records import bulk
from stirred.mechanisms.records import evidence as verification
from stirred.mechanisms.records import files as record_files
from stirred.mechanisms.records.kernels import addressing
from stirred.mechanisms.records.laws.permutation import PermutationSwap
from stirred.mechanisms.records.pairs.targeted import TargetedSwap
from stirred.mechanisms.records.steps.response import ResponseSwap
from stirred.mechanisms.records.steps.two_stage import TwoStageSwap
from stirred.randomness.entropy import Entropy
from tests.mechanisms.records.bulk_files import MEMBERS, ROLES, given, released


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere(LocalEngine):
    """Work that leaves the process: pickled, twice, with messages in any order."""

    name: str = "elsewhere"
    scratch: Path = Path()
    slots: int = 3
    memory: int = 1 << 40

    def share(self, value: Any) -> Callable[[], Any]:
        from numba.core.serialize import dumps  # the pickler of closures that comes with it

        packed = dumps(value)
        return lambda: pickle.loads(packed)

    def exchange(
        self, groups: Sequence[Any], split: Any, kernel: Callable[[int, list[bytes]], Any], *, parts: int
    ) -> list[Any]:
        sent = [message for group in groups for message in split(group)]
        found = [
            [kernel(part, [each for to, each in random.sample(sent, len(sent)) if to == part]) for part in range(parts)]
            for _ in range(2)
        ]
        assert [*map(content, found[0])] == [*map(content, found[1])]
        return [random.choice(both) for both in zip(*found, strict=True)]


def content(found: Path | tuple[Path, int]) -> tuple[object, ...]:
    """Return what a task left, whatever it called its file."""
    path, *rows = found if isinstance(found, tuple) else (found,)
    return (path.read_bytes() if path.exists() else b"", *rows)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addressing, "BLOCK_ROWS", 1 << 8)
    monkeypatch.setattr(bulk, "PIECE_ROWS", 700)
    monkeypatch.setattr(bulk, "PART_ROWS", 400)


@pytest.mark.parametrize("name", [*MEMBERS])
def test_an_engine_releases_what_this_machine_releases(name: str, tmp_path: Path) -> None:
    data, sources = given(tmp_path, people=name != "shuffle")
    here = released(MEMBERS[name], data, name)
    there = released(MEMBERS[name].on(Elsewhere(sources=sources, scratch=tmp_path)), data, name)
    assert [*here] == [*there] == (["data"] if name == "shuffle" else ["data", "persons"])
    for table, frame in here.items():
        assert frame.schema == there[table].schema
        assert frame.equals(there[table], null_equal=True)


@pytest.mark.parametrize(("files", "slots", "piece"), [(1, 1, 10_000), (7, 40, 130)])
def test_files_pieces_and_parts_do_not_matter(
    files: int, slots: int, piece: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = MEMBERS["permutation"]
    here = released(member, given(tmp_path)[0], "files")
    monkeypatch.setattr(bulk, "PIECE_ROWS", piece)
    monkeypatch.setattr(bulk, "PART_ROWS", piece // 2)
    data, sources = given(tmp_path, files=files)
    there = released(member.on(Elsewhere(sources=sources, scratch=tmp_path, slots=slots)), data, "files")
    assert all(frame.equals(there[table], null_equal=True) for table, frame in here.items())


@pytest.mark.parametrize("role", ["households", "persons"])
@pytest.mark.parametrize("change", ["a value", "two rows", "a row more"])
def test_a_file_that_changed_since_is_refused_before_anything_is_drawn(role: str, change: str, tmp_path: Path) -> None:
    data, sources = given(tmp_path)
    path = sources[role][1]
    frame = pl.read_parquet(path)
    name = "flag" if role == "households" else "sex"
    if change == "a value":
        last = pl.int_range(frame.height) == frame.height - 1
        other = ~pl.col(name) if role == "households" else pl.lit("x")
        frame = frame.with_columns(pl.when(last).then(other).otherwise(pl.col(name)).alias(name))
    elif change == "two rows":
        frame = pl.concat([frame[1:2], frame[0:1], frame[2:]])
    else:
        frame = pl.concat([frame, frame[:1]])
    frame.write_parquet(path)
    member = PermutationSwap(**ROLES, rate="1/3").on(Elsewhere(sources=sources, scratch=tmp_path))
    plan = member.plan(data, doubts=False)
    with pytest.raises(EngineError, match=f"other records than were planned from the file of {role}"):
        member.ready(data, plan)


def test_strata_that_do_not_fit_are_refused_with_their_number(tmp_path: Path) -> None:
    data, sources = given(tmp_path)
    small = Elsewhere(sources=sources, scratch=tmp_path, memory=1 << 15)
    with pytest.raises(PlanError, match=r"have [\d,]+ records; a task of the cluster can hold about 341"):
        PermutationSwap(**ROLES, rate="1/3").on(small).plan(data)
    planned = PermutationSwap(**ROLES, rate="1/3").on(replace(small, memory=1 << 19))
    plan = planned.plan(data, doubts=False)
    with pytest.raises(PlanError, match="a task of the cluster can hold about 341"):
        planned.on(small).ready(data, plan)  # the cluster has started, and its executors have less


def test_a_key_is_not_shown_by_what_carries_it() -> None:
    key = Entropy.from_seed("shown").kept
    task = partial(bulk._exchanged, lambda: partial(int), bulk._Key(key))
    assert "key hidden" in repr(task)
    assert repr(key) not in repr(task)
    assert bytes(pickle.loads(pickle.dumps(bulk._Key(key)))) == key


@pytest.mark.parametrize("slots", [4, 7, 30])
def test_a_large_stratum_among_small_ones_leaves_no_part_without_records(slots: int, tmp_path: Path) -> None:
    """The parts before and after it would have no block; that failed after the draw."""
    sizes = [1] * 2_400 + [2, 3, 4, 5, 6, 7] * 60
    homes = pl.DataFrame({"size": sizes, "county": [n * n % 11 for n in range(2_760)], "held": [*range(2_760)]})
    homes.write_parquet(path := tmp_path / "homes.parquet")
    data, sources = Microdata.read(path), Sources(files={"households": (path,)})
    member = PermutationSwap(match=["size"], swap=["county"], rate="1/3")
    there = released(member.on(Elsewhere(sources=sources, scratch=tmp_path, slots=slots)), data, "large")
    assert there["data"].equals(released(member, data, "large")["data"])


def test_parts_of_persons_and_of_households_cover_the_same_households(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables of persons are counted part by part. Here nobody lives in the first half of the released households."""
    for module in (bulk, record_files):
        monkeypatch.setattr(module, "PART", 40)
    monkeypatch.setattr(bulk, "PART_ROWS", 20)
    homes = pl.DataFrame({"hid": range(400), "vacant": [1] * 200 + [0] * 200, "county": [n // 100 for n in range(400)]})
    homes = homes.with_columns(tenure=pl.col("hid") % 3)
    people = pl.DataFrame({"hid": [200 + n % 200 for n in range(500)], "age": [n % 7 for n in range(500)]})
    files = {"households": (tmp_path / "homes.parquet",), "persons": (tmp_path / "people.parquet",)}
    for frame, (path,) in zip((homes, people), files.values(), strict=True):
        frame.write_parquet(path)
    data = Microdata.read(*(path for (path,) in files.values()), hid="hid")
    here = PermutationSwap(match=["vacant"], swap=["county"], rate="1/3")
    there = here.on(Elsewhere(sources=Sources(files=files), scratch=tmp_path))
    plans = [for_sampling(member.plan(data, doubts=False)) for member in (here, there)]
    both = [
        member.release(data, Entropy.from_seed("parts"), plan=plan).public
        for member, plan in zip((here, there), plans, strict=True)
    ]
    for name in ("data", "persons"):
        own, others = ([*public.parts(name)] for public in both)
        assert len(own) == 10
        assert all(a.equals(b) and a.schema == b.schema for a, b in zip(own, others, strict=True))
    assert not own[0].height


@pytest.mark.parametrize("fault", [None, "another household", "another age"])
def test_persons_that_the_cluster_wrote_are_held_to_the_input_however_many_they_are(
    fault: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a nation they are not led back one by one; what executors wrote was then compared with itself."""
    monkeypatch.setattr(verification, "PERSONS_RELINKED", 10)
    data, sources = given(tmp_path)
    member = MEMBERS["permutation"].on(Elsewhere(sources=sources, scratch=tmp_path))
    plan = for_sampling(member.plan(data, doubts=False))
    release = member.release(data, Entropy.from_seed("held"), plan=plan)
    path = release.internal["file"].parts["persons"][3]
    frame = pl.read_parquet(path)
    if fault == "another household":  # of the same county and tract
        rows = frame.with_row_index("n").filter(pl.col("tract") == frame["tract"][0])["n"]
        first, other = rows[0], next(n for n in rows if frame["hid"][n] != frame["hid"][0])
        frame[first, "hid"] = frame["hid"][other]
    elif fault == "another age":
        frame[0, "age"] = 9
    write_frame(frame, path, note=release.specification.notes)
    files = Written(folder=tmp_path, format="parquet", tables=[], labels={})
    files.public.mkdir()
    for name in release.public:
        release.public.frame(name).write_parquet(files.public / f"{name}.parquet")
    if fault is None:
        checks = verification.verify_swap(data, plan, release, files)
        assert checks[-1].what == f"{verification.RELINKED}, by a checksum over all of them"
        return
    with pytest.raises(VerificationError, match="are not in the households they came from"):
        verification.verify_swap(data, plan, release, files)


FAULTS: dict[str, tuple[str, Callable[[pl.DataFrame], pl.DataFrame]]] = {
    "nothing": ("data", lambda frame: frame),
    "a held value": ("data", lambda frame: frame.with_columns(pl.col("flag").cum_count() == 7)),
    "two records": ("data", lambda frame: frame.with_columns(frame.drop("hid", "county", "tract").reverse())),
    "a swap value": ("data", lambda frame: frame.with_columns(tract=pl.lit(frame["tract"][0]))),
    "a record twice": ("data", lambda frame: pl.concat([frame[:1], frame[:-1]])),
    "a record less": ("data", lambda frame: frame[:-1]),
    "ids": ("data", lambda frame: frame.with_columns(pl.col("hid").reverse())),
    "another household": ("persons", lambda frame: frame.with_columns(hid=pl.lit(frame["hid"][0]))),
    "a swap value of a person": ("persons", lambda frame: frame.with_columns(tract=pl.lit(frame["tract"][0]))),
    "an age": ("persons", lambda frame: frame.with_columns(age=pl.lit(frame["age"][0]))),
    "another order": ("persons", lambda frame: frame.reverse()),
    "another order in a household": ("persons", lambda frame: frame.sort("hid", "age", descending=[False, True])),
    "a type": ("data", lambda frame: frame.with_columns(pl.col("hid").cast(pl.Int64))),
    "the order of columns": ("data", lambda frame: frame[:, ::-1]),
    "a column less": ("persons", lambda frame: frame.drop("age")),
    "no note": ("persons", lambda frame: frame),
}


@pytest.mark.parametrize("fault", [*FAULTS])
def test_parts_that_become_the_released_file_are_held_to_the_input(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody reads them here: the machines that wrote them read them back."""
    monkeypatch.setattr(verification, "PERSONS_RELINKED", 10)
    data, sources = given(tmp_path)
    member = MEMBERS["permutation"].on(Elsewhere(sources=sources, scratch=tmp_path))
    plan = for_sampling(member.plan(data, doubts=False))
    release = member.release(data, Entropy.from_seed("taken"), plan=plan)
    files = Written(folder=tmp_path, format="parquet", tables=[], labels={})
    files.public.mkdir()
    for name in release.public:
        take_parts(release.public.files(name), files.public / f"{name}.parquet")
        assert scan_frame(files.public / f"{name}.parquet").collect().equals(release.public.frame(name))
    name, change = FAULTS[fault]
    path = files.public / f"{name}.parquet" / "part-00002.parquet"
    assert pl.read_parquet_metadata(path).keys() >= {*release.specification.notes}
    monkeypatch.setattr(Frames, "parts", None)
    if fault == "nothing":
        what = [check.what for check in verification.verify_swap(data, plan, release, files)]
        assert sum("by a checksum over all of them" in each for each in what) == 3
        assert not any("record by record" in each for each in what)
        return
    write_frame(change(pl.read_parquet(path)), path, note=None if fault == "no note" else release.specification.notes)
    who = "the households, as written" if name == "data" else "persons, as written"
    with pytest.raises(VerificationError, match=who):
        verification.verify_swap(data, plan, release, files)


def test_a_part_that_is_not_the_one_that_was_written_is_no_part_of_it(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(name)
    own = [tmp_path / "a", tmp_path / "b"]
    take_parts(own, place := tmp_path / "table.parquet")
    assert has_taken(own, place)
    (tmp_path / "c").replace(tmp_path / "b")  # a late attempt
    assert (place / "part-00001.parquet").read_text() == "b"
    assert not has_taken(own, place)
    assert not has_taken([*own, tmp_path / "a"], place)
    assert not has_taken([], place)


class Misled(Elsewhere):
    """Exchanges the places of two records in the file that its machines read them from."""

    def exchange(self, *given: Any, **named: Any) -> list[Any]:
        for path in self.scratch.glob("places-*.npy"):
            if (mark := path.with_suffix(".misled")).exists():
                continue
            mark.touch()
            places = np.load(path)
            first, other = 0, int(np.flatnonzero(places != places[0])[0])
            places[[first, other]] = places[[other, first]]
            np.save(path, places)
        return Elsewhere.exchange(self, *given, **named)


def test_machines_that_were_misled_about_places_are_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What they wrote agrees with what they read: it is compared with what was decided here."""
    monkeypatch.setattr(verification, "PERSONS_RELINKED", 10)
    data, sources = given(tmp_path)
    member = MEMBERS["permutation"].on(Misled(sources=sources, scratch=tmp_path))
    file = member.release(
        data, Entropy.from_seed("misled"), plan=for_sampling(member.plan(data, doubts=False))
    ).internal["file"]
    assert [file.agree[name]() for name in ("data", "persons")] == [False, False]


class Forgetful(Elsewhere):
    """Loses a part of the swap codes that are exchanged, and of nothing else."""

    def exchange(self, *given: Any, **named: Any) -> list[Any]:
        found = Elsewhere.exchange(self, *given, **named)
        return found[1:] if isinstance(found[0], Path) else found


def test_records_that_were_forgotten_are_not_released_unswapped(tmp_path: Path) -> None:
    """Their values stay, so every table would be that of the input."""
    data, sources = given(tmp_path, people=False)
    member = MEMBERS["permutation"].on(Forgetful(sources=sources, scratch=tmp_path))
    with pytest.raises(EngineError, match="records were lost on the cluster"):
        released(member, data, "forgotten")


OTHERS: list[Mechanism] = [
    TwoStageSwap(match=["size"], fine_match=["tenure"], swap=["county"], rate="1/10", fine_rate="1/2"),
    ResponseSwap(match=["size"], swap=["county"], rate="1/4", respond="county", values=["A", "B"], change="1/4"),
    TargetedSwap(hierarchy=["county"], similar=["size"]),
]


@pytest.mark.parametrize("other", OTHERS, ids=lambda other: other.name)
def test_other_swaps_are_refused_by_name(other: Mechanism) -> None:
    with pytest.raises(EngineError, match=f"{other.name} does not run on elsewhere"):
        other.on(Elsewhere())


def test_records_that_are_not_those_in_the_files_are_refused_in_the_plan() -> None:
    with pytest.raises(EngineError, match=r"cannot read the records: homes\.csv is not Parquet"):
        MEMBERS["permutation"].on(Elsewhere(sources=Sources(unlike="homes.csv is not Parquet")))
