"""A file is held against its codebook: everything that departs from it is told, and nothing else."""

import re
from collections import defaultdict
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stirred.data.codebook import TRUTH, Codebook, StructuralZero, Type, Variable
from stirred.data.codebook_file import draft_codebook
from stirred.data.formats import Labelled
from stirred.data.frames import read_frame
from stirred.data.problems import counted
from stirred.data.validate import validate
from stirred.spec.multiverse import Hierarchy
from stirred.spec.problems import Problem
from tests.data.gallery import HERE, exhibits, is_named_after
from tests.depth import examples

ROOM = HERE / "validate"
# Told by Microdata, which the command asks as well.
LINKS = {"household-ids-are-not-unique-2-rows-1-2"}


@pytest.fixture(scope="module")
def gallery_codebook() -> Codebook:
    return Codebook.read(ROOM / "codebook.toml")


@pytest.mark.parametrize(
    "path", [path for path in exhibits("validate", ".csv") if path.stem not in LINKS], ids=lambda path: path.stem
)
def test_a_broken_file_gives_the_message_it_is_named_after(path: Path, gallery_codebook: Codebook) -> None:
    problems = validate(read_frame(path), None, gallery_codebook, household_source=path.name)
    assert is_named_after(path, problems)
    assert problems[0].where.startswith(path.name)


@pytest.mark.parametrize("as_lazy", [False, True], ids=["eager", "lazy"])
def test_a_file_as_declared_has_no_problem(as_lazy: bool, gallery_codebook: Codebook) -> None:
    frame = read_frame(ROOM / "nothing.csv")
    assert validate(frame.lazy() if as_lazy else frame, None, gallery_codebook) == []


def test_everything_is_told_at_once_and_no_record_is_quoted(gallery_codebook: Codebook) -> None:
    frame = pl.DataFrame(
        {
            "hid": ["71", "72", "73"],
            "tract": ["a", "a", "b"],
            "county": ["001", "003", "4"],
            "tenure": ["1", "x", "1"],
            "size": ["1", "99", "many"],
            "built": ["2000-02-30", "2000-02-28", None],
            "vacant": ["true", "maybe", "false"],
            "secret": ["s1", "s2", "s3"],
        }
    )
    problems = validate(frame, None, gallery_codebook, household_source="h.csv")
    assert [(p.where, p.what) for p in problems] == [
        ("h.csv", 'column "secret" is not in the codebook'),
        ('h.csv "county"', "code 4 is not in the codebook (1 row: 3)"),
        ('h.csv "tenure"', "code x is not in the codebook (1 row: 2)"),
        ('h.csv "size"', "many is not a whole number (1 row: 3)"),
        ('h.csv "size"', "99 is not from 1 to 20 (1 row: 2)"),
        ('h.csv "built"', "values are missing (1 row: 3)"),
        ('h.csv "built"', "2000-02-30 is not a date (1 row: 1)"),
        ('h.csv "vacant"', "maybe is neither true nor false (1 row: 2)"),
        (
            'h.csv "tract" in "county" (geography)',
            "tract a lies in county 001 (1 row: 1) and 003 (1 row: 2)",
        ),
        (
            'h.csv "vacant", "tenure", "size" (structural zero \'vacant homes have nobody to own them\')',
            "records have vacant true and tenure 1 and size 1, 2, 3, which the codebook rules out (1 row: 1)",
        ),
    ]
    text = "\n".join(map(str, problems))
    assert not re.search(r"\bs[123]\b|\b7[123]\b", text), "neither undeclared values nor household ids belong there"


# --- files and links ------------------------------------------------------------------------------------

HOUSE = Variable(name="tenure", file="households", type="code", codes={"1": "owned"})
PERSON = Variable(name="age", file="persons", type="integer", min=0)
BOTH = Codebook(variables=(HOUSE, PERSON), hid="hid", id=("pid",))
HOUSEHOLDS = pl.DataFrame({"hid": [1, 2], "tenure": ["1", "1"]})
PERSONS = pl.DataFrame({"hid": [1, 2], "pid": [1, 1], "age": [3, 4]})


def told(problems: list[Problem]) -> list[str]:
    return [f"{problem.where}: {problem.what}" for problem in problems]


def test_columns_of_the_link_need_no_further_declaration() -> None:
    assert validate(HOUSEHOLDS, PERSONS, BOTH) == []


def test_persons_are_not_missed_where_only_households_are_checked() -> None:
    assert validate(HOUSEHOLDS, None, BOTH) == []


