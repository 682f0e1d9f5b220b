"""A codebook says what it is, survives being written, and explains every mistake in it."""

import json
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import get_args

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stirred.data.codebook import (
    FILES,
    Codebook,
    CodeHierarchy,
    CodeTree,
    StructuralZero,
    Type,
    Variable,
)
from stirred.data.codebook_file import json_schema, parse_hrc, read_hrc
from stirred.data.problems import DataError
from stirred.spec.multiverse import Hierarchy
from stirred.spec.problems import StirredError
from tests.data.codebooks import as_toml
from tests.data.gallery import exhibits, is_named_after
from tests.depth import examples

MANY = settings(max_examples=examples(200), derandomize=True, deadline=None)

WHOLE = """
[codebook]
title = "A census"

[[variables]]
name = "tenure"
file = "households"
type = "code"
label = "Tenure"
codes = { 1 = "owned", 2 = "rented" }
missing = false

[[variables]]
name = "region"
file = "households"
type = "code"

[[variables]]
name = "block"
file = "households"
type = "text"

[[variables]]
name = "county"
file = "households"
type = "text"

[[variables]]
name = "age"
file = "persons"
type = "integer"
min = 0
max = 115

[[variables]]
name = "imputed"
file = "persons"
type = "true-false"
missing = true

[[hierarchies]]
name = "geography"
levels = ["block", "county"]
geographic = true

[[hierarchies]]
name = "region"
variable = "region"
hrc = "region.hrc"

[link]
hid = "hid"
id = ["pid"]

[[structural_zeros]]
name = "young, yet imputed"
file = "persons"
when = { imputed = [true], age = [0, 1, 2] }
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "region.hrc").write_text("North\n@N1\n@N2\nSouth\n@S1\n")
    (tmp_path / "codebook.toml").write_text(WHOLE)
    return tmp_path


# --- reading --------------------------------------------------------------------------------------------


def test_a_codebook_says_what_its_file_declares(folder: Path) -> None:
    codebook = Codebook.read(folder / "codebook.toml")
    assert codebook.title == "A census"
    assert codebook.labels("tenure") == {"1": "owned", "2": "rented"}
    assert codebook.labels("age") == codebook.labels("nothing") == {}
    assert codebook.variable("age") == Variable(name="age", file="persons", type="integer", min=0, max=115)
    assert codebook.variable("nothing") is None
    assert list(codebook.of("persons")) == ["age", "imputed"]
    assert (codebook.hid, codebook.id, codebook.identifiers) == ("hid", ("pid",), ("hid", "pid"))
    assert codebook.leaves("region") == {"N1", "N2", "S1"}
    assert codebook.structural_zeros[0].when == {"imputed": ("true",), "age": ("0", "1", "2")}


def test_only_hierarchies_of_columns_enter_a_specification(folder: Path) -> None:
    codebook = Codebook.read(folder / "codebook.toml")
    assert codebook.hierarchies == (Hierarchy(name="geography", levels=("block", "county")),)


def test_a_byte_order_mark_is_no_part_of_the_codebook(folder: Path) -> None:
    (folder / "marked.toml").write_bytes(b"\xef\xbb\xbf" + WHOLE.encode())
    assert Codebook.read(folder / "marked.toml") == Codebook.read(str(folder / "codebook.toml"))


def test_the_file_fits_its_schema() -> None:
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(tomllib.loads(WHOLE), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(tomllib.loads(WHOLE) | {"colour": "blue"}, schema)
    assert json.dumps(schema)


def test_variables_of_type_id_are_identifiers() -> None:
    serial = Variable(name="serial", file="households", type="id")
    assert Codebook(variables=(serial,), hid="hid", id=("pid",)).identifiers == ("hid", "pid", "serial")


# --- what is wrong --------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", exhibits("codebook", ".toml"), ids=lambda path: path.stem)
def test_a_broken_codebook_gives_the_message_it_is_named_after(path: Path) -> None:
    with pytest.raises(DataError) as refusal:
        Codebook.read(path)
    assert is_named_after(path, refusal.value.problems)
    assert refusal.value.problems[0].where.startswith(str(path))


@pytest.mark.parametrize("path", exhibits("hierarchy", ".hrc"), ids=lambda path: path.stem)
def test_a_broken_hierarchy_gives_the_message_it_is_named_after(path: Path) -> None:
    with pytest.raises(DataError) as refusal:
        read_hrc(path)
    assert is_named_after(path, refusal.value.problems)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("A\n@B\n@@C\nD\n@B\n@@E\n@@F\n", ["line 5: code B is already on line 2"]),
        ("A\n@\n@@C\n@@D\n@E\n", ["line 2: this line has a depth, but no code"]),
        ("A\n@@C\n@@D\n@E\n", ["line 2: code C stands 2 levels below the line before it"]),
        ("A\n@@C\n@@@D\n", ["line 2: code C stands 2 levels below the line before it"]),
        ("@B\n@C\nA\n", ["line 1: code B stands below no other"]),
        (
            "A\n@@C\n@B\n@@@C\n",
            ["line 2: code C stands 2 levels below the line before it", "line 4: code C is already on line 2"],
        ),
        (
            "A\n@@C\nB\n@@D\n",
            [
                "line 2: code C stands 2 levels below the line before it",
                "line 4: code D stands 2 levels below the line before it",
            ],
        ),
    ],
)
def test_lines_below_and_beside_a_broken_one_are_not_blamed(text: str, told: list[str]) -> None:
    with pytest.raises(DataError) as refusal:
        parse_hrc(text, source="")
    assert [f"{problem.where.strip()}: {problem.what}" for problem in refusal.value.problems] == told


def test_the_same_slip_in_many_entries_is_told_once(tmp_path: Path) -> None:
    entry = '[[variables]]\nname = "{}"\nfile = "households"\ntyp = "code"\n'
    with pytest.raises(DataError) as refusal:
        Codebook.from_toml("".join(map(entry.format, "abcdefg")), source="book.toml", folder=tmp_path)
    (problem,) = refusal.value.problems
    assert problem.where == 'book.toml variables "a", "b", "c", "d", "e" and 2 more typ'
    assert problem.what == "there is no setting called 'typ'"


def test_all_mistakes_are_told_at_once_with_file_and_key(tmp_path: Path) -> None:
    (tmp_path / "broken.hrc").write_text("A\n@B\n@B\n")
    text = """
    colour = "blue"
    [[variables]]
    name = "tenure"
    file = "households"
    type = "code"
    [[variables]]
    name = "age"
    file = "people"
    type = "integer"
    [[variables]]
    file = "persons"
    type = "text"
    [[hierarchies]]
    name = "h"
    variable = "tenure"
    hrc = "broken.hrc"
    [[hierarchies]]
    name = "g"
    levels = ["age", "place"]
    [link]
    hid = 3
    [[structural_zeros]]
    name = "z"
    file = "persons"
    when = { age = [1], sex = [1] }
    [[structural_zeros]]
    name = "y"
    file = "households"
    when = { tenure = ["B"] }
    """
    with pytest.raises(DataError) as refusal:
        Codebook.from_toml(text, source="book.toml", folder=tmp_path)
    assert [(p.where.replace(str(tmp_path), "."), p.what) for p in refusal.value.problems] == [
        ("book.toml colour", "there is no setting called 'colour'"),
        ("book.toml [link] hid", "3 is not text"),
        ('book.toml variables "age" file', "'people': input should be 'households' or 'persons'"),
        ("book.toml variables entry 3 name", "'name' is missing"),
        # That "tenure" now has no codes, and that B is none of them, follows from this.
        ("book.toml ./broken.hrc line 3", "code B is already on line 2"),
        ('book.toml hierarchies "g" levels', 'there is no variable "place"'),
        # "age" is declared, though wrongly, and so is not told a second time.
        ('book.toml structural_zeros "z" sex', 'there is no variable "sex" for persons'),
    ]


def test_a_codebook_made_in_python_is_checked_as_well() -> None:
    age = Variable(name="age", file="persons", type="integer", min=5, max=3)
    with pytest.raises(DataError, match="the minimum 5 is above the maximum 3"):
        Codebook(variables=(age,))


@pytest.mark.parametrize("content", [b"\xff\xfe[\x00", b"caf\xe9 = 1"])
def test_a_codebook_that_is_not_utf8_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "codebook.toml").write_bytes(content)
    with pytest.raises(DataError, match="this is not UTF-8"):
        Codebook.read(tmp_path / "codebook.toml")


def test_a_codebook_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot read the codebook: No such file"):
        Codebook.read(tmp_path / "codebook.toml")


PIECES = st.sampled_from([*WHOLE.split("\n"), "[", "]]", "codes = 3", "levels = []", "when = {}", "name = ''", "="])


@MANY
@given(st.lists(PIECES, max_size=30))
def test_shuffled_lines_of_a_codebook_give_a_codebook_or_problems(lines: list[str]) -> None:
    with suppress(StirredError):
        Codebook.from_toml("\n".join(lines))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
KEYS = ["codebook", "variables", "hierarchies", "link", "structural_zeros"]
INNER = ["name", "file", "type", "codes", "min", "levels", "variable", "hrc", "hid", "id", "when", "title"]
GUESSES = VALUES | st.sampled_from([*FILES, *get_args(Type), "tenure"])
ENTRIES = st.dictionaries(st.sampled_from(INNER), GUESSES, max_size=6)


@MANY
@given(st.dictionaries(st.sampled_from(KEYS), ENTRIES | st.lists(ENTRIES, max_size=3) | VALUES, max_size=5))
def test_any_content_gives_a_codebook_or_problems(content: dict[str, object]) -> None:
    from stirred.data.codebook_file import _Reader

    reader = _Reader(content, source="book", folder=Path("nowhere"))
    assert (reader.codebook() is None) == bool(reader.problems)


@MANY
@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda raw: raw.decode("latin-1")))
def test_any_text_gives_a_codebook_or_problems(text: str) -> None:
    with pytest.raises(StirredError):
        Codebook.from_toml(text)


# --- writing --------------------------------------------------------------------------------------------

NAMES = st.text(min_size=1, max_size=8)


@st.composite
def codebooks(draw: st.DrawFn) -> Codebook:
    names = draw(st.lists(NAMES, min_size=2, max_size=6, unique=True))
    variables = tuple(draw(variable(name)) for name in names)
    homes = [v.name for v in variables if v.file == "households"]
    hierarchies = [Hierarchy(name="h", levels=tuple(homes), geographic=draw(st.booleans()))] if len(homes) > 1 else []
    zeros = []
    for v in variables:
        if v.type == "code":
            when = {v.name: tuple(draw(st.lists(st.sampled_from(list(v.codes)), min_size=1, max_size=30)))}
            zeros.append(StructuralZero(name=draw(NAMES), file=v.file, when=when))
    return Codebook(
        title=draw(st.text(max_size=9)),
        variables=variables,
        hierarchies=tuple(hierarchies),
        hid=draw(st.none() | NAMES),
        id=tuple(draw(st.lists(NAMES, max_size=2))),
        structural_zeros=tuple(zeros),
    )


@st.composite
def variable(draw: st.DrawFn, name: str) -> Variable:
    kind = draw(st.sampled_from(get_args(Type)))
    codes = draw(st.dictionaries(st.text(max_size=5), st.text(max_size=12), min_size=1, max_size=20))
    low, high = sorted(draw(st.tuples(st.integers(-(2**40), 2**40), st.integers(-(2**40), 2**40))))
    is_integer = kind == "integer"
    return Variable(
        name=name,
        file=draw(st.sampled_from(FILES)),
        type=kind,
        label=draw(st.text(max_size=9)),
        codes=codes if kind == "code" else {},
        min=draw(st.none() | st.just(low)) if is_integer else None,
        max=draw(st.none() | st.just(high)) if is_integer else None,
        missing=draw(st.booleans()),
    )


@MANY
@given(codebooks())
def test_a_codebook_that_is_written_is_read_back_the_same(codebook: Codebook) -> None:
    assert Codebook.from_toml(as_toml(codebook)) == codebook


def test_a_codebook_with_a_hierarchy_file_is_read_back_the_same(folder: Path) -> None:
    codebook = Codebook.read(folder / "codebook.toml")
    assert Codebook.from_toml(as_toml(codebook), folder=folder) == codebook
    assert codebook.trees == (
        CodeHierarchy(name="region", variable="region", hrc="region.hrc", tree=read_hrc(folder / "region.hrc")),
    )


# --- hierarchy files ------------------------------------------------------------------------------------

TREE = CodeTree(parents={"A": None, "a1": "A", "a11": "a1", "a2": "A", "B": None})


@pytest.mark.parametrize(
    "text",
    [
        "A\n@a1\n@@a11\n@a2\nB\n",
        "A\n@ a1\n@@ a11  \n@a2\n\nB\n\n",
        "A\r\n@a1\r\n@@a11\r\n@a2\r\nB\r\n",
        "A\n a1\n  a11\n a2\nB",
        "A\n    a1\n        a11\n    a2\nB",
        "A\n\ta1\n\t\ta11\n\ta2\nB",
        "@A\n@@a1\n@@@a11\n@@a2\n@B",
    ],
    ids=["at signs", "spaces around", "windows", "one space", "four spaces", "tabs", "from depth one"],
)
def test_depth_is_read_from_signs_or_spaces(text: str) -> None:
    assert parse_hrc(text) == TREE


def test_a_tree_knows_its_leaves_and_levels() -> None:
    assert TREE.leaves == ("a11", "a2", "B")
    assert TREE.levels == (("A", "B"), ("a1", "a2"), ("a11",))


def test_a_hierarchy_file_in_another_encoding_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.hrc").write_bytes(b"Sa\xf4ne\n")
    with pytest.raises(DataError, match="this is not UTF-8"):
        read_hrc(tmp_path / "x.hrc")


@MANY
@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from("abcdef")), max_size=8))
def test_any_indented_lines_give_a_tree_or_problems(lines: list[tuple[int, str]]) -> None:
    text = "\n".join("@" * depth + code for depth, code in lines)
    try:
        tree = parse_hrc(text)
    except DataError:
        return
    assert set(tree.leaves) <= set(tree.parents) == {code for _, code in lines}
    assert sum(map(len, tree.levels)) == len(lines)
