"""Messages about plans and codebooks name the cause, and what they advise works."""

from __future__ import annotations

from pathlib import Path

import pytest

from stirred.cli.main import run
from stirred.data.sources import Source, unreadable_because

HOMES = "hid,region,size,spent\n" + "".join(f"{n},{n % 4},{n % 3},{1000 + n * 7 % 93}\n" for n in range(120))
PLAN = """
[data]
households = "homes.csv"
id = ["hid"]

[mechanism]
match = ["size"]
swap = ["region"]
rate = "1/4"

[release]
out = "out"
"""
TABLES = """
[data]
file = "homes.csv"
codebook = "codebook.toml"

[mechanism]
name = "noisy-tables"
rho = 1
settings_from = "policy"

[[mechanism.sums]]
column = "spent"
by = ["region"]
low = 0
high = 2000

[release]
out = "out"
"""
COUNTS = """
[data]
counts = "counts.csv"
count = "n"

[mechanism]
match = ["size"]
swap = ["region"]
rate = "1/4"

[release]
out = "out"
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "homes.csv").write_text(HOMES)
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 2, plan: str = "") -> str:
    """Run a command; return what it says, in one line."""
    if plan:
        Path("p.toml").write_text(plan)
    capsys.readouterr()
    assert run([*arguments]) == code, capsys.readouterr()
    shown = capsys.readouterr()
    return " ".join((shown.out + shown.err).split())


def test_a_cell_that_stands_twice_in_a_table_of_counts_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("counts.csv").write_text("region,size,n\na,1,4\na,2,5\nb,1,3\na,1,2\n")
    shown = said(capsys, "plan", "p.toml", plan=COUNTS)
    assert "counts.csv: cells of the table stand in it more than once (2 rows: 1, 4). Fix: give each" in shown


def test_a_codebook_that_declares_the_count_column_is_told_so(capsys: pytest.CaptureFixture[str]) -> None:
    Path("counts.csv").write_text("region,size,age,n\na,1,x,4\na,2,y,5\nb,1,z,3\n")
    said(capsys, "codebook", "init", "counts.csv", "--out", "codebook.toml", code=0)
    plan = COUNTS.replace('count = "n"', 'count = "n"\ncodebook = "codebook.toml"')
    shown = said(capsys, "plan", "p.toml", plan=plan)
    assert shown == (
        'codebook.toml: "n" is the count column of the table, and not a variable. Fix: remove it from the codebook.'
    )


def test_no_message_advises_to_remove_the_confidential_file(capsys: pytest.CaptureFixture[str]) -> None:
    on_itself = PLAN.replace('out = "out"', 'out = "homes.csv"')
    asked = ["swap", "homes.csv", "--match", "size", "--swap", "region", "--rate", "1/4", "--id", "hid"]
    for shown in (
        said(capsys, "release", "p.toml", plan=on_itself),
        said(capsys, *asked, "--out", "homes.csv"),
    ):
        assert shown == "homes.csv: this is a file that the release reads. Fix: choose a new folder."
    assert Path("homes.csv").read_text() == HOMES
    Path("out").mkdir()
    assert "remove" not in said(capsys, "release", "p.toml", plan=PLAN)


def test_an_empty_name_of_the_bundle_is_called_empty(capsys: pytest.CaptureFixture[str]) -> None:
    shown = said(capsys, "release", "p.toml", plan=PLAN.replace('out = "out"', 'out = ""'))
    assert shown == "p.toml [release] out: it is empty. Fix: name a folder that does not exist yet."


def test_a_column_that_is_declared_an_identifier_is_called_that(capsys: pytest.CaptureFixture[str]) -> None:
    book = '[codebook]\ntitle = "homes"\n[[variables]]\nname = "spent"\nfile = "households"\ntype = "id"\n'
    for name, codes in (("region", 4), ("size", 3)):
        own = ", ".join(f'"{code}" = "{code}"' for code in range(codes))
        book += f'[[variables]]\nname = "{name}"\nfile = "households"\ntype = "code"\ncodes = {{ {own} }}\n'
    Path("codebook.toml").write_text(book + '[link]\nid = ["hid"]\n')
    shown = said(capsys, "plan", "p.toml", plan=TABLES)
    assert '"spent" is declared an identifier. Fix: if it is not, take it out of id under [data]' in shown
    assert "type id in the codebook" in shown


def test_a_draft_declares_decimal_commas(capsys: pytest.CaptureFixture[str]) -> None:
    Path("k.csv").write_text("nr;size;paid\n" + "".join(f"{n};{n % 3};{n % 90},{n % 7}5\n" for n in range(200)))
    said(capsys, "codebook", "init", "k.csv", "--out", "codebook.toml", code=0)
    assert 'decimal = ","' in Path("codebook.toml").read_text()
    said(capsys, "codebook", "check", "k.csv", "--codebook", "codebook.toml", code=0)
    said(capsys, "codebook", "init", "homes.csv", "--out", "plain.toml", code=0)
    assert "decimal" not in Path("plain.toml").read_text()


def test_a_proposal_with_a_doubt_that_refuses_ends_as_a_plan_does(capsys: pytest.CaptureFixture[str]) -> None:
    rows = "".join(f"{n},{n % 4},{n % 3},{'wxyz'[n % 4]}\n" for n in range(120))
    Path("homes.csv").write_text("hid,region,size,land\n" + rows)  # land tells the region
    asked = ["advise", "homes.csv", "--id", "hid", "--swap", "region", "--exact", "region x size"]
    shown = said(capsys, *asked)
    assert "doubt tells:land (refuses the release)" in shown
    assert "or accept it: --accept tells:land" in shown
    shown = said(capsys, *asked, "--accept", "tells:land", code=0)
    assert "doubt tells:land (accepted)" in shown


def test_a_bundle_that_is_added_to_a_ledger_keeps_the_name_of_its_mechanism(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said(capsys, "release", "p.toml", "--quiet", code=0, plan=PLAN)
    assert not Path("out/public/tables").exists()  # nothing is in it
    said(capsys, "ledger", "init", "l.db", "--dataset", "homes", code=0)
    said(capsys, "ledger", "add", "l.db", "out", code=0)
    assert "permutation-swap" in said(capsys, "ledger", "show", "l.db", code=0)


def test_defaults_are_printed_as_they_are_written(capsys: pytest.CaptureFixture[str]) -> None:
    shown = said(capsys, "mechanism", "show", "safetab-p", code=0)
    assert "default synthetic;" in shown
    assert "default race1, race2," in shown


DAYS = "hid,region,size,born,name,land\n" + "".join(
    f"{n},{n % 4},{n % 3},{1930 + n % 90}-01-0{1 + n % 9},{'abc'[n % 3]},{'xy'[n % 2]}00\n" for n in range(120)
)


def step(text: str) -> str:
    return PLAN.replace("[mechanism]", f"[[prepare]]\n{text}\n[mechanism]")


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ("", 'add a line [data], and below it households = "households.csv"'),
        (PLAN.replace("[mechanism]", 'decimal = "komma"\n[mechanism]'), "[data] decimal: 'komma': input should be '.'"),
        (step('step = "band"\ncolumn = "born"\nwidth = 10'), "days are put into bands by breaks = [1950-01-01,"),
        (step('step = "band"\ncolumn = "size"\nwidth = 10\nbreaks = [1]'), "give width or breaks, not both"),
        (step('step = "date"\ncolumn = "born"\nto = "age"\non = 1990-01-01'), "name a day on which all were born"),
        (step('step = "first"\ncolumn = "land"\nk = 3'), "write how many, such as characters = 3"),
        (step('step = "top-code"\ncolumn = "born"\nat = 1990-01-01'), "step = 'band', breaks = [1950-01-01,"),
        (step('step = "top-code"\ncolumn = "size"\nq = 0.99'), "a cap at a quantile is computed from the file"),
        (
            step('step = "recode"\ncolumn = "size"\nmap = ["a"]'),
            "['a'] is not a table. Fix: write a table, such as map",
        ),
        (step('step = "first"\ncolumn = "size"\ncharacters = "3"'), "write a whole number, such as characters = 3"),
        (PLAN.replace('["size"]', "3"), 'match: 3 is not a list. Fix: write a list, such as match = ["3"]'),
        (PLAN.replace("rate =", 'rate = "1/2"\nrate ='), "the same key or section stands twice: leave one out"),
        (PLAN.replace("swap =", "swop ="), 'did you mean \'swap\'? It takes "match", "swap", "hold", "rate"'),
        (PLAN.replace("rate =", 'name = "recordSwap"\nrate ='), 'Fix: the mechanism "targeted-record-swap" does it.'),
        (
            TABLES.replace('codebook = "codebook.toml"', "").replace("spent", "name"),
            "give each text a number by a step",
        ),
    ],
)
def test_a_plan_that_is_wrong_is_answered_with_what_works(
    plan: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("homes.csv").write_text(DAYS)
    Path("p.toml").write_text(plan)
    assert words in said(capsys, "plan", "p.toml")


def test_a_step_that_fails_is_not_followed_by_what_it_would_have_made(capsys: pytest.CaptureFixture[str]) -> None:
    plan = step('step = "count"\ncolumn = "n"').replace('match = ["size"]', 'match = ["n"]')
    shown = said(capsys, "plan", "p.toml", plan=plan)
    assert "there are no persons to count" in shown
    assert "no column" not in shown


def test_a_plan_in_another_encoding_is_to_be_saved_as_utf8(capsys: pytest.CaptureFixture[str]) -> None:
    Path("p.toml").write_bytes(f"# größe\n{PLAN}".encode("latin-1"))
    assert said(capsys, "plan", "p.toml") == "p.toml: cannot read the plan: it is not UTF-8. Fix: save it as UTF-8."


def test_a_missing_text_of_a_match_variable_is_answered_with_both_steps(capsys: pytest.CaptureFixture[str]) -> None:
    Path("homes.csv").write_text(HOMES.replace("\n7,3,", "\n7,NaN,"))
    shown = said(capsys, "plan", "p.toml", plan=PLAN)
    assert (
        'missing = ["NaN"] under [data], and for a match or swap variable missing_as = "code" under [data], too'
        in shown
    )
    both = PLAN.replace("[mechanism]", 'missing = ["NaN"]\nmissing_as = "code"\n[mechanism]')
    said(capsys, "plan", "p.toml", code=0, plan=both)


@pytest.mark.parametrize(
    ("name", "content", "separator", "words"),
    [
        ("gz.csv", b"\x1f\x8b\x08\x00abc", "", "this is a gzip file and not CSV. Fix: name it .csv.gz."),
        ("zip.csv", b"PK\x03\x04abc", "", "this is a zip archive and not CSV. Fix: unpack it."),
        ("k.csv", b"a;b\n1;2,5\n", ",", "line 1 has no ',': declare the separator of the file"),
    ],
)
def test_a_file_of_another_kind_is_named(
    name: str, content: bytes, separator: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(name).write_bytes(content)
    plan = PLAN.replace("homes.csv", name)
    plan = plan.replace("[mechanism]", f'separator = "{separator}"\n[mechanism]') if separator else plan
    assert words in said(capsys, "plan", "p.toml", plan=plan)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["pram", "homes.csv"], "stirred: 'pram' is not in stirred. Fix: sdcMicro does it: pram()."),
        (["relase", "p.toml"], "No such command 'relase'"),
        (["ledger", "init", "l.db", "--dataset", "x", "--policy", "homes.csv"], "or name a policy such as docs/ledger"),
        (
            ["survey", "amplify", "--design", "srswor", "--n", "abc", "--N", "1000", "--epsilon", "1"],
            "--n: abc is not a whole number. Fix: write a whole number, 1 or more.",
        ),
    ],
)
def test_a_command_that_is_wrong_is_answered_with_what_works(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert words in said(capsys, *arguments)


def test_a_setting_of_a_policy_in_another_section_is_sent_to_the_top(capsys: pytest.CaptureFixture[str]) -> None:
    Path("policy.toml").write_text('[invariants]\nacceptable = "any"\nexposed_share = "1/10"\n')
    shown = said(capsys, "ledger", "init", "l.db", "--dataset", "x", "--policy", "policy.toml")
    assert "Fix: write it at the top of the file, above the first line in brackets." in shown


def test_a_file_that_may_not_be_read_says_so() -> None:
    error = unreadable_because(Source.of(Path("homes.csv")), PermissionError(13, "Permission denied"))
    assert str(error) == "homes.csv: you may not read it. Fix: ask its owner for the right to read it."


def test_codes_of_a_codebook_in_a_list_are_answered_with_how_a_table_is_written(
    capsys: pytest.CaptureFixture[str],
) -> None:
    book = '[codebook]\ntitle = "x"\n[[variables]]\nname = "size"\nfile = "households"\ntype = "code"\ncodes = ["0"]\n'
    Path("codebook.toml").write_text(book)
    shown = said(capsys, "codebook", "check", "homes.csv", "--codebook", "codebook.toml")
    assert "['0'] is not a table. Fix: write a table, such as codes = { a = \"b\" }." in shown