def test_persons_may_repeat_what_their_household_has() -> None:
    assert validate(HOUSEHOLDS, PERSONS.with_columns(tenure=pl.lit("1")), BOTH) == []
    wrong = validate(HOUSEHOLDS, PERSONS.with_columns(tenure=pl.lit("8")), BOTH)
    assert told(wrong) == ['persons "tenure": code 8 is not in the codebook (2 rows: 1, 2)']


def test_link_columns_that_are_absent_are_told_for_each_file() -> None:
    problems = validate(HOUSEHOLDS.drop("hid"), PERSONS.drop("hid", "pid"), BOTH)
    assert told(problems) == [
        'households: there is no column "hid" (named in hid); there are "tenure"',
        'persons: there is no column "hid" (named in hid); there are "age"',
        'households and persons: there is no column "pid" (named in id)',
    ]


def test_a_link_that_only_one_file_has_is_said_to_need_one_name() -> None:
    (problem,) = validate(HOUSEHOLDS, PERSONS.rename({"hid": "dwelling"}), BOTH)[:1]
    assert problem.where == "persons"
    assert problem.remedy.startswith("the household id must have the same name in both files: rename the column")


def test_persons_without_a_declared_link_are_told() -> None:
    problems = validate(HOUSEHOLDS.drop("hid"), PERSONS.drop("hid", "pid"), Codebook(variables=(HOUSE, PERSON)))
    assert told(problems) == [
        "[link] hid: persons are given, but the codebook does not say which column links them to households"
    ]


def test_a_column_under_another_name_is_suggested() -> None:
    (extra, absent) = validate(HOUSEHOLDS.rename({"tenure": "Tenure "}), None, BOTH)
    assert extra.remedy.endswith('("Tenure " may be "tenure")')
    assert absent.remedy.endswith('("tenure" may be "Tenure ")')


# --- kinds of values ------------------------------------------------------------------------------------


def one(type_: Type, **facts: Any) -> Codebook:
    return Codebook(variables=(Variable(name="x", file="households", type=type_, **facts),))


CODES = {"1": "owned", "2": "rented"}
FRACTIONS = {"1.50": "one and a half", "10.0": "ten"}
BIG = 1_234_567_890_123_456_789
FINE: dict[str, tuple[pl.Series, Codebook]] = {
    "integers as codes": (pl.Series([1, 2]), one("code", codes=CODES)),
    "doubles as codes": (pl.Series([1.0, 2.0]), one("code", codes=CODES)),
    "doubles with gaps as codes": (pl.Series([1.0, None, float("nan")]), one("code", codes=CODES, missing=True)),
    "categories as codes": (pl.Series(["1", "2"], dtype=pl.Categorical), one("code", codes=CODES)),
    "truths as codes": (pl.Series([True]), one("code", codes={"true": "yes", "false": "no"})),
    "empty text as a code": (pl.Series([""]), one("code", codes={"": "none"})),
    "doubles as integers": (pl.Series([1.0, 2.0]), one("integer", min=1, max=2)),
    "small integers": (pl.Series([1, 2], dtype=pl.UInt8), one("integer", min=1)),
    "signs": (pl.Series(["-1", "+2", "007"]), one("integer", min=-1, max=7)),
    "dates": (pl.Series([date(2020, 1, 1)]), one("date")),
    "moments as dates": (pl.Series([date(2020, 1, 1)]).cast(pl.Datetime), one("date")),
    "truths": (pl.Series([True, False]), one("true-false")),
    "numbers as truths": (pl.Series([1, 0]), one("true-false")),
    "numbers as text": (pl.Series([1.5]), one("text")),
    "numbers as ids": (pl.Series([1, 1]), one("id")),
    "19 digits": (pl.Series([BIG]), one("integer", min=BIG, max=BIG)),
    "19 digits as text": (pl.Series([str(BIG), f"+0{BIG}"]), one("integer", min=BIG, max=BIG)),
    "19 digits as codes": (pl.Series([BIG]), one("code", codes={str(BIG): "a"})),
    "38 digits": (pl.Series(["9" * 38, "-" + "9" * 38]), one("integer", min=-(10**40), max=10**40)),
    "64 bits without sign": (pl.Series([2**64 - 1], dtype=pl.UInt64), one("integer", max=2**64)),
    "decimals as codes": (pl.Series([Decimal("1.00"), Decimal("2.00")]), one("code", codes=CODES)),
    "decimal fractions as codes": (pl.Series([Decimal("1.50"), Decimal("10.00")]), one("code", codes=FRACTIONS)),
    "fractions as codes": (pl.Series([1.5, 10.0]), one("code", codes=FRACTIONS)),
    "decimals as integers": (pl.Series([Decimal("1.00"), Decimal(f"{BIG}.00")]), one("integer", min=1)),
    "all missing": (pl.Series([None], dtype=pl.String), one("integer", missing=True)),
}


