"""Cell keys on files: the same records have the same noise everywhere, zeros stay, and nothing confidential leaves."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from stirred.data.microdata import Microdata
from stirred.data.problems import DataError, PlanError
from stirred.mechanisms.tables.cellkey.design import design_ptable
from stirred.mechanisms.tables.cellkey.keys import KeyFile, Keys
from stirred.mechanisms.tables.cellkey.mechanism import CellKey
from stirred.mechanisms.tables.cellkey.perturbation import Magnitude
from stirred.mechanisms.tables.cellkey.promise import CellKeySettings
from stirred.randomness import Entropy
from stirred.spec.problems import StirredError

TABLE = design_ptable(D=2, V=Fraction(9, 10)).table
KEY = bytes(range(32))
VALUES = {"county": ["A", "B", "C"], "sex": ["f", "m"], "town": ["t1", "t2", "t3", "t4", "t5", "t6"]}


def people(count: int = 240) -> pl.DataFrame:
    rows = np.arange(count)
    return pl.DataFrame(
        {
            "id": rows,
            "county": np.array(["A", "B"])[rows % 2],
            "town": np.array(["t1", "t2", "t3", "t4"])[rows % 4],
            "sex": np.array(["f", "m"])[rows // 3 % 2],
            "income": 100.0 * (1 + rows % 17),
        }
    )


def perturbed(frame: pl.DataFrame, *tables: list[str], **how: Any) -> dict[str, pl.DataFrame]:
    mechanism = CellKey(ptable=TABLE, tables=tables, values=VALUES, unit="person", **how)
    data = Microdata(households=frame, id=("id",), record="person")
    plan = mechanism.plan(data)
    accept = [doubt.name for doubt in plan.doubts if doubt.refuses]
    release = mechanism.release(data, Entropy.from_os(), accept=accept, plan=plan)
    return {title: release.public.frame(title) for title in release.public} | {
        f"internal {title}": frame for title, frame in release.internal["drawn"].items()
    }


def test_the_same_set_of_records_has_the_same_noise_in_every_table_and_year() -> None:
    # All of county A are in towns t1 and t3, and t2, t4 make county B: sets recur under other names.
    frame = people()
    found = perturbed(frame, ["county"], ["county", "sex"], ["sex", "county"], key=KEY)
    one = found["county x sex"].sort("county", "sex")["count"].to_list()
    other = found["sex x county"].sort("county", "sex")["count"].to_list()
    assert one == other
    later = frame.with_columns(income=pl.col("income") * 2).sample(fraction=1, shuffle=True, seed=1)
    added = pl.concat([later, later.head(1).with_columns(id=pl.lit(9999, dtype=pl.Int64), county=pl.lit("C"))])
    again = perturbed(added, ["county"], key=KEY)["county"]
    assert again.filter(pl.col("county") != "C").equals(found["county"].filter(pl.col("county") != "C"))


def test_a_row_with_one_filled_cell_shows_the_noise_of_its_total() -> None:
    frame = people().with_columns(sex=pl.lit("f"))
    found = perturbed(frame, ["county"], ["county", "sex"], key=KEY)
    total = dict(found["county"].rows())
    cells = {county: count for county, sex, count in found["county x sex"].rows() if sex == "f"}
    assert total == cells
    by_cell = [perturbed(frame, ["county"], ["county", "sex"], keyed_by="definition") for _ in range(20)]
    different = [
        [*dict(each["county"].rows()).values()] != each["county x sex"].filter(pl.col("sex") == "f")["count"].to_list()
        for each in by_cell
    ]
    assert any(different)  # by definition they are different cells


def test_differencing_two_tables_shows_one_record_by_other_noise() -> None:
    # Documented: C against C without one record differ by 1 plus two independent noises, not by 1.
    frame = people()
    differences = []
    for n in range(60):
        key = bytes([n] * 32)
        with_it = perturbed(frame, ["county"], key=key)["county"]["count"][0]
        without = perturbed(frame.filter(pl.col("id") != 0), ["county"], key=key)["county"]["count"][0]
        differences.append(int(with_it) - int(without))
    assert len({*differences}) > 3
    assert abs(np.mean(differences) - 1) < 4 * np.sqrt(2 * 0.9 / 60)  # power: a bias of .7 would be seen


def test_an_empty_cell_stays_empty_and_no_count_becomes_negative() -> None:
    small = people(7)
    counts = []
    for n in range(120):
        table = perturbed(small, ["county", "town"], key=bytes([n] * 32))["county x town"]
        empty = table.filter((pl.col("county") == "C") | pl.col("town").is_in(["t5", "t6"]))
        assert not empty["count"].sum()
        assert int(table["count"].min()) >= 0  # type: ignore[arg-type]
        counts += table.filter((pl.col("county") == "A") & (pl.col("town") == "t3"))["count"].to_list()
    # That cell has two records (2 and 6): all of 0 to 4 occur, with the probabilities of the table.
    law, seen = TABLE.law(2), Counter(counts)
    assert {*seen} == {*law}
    chi = sum((seen[t] - 120 * p) ** 2 / (120 * p) for t, p in law.items())
    assert float(chi) < 23.5  # chance of a false alarm 1e-4 with 4 degrees of freedom


def test_keys_are_uniform_and_depend_on_every_bit_of_the_secret() -> None:
    keys = Keys(KEY)
    drawn = np.array([keys.looked_up(n.to_bytes(4, "little"), below=16) for n in range(4000)])
    chi = float(((np.bincount(drawn, minlength=16) - 250) ** 2 / 250).sum())
    assert chi < 48  # 15 degrees of freedom, 1e-5; a bias of 6 % in one key would be seen
    other = Keys(bytes([1, *KEY[1:]]))
    same = sum(other.looked_up(n.to_bytes(4, "little"), below=16) == d for n, d in enumerate(drawn))
    assert 150 < same < 350
    assert keys.fingerprint != other.fingerprint
    assert KEY.hex() not in repr(keys)


def test_keys_drawn_for_one_release_are_other_ones_the_next_time() -> None:
    frame = people()
    both = [perturbed(frame, ["county", "town", "sex"])["county x town x sex"]["count"].to_list() for _ in range(2)]
    assert both[0] != both[1]


def test_public_tables_have_neither_true_counts_nor_keys() -> None:
    found = perturbed(people(), ["county", "sex"], key=KEY, threshold=10)
    assert found["county x sex"].columns == ["county", "sex", "count"]
    inside = found["internal county x sex"]
    assert inside.columns == ["county", "sex", "pre_sd_count", "pvalue", "ckey", "pcv"]
    shown = found["county x sex"]["count"]
    assert shown.null_count() == 2  # county C, below the threshold
    assert int(shown.drop_nulls().min()) >= 10  # type: ignore[arg-type]


def test_additive_keys_are_looked_up_as_they_are() -> None:
    table = design_ptable(D=2, V=Fraction(9, 10), keys=256).table
    frame = people(40).with_columns(record_key=(pl.col("id") * 97) % 256)
    mechanism = CellKey(
        ptable=table, tables=[["county"]], values=VALUES, unit="person", keys="additive", record_key="record_key"
    )
    data = Microdata(households=frame, id=("id",), record="person")
    found = mechanism.release(data, Entropy.from_os(), accept=["large-delta"]).public.frame("county")
    for county, count in found.filter(pl.col("county") != "C").rows():
        own = frame.filter(pl.col("county") == county)
        key = int(own["record_key"].sum()) % 256
        assert count == own.height + table.added(own.height, key=key)


def test_sums_have_noise_in_units_of_their_largest_contributions() -> None:
    magnitudes = design_ptable(D=2, V=Fraction(1), step=2).table
    flex = Magnitude(column="income")
    peak = max(range(1000, 3001, 10), key=flex.share)
    assert (peak, round(flex.share(peak), 6)) == (1300, 0.203913)  # T12
    unit = flex.unit(1200, 1)
    assert unit == pytest.approx(244.264463)  # T13
    assert flex.unit(500, 3) == 100  # small contributions: no weight
    found = perturbed(people(), ["county"], key=KEY, magnitude=flex, magnitude_ptable=magnitudes)
    sums = found["tables/sums-county"]
    assert sums.columns == ["county", "sum"]
    true = dict(people().group_by("county").agg(pl.col("income").sum()).rows())
    for county, total in sums.rows():
        assert abs(total - true.get(county, 0)) <= 2 * flex.unit(1700, 1)
    assert dict(sums.rows())["C"] == 0
    assert flex.perturbed(0.0, [0.0], magnitudes, [7]) == 0
    assert flex.perturbed(5.0, [900.0], magnitudes, [0]) >= 0


@pytest.mark.parametrize(
    ("how", "what"),
    [
        ({"keys": "additive", "record_key": "nokey"}, r'there is no column "nokey" \(named in record_key'),
        ({"keys": "additive", "record_key": "sex"}, "neither whole numbers nor decimals"),
        ({"keys": "additive", "record_key": "debt"}, "neither whole numbers nor decimals"),
        ({"keys": "additive", "record_key": "short"}, "the keys go up to 239, and the table has 100,000,000"),
        ({"magnitude": {"column": "nope"}}, r'there is no column "nope" \(named in magnitude'),
        ({"magnitude": {"column": "sex"}}, "values that are not numbers"),
        ({"key": KEY, "id": ()}, "none is named"),
        ({"key": KEY, "id": ("town",)}, "share their identifier"),
        ({"after": {"swap": ["county"], "hold": ["income"], "rate": "1/2"}}, '"sex" of the table sex is not among'),
    ],
)
def test_what_would_fail_after_the_draw_fails_in_the_plan(how: dict[str, Any], what: str) -> None:
    frame = people().with_columns(debt=pl.lit(-3), short=pl.int_range(pl.len()))
    data = Microdata(households=frame, record="person", id=how.pop("id", ("id",)))
    mechanism = CellKey(**{"ptable": TABLE, "tables": [["sex"]], "values": VALUES, "unit": "person", **how})
    with pytest.raises(StirredError, match=what):
        mechanism.plan(data)


def test_keys_and_contributions_are_read_as_csv_has_them() -> None:
    frame = people().with_columns(record_key=pl.int_range(pl.len()) * TABLE.keys // 240)
    own: dict[str, Any] = {"keys": "additive", "record_key": "record_key", "magnitude": {"column": "income"}}
    found, texts = (perturbed(each, ["county"], **own) for each in (frame, frame.cast(pl.String)))
    assert texts["county"].equals(found["county"])
    assert texts["tables/sums-county"].equals(found["tables/sums-county"])


def test_a_sum_is_left_empty_where_its_count_is() -> None:
    found = perturbed(people(), ["county"], key=KEY, magnitude={"column": "income"}, threshold=1000)
    assert found["county"]["count"].null_count() == found["county"].height > 0
    assert found["tables/sums-county"]["sum"].null_count() == found["county"].height


def test_a_missing_contribution_adds_nothing() -> None:
    frame = people().with_columns(income=pl.when(pl.col("sex") == "f").then("income"))
    sums = perturbed(frame, ["county", "sex"], key=KEY, magnitude={"column": "income"})["tables/sums-county-x-sex"]
    assert {*sums.filter(pl.col("sex") == "f")["sum"]} > {0.0}  # county C is empty
    assert set(sums.filter(pl.col("sex") == "m")["sum"]) == {0.0}


def test_a_record_key_that_is_short_of_a_key_is_refused() -> None:
    data = Microdata(households=people().with_columns(record_key=pl.lit(None)), record="person")
    mechanism = CellKey(
        ptable=TABLE, tables=[["county"]], values=VALUES, keys="additive", record_key="record_key", unit="person"
    )
    with pytest.raises(StirredError, match="records have no key"):
        mechanism.release(data, Entropy.from_os(), accept=["large-delta"])


@pytest.mark.parametrize(
    ("how", "what"),
    [
        ({"tables": []}, "tables: is needed"),
        ({"tables": [[]]}, "a table needs different variables"),
        ({"key": b"short"}, "this is not a key"),
        ({"tables": [["sex", "sex"]]}, "a table needs different variables"),
        ({"keys": "additive"}, "a column of record keys goes with"),
        ({"record_key": "id"}, "a column of record keys goes with"),
        ({"keys": "additive", "record_key": "id", "keyed_by": "definition"}, "additive keys are sums"),
        (
            {"after": {"name": "noisy-swap", "swap": ["county"], "rate": "1/2", "noise_epsilon": 1}},
            "noisy-swap releases tables",
        ),
        ({"after": {"swap": ["county"], "rate": "1/2"}, "key": KEY}, "whose keys are drawn for this release"),
        (
            {"after": {"swap": ["county"], "rate": "1/2"}, "keys": "additive", "record_key": "id"},
            "whose keys are drawn for this release",
        ),
        ({"after": {"swap": ["sex"], "rate": "1/2"}}, "permutation swapping changes none of their counts"),
        ({"keyed_by": "definition", "key": KEY}, "the difference of the two would be exact"),
        ({"keys": "additive", "record_key": "id", "key": KEY}, "in a column and in a file"),
        ({"ptable": design_ptable(D=2, V=Fraction(1), step=2).table}, "counts are whole"),
        ({"ptable": {"rows": 3}}, "this is not a perturbation table"),
        ({"ptable": "ptable.csv"}, "ptable ptable.csv: there is no such file"),
        ({"settings": CellKeySettings(ptable="ptable.csv")}, "the file ptable.csv was not read"),
        ({"magnitude": {"column": "income", "p_small": 3}}, "magnitude p_small: 3: input should be less than or equal"),
    ],
)
def test_settings_that_do_not_fit_are_refused(how: dict[str, Any], what: str) -> None:
    with pytest.raises((StirredError, TypeError), match=what):
        CellKey(**{**({} if "settings" in how else {"ptable": TABLE}), "tables": [["sex"]], **how})


@pytest.mark.parametrize(
    ("frame", "how", "what"),
    [
        (people().drop("id"), {"key": KEY}, "there is no|none is named|identifier"),
        (people().with_columns(id=pl.lit(1)), {"key": KEY}, "share their identifier"),
        (people(), {"key": "file.key"}, "was not read"),
        (people().rename({"county": "land"}), {}, 'there is no column "county"'),
        (people().with_columns(county=pl.lit("Z")), {}, "were not declared"),
    ],
)
def test_files_that_do_not_fit_are_refused(frame: pl.DataFrame, how: dict[str, Any], what: str) -> None:
    ids = ("id",) if "id" in frame.columns else ()
    mechanism = CellKey(ptable=TABLE, tables=[["county"]], values=VALUES, unit="person", **how)
    data = Microdata(households=frame, id=ids, record="person")

    def released() -> None:
        plan = mechanism.plan(data)
        mechanism.release(data, Entropy.from_os(), accept=[d.name for d in plan.doubts if d.refuses], plan=plan)

    with pytest.raises(StirredError, match=what):
        released()


def test_a_table_of_persons_needs_a_swap_before_it() -> None:
    homes = pl.DataFrame({"hid": [1, 2], "county": ["A", "B"]})
    data = Microdata(households=homes, persons=pl.DataFrame({"hid": [1, 2, 2], "sex": list("fmf")}), hid="hid")
    with pytest.raises(PlanError, match="may change a count for each of them"):
        CellKey(ptable=TABLE, tables=[["sex"]], values=VALUES).plan(data)


def test_several_additive_tables_and_sums_promise_nothing_and_say_why() -> None:
    several = CellKey(ptable=TABLE, tables=[["county"], ["sex"]], values=VALUES, keys="additive", record_key="k")
    sums = CellKey(ptable=TABLE, tables=[["county"]], values=VALUES, magnitude={"column": "income"})
    for mechanism, why in ((several, "not independent"), (sums, "of any size")):
        keyed = people().with_columns(k=pl.int_range(pl.len()) * TABLE.keys // 240)
        plan = mechanism.plan(Microdata(households=keyed, record="person"))
        assert plan.specification.budget.realised.is_infinite
        assert any(why in doubt.what for doubt in plan.doubts)


def test_more_noise_does_not_help_where_the_same_set_has_the_same_noise() -> None:
    wide = design_ptable(D=5, V=Fraction(3), js=2).table
    both = [CellKey(ptable=table, tables=[["county"], ["sex"]], zeros="fixed") for table in (TABLE, wide)]
    deltas = [mechanism.audit_specification([]).output_premetric.delta for mechanism in both]
    assert deltas[0] < deltas[1]


def test_a_key_file_prints_as_its_path_and_keeps_its_secret(tmp_path: Path) -> None:
    file = tmp_path / "a.key"
    file.touch(mode=0o600)
    file.write_text(KEY.hex() + "\n")
    key = KeyFile.read("a.key", file)
    assert (str(key), key.secret) == ("a.key", KEY)
    file.write_text("abc")
    with pytest.raises(DataError, match="64 hexadecimal digits"):
        KeyFile.read("a.key", file)


def test_a_key_given_in_python_stays_when_other_settings_change() -> None:
    keyed = CellKey(ptable=TABLE, tables="county", values=VALUES, unit="person", key=KEY)
    assert keyed.with_settings(threshold=3).key.secret == KEY
    assert keyed.with_settings(key=None).key is None
    assert KEY.hex() not in repr(keyed) + str(keyed.settings.dumped())


def test_expected_errors_are_those_of_the_table() -> None:
    mechanism = CellKey(ptable=TABLE, tables=[["county"]], values=VALUES)
    error = mechanism.expected_error(people(), variables=["county"], source="this-data")
    assert error.table["variance"].to_list() == [0.9, 0.9]
    assert error.table["bias"].to_list() == [0, 0]
    with pytest.raises(PlanError, match="publish no margins"):
        mechanism.expected_error(people(), variables=["county"], source="margins")
    swapped = CellKey(ptable=TABLE, tables=[["county", "sex"]], after={"swap": ["county"], "rate": "1/2"})
    with pytest.raises(PlanError, match="a swap and cell-key perturbation together have no closed form"):
        swapped.expected_error(people(), variables=["county"], source="this-data")