@pytest.mark.parametrize(("column", "codebook"), FINE.values(), ids=FINE.keys())
def test_values_are_compared_as_text_whatever_their_storage(column: pl.Series, codebook: Codebook) -> None:
    assert validate(column.alias("x").to_frame(), None, codebook) == []


BROKEN: dict[str, tuple[pl.Series, Codebook, str]] = {
    "halves": (pl.Series([1.0, 1.5]), one("integer"), "1.5 is not a whole number (1 row: 2)"),
    "spaces": (pl.Series([" 1"]), one("code", codes=CODES), 'code " 1" is not in the codebook (1 row: 1)'),
    "not a number": (pl.Series([1.0, float("nan")]), one("integer"), "values are missing (1 row: 2)"),
    "categories": (
        pl.Series(["1", "7"], dtype=pl.Categorical),
        one("code", codes=CODES),
        "code 7 is not in the codebook (1 row: 2)",
    ),
    "many": (
        pl.Series(range(10)),
        one("code", codes=CODES),
        "codes 0, 3, 4, 5, 6, ... are not in the codebook (8 rows: 1, 4, 5, 6, 7, ...)",
    ),
    "lists": (pl.Series([[1]]), one("text"), "its values are of type List(Int64), not single values"),
    "at most": (pl.Series([3]), one("integer", max=2), "3 is not at most 2 (1 row: 1)"),
    "at least": (pl.Series(["3"]), one("integer", min=4), "3 is not 4 or more (1 row: 1)"),
    "date numbers": (pl.Series([20200101]), one("date"), "20200101 is not a date (1 row: 1)"),
    "dates as integers": (pl.Series([date(2020, 1, 1)]), one("integer"), "2020-01-01 is not a whole number (1 row: 1)"),
    "19 digits": (pl.Series([BIG]), one("integer", max=BIG - 1), f"{BIG} is not at most {BIG - 1} (1 row: 1)"),
    "19 digits as text": (
        pl.Series([str(BIG)]),
        one("integer", min=BIG + 1),
        f"{BIG} is not {BIG + 1} or more (1 row: 1)",
    ),
    "a neighbouring code of 19 digits": (
        pl.Series([BIG, BIG - 1]),
        one("code", codes={str(BIG): "a"}),
        f"code {BIG - 1} is not in the codebook (1 row: 2)",
    ),
    "too many digits": (pl.Series(["1" * 39]), one("integer"), f"{'1' * 39} has more than 38 digits (1 row: 1)"),
    "doubles that are not exact": (
        pl.Series([1.0, float(BIG)]),
        one("integer"),
        "it holds doubles, which from 9,007,199,254,740,992 on may stand for another number (1 row: 2)",
    ),
    "decimals": (
        pl.Series([Decimal("1.00"), Decimal("7.00")]),
        one("code", codes=CODES),
        "code 7 is not in the codebook (1 row: 2)",
    ),
    "decimal fractions": (
        pl.Series([Decimal("1.00"), Decimal("2.50")]),
        one("integer"),
        "2.5 is not a whole number (1 row: 2)",
    ),
    "yes": (pl.Series(["yes", "no"]), one("true-false"), "no, yes are neither true nor false (2 rows: 1, 2)"),
}


@pytest.mark.parametrize(("column", "codebook", "message"), BROKEN.values(), ids=BROKEN.keys())
def test_values_of_another_kind_are_told(column: pl.Series, codebook: Codebook, message: str) -> None:
    assert [p.what for p in validate(column.alias("x").to_frame(), None, codebook)] == [message]


def test_lost_leading_zeros_are_recognised() -> None:
    (problem,) = validate(pl.DataFrame({"x": [1, 3]}), None, one("code", codes={"001": "a", "003": "b"}))
    assert problem.remedy.endswith("but for leading zeros or spaces these are codes of the codebook")


def test_codes_of_a_hierarchy_file_are_its_leaves(tmp_path: Path) -> None:
    (tmp_path / "r.hrc").write_text("North\n@N1\n@N2\n")
    text = (
        '[[variables]]\nname="x"\nfile="households"\ntype="code"\n[[hierarchies]]\nname="r"\nvariable="x"\nhrc="r.hrc"'
    )
    codebook = Codebook.from_toml(text, folder=tmp_path)
    assert validate(pl.DataFrame({"x": ["N1", "N2"]}), None, codebook) == []
    (problem,) = validate(pl.DataFrame({"x": ["N1", "North"]}), None, codebook)
    assert problem.what == "code North is not in the codebook (1 row: 2)"


def test_many_broken_values_are_told_by_the_first() -> None:
    levels = [Variable(name=name, file="households", type="text") for name in ("block", "county")]
    codebook = Codebook(variables=tuple(levels), hierarchies=(Hierarchy(name="g", levels=("block", "county")),))
    frame = pl.DataFrame({"block": [f"b{i}" for i in range(9)] * 3, "county": ["A"] * 9 + ["B"] * 9 + ["C"] * 9})
    (problem,) = validate(frame, None, codebook)
    assert problem.what.startswith("block b0 lies in county A (1 row: 1) and B (1 row: 10), and 1 more; block b1")
    assert problem.what.endswith("; and 6 more values of block")


def test_structural_zeros_know_a_number_however_it_is_written() -> None:
    age = Variable(name="age", file="households", type="integer")
    zero = StructuralZero(name="z", file="households", when={"age": ("3",)})
    codebook = Codebook(variables=(age,), structural_zeros=(zero,))
    for values in (["3", "4"], ["+3", "4"], ["003", "-3"], [3, 30], [3.0, 3.5], [Decimal("3.00"), Decimal("30.00")]):
        what = [p.what for p in validate(pl.DataFrame({"age": values}), None, codebook)]
        assert "records have age 3, which the codebook rules out (1 row: 1)" in what


def test_structural_zeros_know_long_numbers_and_decimal_codes() -> None:
    number = Variable(name="x", file="households", type="integer")
    code = Variable(name="x", file="households", type="code", codes=FRACTIONS)
    for variable, wanted, values in (
        (number, str(BIG), [f"+0{BIG}", str(BIG - 1)]),
        (number, str(BIG), [BIG, BIG - 1]),
        (code, "1.50", [Decimal("1.50"), Decimal("10.00")]),
    ):
        zero = StructuralZero(name="z", file="households", when={"x": (wanted,)})
        codebook = Codebook(variables=(variable,), structural_zeros=(zero,))
        (problem,) = validate(pl.DataFrame({"x": values}), None, codebook)
        assert problem.what == f"records have x {wanted}, which the codebook rules out (1 row: 1)"


def test_a_draft_of_decimal_codes_describes_its_own_file() -> None:
    frame = pl.DataFrame({"x": [Decimal("1.00"), Decimal("2.00"), Decimal("1.00")], "y": [BIG, BIG, BIG]})
    codebook = Codebook.from_toml(draft_codebook(Labelled(frame=frame), None))
    assert list(codebook.of("households")["x"].codes) == ["1", "2"]
    assert validate(frame, None, codebook) == []


# --- against slow, obvious code -------------------------------------------------------------------------

TEXTS = {
    "tract": ["a", "b", "c"],
    "county": ["1", "2", "01", " 1"],
    "size": ["0", "1", "2", "20", "007", "+3", "-4", "2.5", "x", "", "9" * 20, "1" * 40],
    "built": ["2020-02-29", "2021-02-29", "2020-1-1", "x"],
    "vacant": ["true", "False", "0", "1", "2", "yes"],
}
NUMBERS: dict[str, list[Any]] = {"county": [1, 2, 3], "size": [0, 1, 3, 20, -4], "vacant": [0, 1, 2]}


@st.composite
def cases(draw: st.DrawFn) -> tuple[pl.DataFrame, Codebook]:
    height = draw(st.integers(1, 12))
    columns = {}
    for name, texts in TEXTS.items():
        numeric = name in NUMBERS and draw(st.booleans())
        pool: st.SearchStrategy[Any] = st.sampled_from(NUMBERS[name] if numeric else texts)
        values = draw(st.lists(st.none() | pool, min_size=height, max_size=height))
        kinds = [pl.Int64, pl.Int8, pl.Float64] if numeric else [pl.String, pl.Categorical]
        column = pl.Series(name, values, dtype=pl.Int64 if numeric else pl.String).cast(draw(st.sampled_from(kinds)))
        # pandas writes a missing number as not-a-number.
        columns[name] = column.fill_null(float("nan")) if column.dtype.is_float() and draw(st.booleans()) else column
    types: dict[str, Type] = {
        "tract": "text",
        "county": "code",
        "size": "integer",
        "built": "date",
        "vacant": "true-false",
    }
    limits = {"min": draw(st.none() | st.integers(-5, 3)), "max": draw(st.none() | st.integers(3, 20))}
    variables = tuple(
        Variable(
            name=name,
            file="households",
            type=kind,
            missing=draw(st.booleans()),
            codes={"1": "one", "2": "two"} if name == "county" else {},
            **(limits if name == "size" else {}),  # type: ignore[arg-type]
        )
        for name, kind in types.items()
    )
    zero = StructuralZero(name="z", file="households", when={"vacant": ("true",), "size": ("3",), "county": ("1", "2")})
    return pl.DataFrame(columns), Codebook(
        variables=variables,
        hierarchies=(Hierarchy(name="g", levels=("tract", "county", "built")),),
        structural_zeros=(zero,),
    )


def as_written(value: Any) -> str | None:
    if value is None or value != value:
        return None
    return str(int(value)) if isinstance(value, float) else str(value)


def is_whole(text: str) -> bool:
    return bool(re.fullmatch(r"[+-]?[0-9]{1,38}", text))


def is_date(text: str) -> bool:
    try:
        return bool(re.fullmatch(r"\d{4}-\d\d-\d\d", text)) and bool(date.fromisoformat(text))
    except ValueError:
        return False


def row_by_row(frame: pl.DataFrame, codebook: Codebook) -> set[tuple[str, str, str]]:
    """Return every departure as (column, kind, rows), looking at one row after the other."""
    rows = [{name: as_written(value) for name, value in row.items()} for row in frame.iter_rows(named=True)]
    found: dict[tuple[str, str], list[int]] = defaultdict(list)
    checks: dict[Type, list[tuple[str, Callable[[Variable, str], bool]]]] = {
        "code": [("not in the codebook", lambda v, text: text not in v.codes)],
        "integer": [
            ("whole number", lambda v, text: not is_whole(text) and text != "1" * 40),
            ("38 digits", lambda v, text: text == "1" * 40),
            ("is not", lambda v, text: is_whole(text) and not v.allows(text)),
        ],
        "date": [("date", lambda v, text: not is_date(text))],
        "true-false": [("neither", lambda v, text: text.lower() not in ("true", "false", "0", "1"))],
        "text": [],
        "id": [],
    }
    for at, row in enumerate(rows):
        for variable in codebook.variables:
            text = row[variable.name]
            if text is None:
                if not variable.missing:
                    found[variable.name, "missing"].append(at)
                continue
            for kind, fails in checks[variable.type]:
                if fails(variable, text):
                    found[variable.name, kind].append(at)
        vacant, size, county = row["vacant"], row["size"], row["county"]
        if (
            vacant is not None
            and TRUTH.get(vacant.lower()) == "true"
            and size is not None
            and is_whole(size)
            and int(size) == 3
            and county in ("1", "2")
        ):
            found["zero", "rules out"].append(at)
    for fine, coarse in (("tract", "county"), ("county", "built")):
        parents: dict[str, set[str]] = defaultdict(set)
        for row in rows:
            one, other = row[fine], row[coarse]
            if one is not None and other is not None:
                parents[one].add(other)
        if any(len(values) > 1 for values in parents.values()):
            found[f"{fine} in {coarse}", "nesting"] = []
    return {(column, kind, counted(at) if at else "") for (column, kind), at in found.items()}


KINDS = (
    "not in the codebook",
    "whole number",
    "38 digits",
    "date",
    "neither",
    "missing",
    "rules out",
    "lies in",
    "is not",
)


def as_found(problem: Problem) -> tuple[str, str, str]:
    what = problem.what.replace("are not whole numbers", "is not a whole number").replace("are not", "is not")
    kind = next(kind for kind in KINDS if kind in what)
    rows = what.rpartition("(")[2].removesuffix(")")
    if kind == "lies in":
        levels = re.findall(r'"(\w+)"', problem.where)
        return f"{levels[0]} in {levels[1]}", "nesting", ""
    (column, *more) = re.findall(r'"(\w+)"', problem.where)
    return ("zero" if more else column), kind, rows


@settings(max_examples=examples(300), derandomize=True, deadline=None)
@given(cases(), st.booleans())
def test_validation_finds_what_a_look_at_every_row_finds(case: tuple[pl.DataFrame, Codebook], as_lazy: bool) -> None:
    frame, codebook = case
    problems = validate(frame.lazy() if as_lazy else frame, None, codebook)
    assert sorted(map(as_found, problems)) == sorted(row_by_row(frame, codebook))
