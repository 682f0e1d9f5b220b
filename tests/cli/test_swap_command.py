"""`stirred swap`, `plan` and `release` as a user runs them: exit codes, streams, JSON, and nothing random in a plan."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from stirred import Entropy
from stirred.cli.main import run
from stirred.spec.document import from_document, from_json
from tests.world import CODEBOOK_OF_HOMES, households, in_own_process, listing, persons, stirred

SWAP = ["--match", "size", "--swap", "county", "--rate", "1/2", "--id", "hid"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    homes = households()
    homes.write_parquet(tmp_path / "homes.parquet")
    persons(homes).write_parquet(tmp_path / "people.parquet")
    (tmp_path / "plan.toml").write_text(
        '[data]\nhouseholds = "homes.parquet"\nhid = "hid"\n'
        '[mechanism]\nmatch = "size"\nswap = "county"\nrate = "1/2"\n[release]\nout = "out"\n',
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


# ---- streams --------------------------------------------------------------------------------------


def test_progress_goes_to_stderr_and_results_to_stdout(folder: Path) -> None:
    done = in_own_process("swap", "homes.parquet", *SWAP, "--out", "out", cwd=folder)
    assert done.returncode == 0, done.stderr
    stages = [line.removesuffix(" ...") for line in done.stderr.splitlines()]
    assert {"swapping", "writing", "checking", "reporting", "done"} <= set(stages)
    assert len(stages) == len(set(stages)), "a stage is announced twice"
    for stage in ("swapping", "writing", "checking"):
        assert f"{stage} ..." not in done.stdout
    assert re.search(r"^bundle +out$", done.stdout, flags=re.MULTILINE)
    assert re.search(r"^report +out/public/report.html$", done.stdout, flags=re.MULTILINE)


def test_the_five_answers_are_printed_with_the_loss(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A loss is never shown without its four companions."""
    for command in (["swap", "homes.parquet", *SWAP, "--out", "out", "--quiet"], ["plan", "homes.parquet", *SWAP]):
        assert run(command) == 0
        out = capsys.readouterr().out
        sentence = re.search(r"promise +(ε=.*?)\.\n", out, flags=re.DOTALL)
        assert sentence is not None
        for question in ("who", "where", "what", "how", "how much"):
            assert sentence[1].count(f"({question})") == 1
        assert "the number of households by size x county, and by size x tenure" in out
    assert run(["plan", "homes.parquet", *SWAP, "--verbose"]) == 0
    out = capsys.readouterr().out
    for question in ("who", "where", "what", "how", "how much"):
        assert re.search(rf"^{question}  ", out, flags=re.MULTILINE)
    assert "- the number of households by size x county\n" in out
    assert "- the number of households by size x tenure" in out


@pytest.mark.parametrize("options", [["--quiet"], ["--json"], ["--quiet", "--json"]])
def test_quiet_and_json_leave_stderr_empty(options: list[str], folder: Path) -> None:
    done = stirred("swap", "homes.parquet", *SWAP, "--out", "out", *options, cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")


def test_on_a_terminal_there_is_a_bar(folder: Path) -> None:
    """The same command with a terminal for its stderr; its stdout stays clean."""
    import pty

    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "stirred", "swap", "homes.parquet", *SWAP, "--out", "out"],
        cwd=folder, stdout=subprocess.PIPE, stderr=theirs, text=True,
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:
            break
        if not part:
            break
        shown += part
    out, _ = process.communicate(timeout=300)
    os.close(ours)
    assert process.returncode == 0
    assert b"\x1b[" in shown
    assert b"checking" in shown
    assert "\x1b" not in out


# ---- JSON -----------------------------------------------------------------------------------------

NUMBERS = {
    "epsilon",
    "epsilon_exact",
    "records",
    "strata",
    "live_strata",
    "largest_live_stratum",
    "expected_share_moved",
}


def test_json_of_a_release_has_the_promised_keys(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["swap", "homes.parquet", *SWAP, "--out", "out", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert set(facts) >= NUMBERS | {"bundle", "report", "specification", "notation", "seeded"}
    assert Path(facts["report"]).exists()
    assert from_json(Path(facts["specification"]).read_text()).notation == facts["notation"]
    assert (facts["epsilon_exact"], facts["records"], facts["largest_live_stratum"]) == (
        "1/2*ln(895014631192902121/2355301661033953)",
        60,
        20,
    )
    assert facts["epsilon"] >= 2.970085626360216  # rounded up, never down
    assert facts["paper_epsilon_exact"] == "ln(21)"
    assert facts["seeded"] is False


def test_json_of_a_seeded_release_says_so_and_hides_the_seed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["swap", "homes.parquet", *SWAP, "--out", "out", "--json", "--seed", "mellon"]) == 0
    out = capsys.readouterr().out
    assert json.loads(out)["seeded"] is True
    assert "mellon" not in out


def test_json_of_a_plan_has_the_promised_keys(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "homes.parquet", *SWAP, "--epsilon", "4", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert set(facts) >= NUMBERS | {"specification", "largest_strata", "epsilon_by_rate", "dropped", "target_rates"}
    assert from_document(facts["specification"]).budget.shown == "2.98"
    assert facts["largest_strata"][0] == {
        "match": {"size": "1"},
        "records": 20,
        "live": True,
        "rate": "1/2",
        "expected_share_moved": pytest.approx(0.5, abs=1e-4),
    }
    assert [row["rate"] for row in facts["epsilon_by_rate"]] == ["1/100", "1/20", "1/10", "1/5", "1/2"]


def test_an_infinite_loss_is_the_word_inf_in_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "homes.parquet", *SWAP[:5], "1", "--id", "hid", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["paper_epsilon"], facts["paper_epsilon_exact"]) == ("inf", "inf")
    assert run(["plan", "homes.parquet", *SWAP[:5], "0", "--id", "hid", "--json"]) == 2
    facts = json.loads(capsys.readouterr().out)
    assert [doubt["name"] for doubt in facts["doubts"]] == ["nothing-moves"]
    assert (facts["epsilon"], facts["epsilon_exact"]) == ("inf", "inf")


# ---- plan -----------------------------------------------------------------------------------------


def plans() -> list[list[str]]:
    return [
        ["plan", "homes.parquet", *SWAP],
        ["plan", "plan.toml"],
    ]


@pytest.mark.parametrize("command", plans(), ids=lambda words: " ".join(words[:2] + words[-1:]))
@pytest.mark.parametrize("json_too", [False, True], ids=["text", "json"])
def test_a_plan_writes_nothing_and_uses_no_randomness(
    command: list[str],
    json_too: bool,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a plan asked for randomness")

    monkeypatch.setattr(Entropy, "from_os", refuse)
    monkeypatch.setattr(Entropy, "from_seed", refuse)
    before = listing(folder)
    assert run([*command, *(["--json"] if json_too else [])]) == 0
    assert listing(folder) == before
    if not json_too:
        assert "Nothing random has happened and nothing was written." in capsys.readouterr().out


def test_a_plan_by_options_says_what_a_plan_file_says(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for command in plans():
        assert run([*command, "--json"]) == 0
        texts.append(json.loads(capsys.readouterr().out))
    assert all(text == texts[0] for text in texts)


def test_a_release_without_a_ledger_says_that_nobody_accounts_for_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["swap", "homes.parquet", *SWAP, "--out", "alone", "--quiet"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "ledger none: no ledger records this release (--ledger, or ledger under [release] in a plan)" in said
    assert run(["ledger", "init", "homes.ledger", "--dataset", "homes"]) == 0
    assert run(["swap", "homes.parquet", *SWAP, "--out", "kept", "--ledger", "homes.ledger", "--quiet"]) == 0
    out = capsys.readouterr().out
    assert "no ledger records" not in out
    assert "\nledger     entry 1, committed" in out


@pytest.mark.parametrize(
    ("basis", "said"),
    [
        (
            [],
            "chosen the plan does not say what the settings are based on (--set settings_from=...); they must be fixed",
        ),
        (["--set", "settings_from=policy"], "chosen the settings, by policy"),
        (["--set", "settings_from=this-data"], "on THIS FILE: that voids the guarantee, and a release is refused"),
    ],
)
def test_a_plan_says_on_what_its_settings_rest(
    basis: list[str], said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", "homes.parquet", *SWAP, *basis, "--verbose"]) == (
        2 if "settings_from=this-data" in basis else 0
    )
    assert said in " ".join(capsys.readouterr().out.split())


def test_a_plan_shows_strata_loss_against_rate_and_share_moved(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", "homes.parquet", *SWAP, "--verbose"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "strata 3, of which 3 have something to swap" in out
    assert "largest 20 records (size = 1)" in out
    assert "moved 50.0" in out
    assert "get another record's values, which may be the same" in out
    assert out.count("The paper's bound") == 1
    assert "1%: epsilon 7.57; 5%: epsilon 5.92; 10%: epsilon 5.17; 20%: epsilon 4.36; 50%: epsilon 2.98" in out


def test_both_rates_for_a_target_are_shown_and_reach_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Theorem 1 has two branches; both usable rates have a loss of at most the target."""
    assert run(["plan", "homes.parquet", *SWAP, "--epsilon", "2", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    low, high = facts["target_rates"]
    assert 0.5 < low < high < 1
    for rate in facts["usable_rates"]:
        assert run(["plan", "homes.parquet", *SWAP[:5], rate, "--id", "hid", "--json"]) == 0
        reached = json.loads(capsys.readouterr().out)["epsilon"]
        assert 1.999 < reached <= 2
    assert run(["plan", "homes.parquet", *SWAP, "--epsilon", "2"]) == 0
    assert "epsilon 2 is reached at rate" in capsys.readouterr().out


def test_a_target_that_no_rate_reaches_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "homes.parquet", *SWAP, "--epsilon", "1"]) == 2
    assert "no rate reaches epsilon 1" in capsys.readouterr().err


# ---- exit codes -----------------------------------------------------------------------------------


def test_an_interrupt_gives_130(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from stirred.mechanisms.records import evidence as verification

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(verification, "verify_swap", interrupt)
    before = listing(folder)
    assert run(["swap", "homes.parquet", *SWAP, "--out", "out", "--quiet"]) == 130
    assert capsys.readouterr().err == "Nothing was kept: run it again.\nInterrupted.\n"
    assert listing(folder) == before


def test_a_decimal_comma_is_understood_and_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "homes.parquet", *SWAP, "--rate", "0,05"]) == 2
    assert "did you mean 0.05?" in capsys.readouterr().err


def test_a_fault_of_ours_gives_1_and_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from stirred.mechanisms.records import evidence as verification

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("unexpected")

    monkeypatch.setattr(verification, "verify_swap", fail)
    monkeypatch.delenv("STIRRED_DEBUG", raising=False)
    assert run(["swap", "homes.parquet", *SWAP, "--out", "out", "--quiet"]) == 1
    err = capsys.readouterr().err
    assert "this is a fault in stirred, not in your input (RuntimeError: unexpected)" in err
    assert not (folder / "out").exists()


def test_errors_have_one_shape_in_json_for_every_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (
        ["swap", "nowhere.csv", *SWAP, "--out", "out", "--json"],
        ["plan", "nowhere.csv", *SWAP, "--json"],
        ["release", "nowhere.toml", "--json"],
        ["swap", "homes.parquet", "--rato", "--json"],
        ["synth", "massachusetts-1940", "--out", "plan.toml/x", "--json"],
    ):
        assert run(command) == 2
        out, err = capsys.readouterr()
        assert err == ""
        (error,) = json.loads(out)["errors"]
        assert set(error) == {"what", "where", "remedy"}


def test_variables_are_separated_by_commas_or_given_one_by_one(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = []
    for match in (["--match", "size, tenure"], ["--match", "size", "--match", "tenure"]):
        # The file is sorted by county and numbered in this order.
        accept = ["--accept", "identifier:hid", "--accept", "nearly-tells:hid"]
        assert run(["plan", "homes.parquet", *match, "--swap", "county", "--rate", "5%", *accept, "--json"]) == 0
        answers.append(capsys.readouterr().out)
    assert answers[0] == answers[1]


def test_persons_go_along_from_the_command_line(folder: Path) -> None:
    done = run(
        [
            "swap",
            "homes.parquet",
            *SWAP[:6],
            "--persons",
            "people.parquet",
            "--hid",
            "hid",
            "--id",
            "pid",
            "--out",
            "out",
            "--quiet",
        ]
    )
    assert done == 0
    assert (folder / "out" / "public" / "persons.parquet").exists()


def test_a_member_may_be_named_as_in_a_plan(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for name in ("permutation", "permutation-swap", "Permutation-Swap"):
        assert run(["plan", "homes.parquet", *SWAP, "--mechanism", name]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1] == shown[2]


def test_how_to_read_the_number_is_said_with_every_promise(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["plan", "plan.toml"], ["swap", "homes.parquet", *SWAP, "--out", "a"], ["release", "plan.toml"]):
        assert run(command) == 0
        out = " ".join(capsys.readouterr().out.split())
        assert "differ in 2 households, seeing the output changes the odds between them by a factor of at most" in out


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--mechanism", "conditioned"], "changed N of records are expected to get another value"),
        (
            [
                "--mechanism",
                "noisy",
                "--set",
                "noise_epsilon=1",
                "--table",
                "county,tenure",
                "--codebook",
                "codes.toml",
            ],
            "disturbed every cell of 1 table gets noise",
        ),
        (
            [
                "--mechanism",
                "response",
                "--set",
                "respond=tenure",
                "--set",
                "values=owned,rented",
                "--set",
                "change=1/10",
            ],
            "by the swap; the response changes each tenure with probability 10% besides",
        ),
    ],
)
def test_moved_and_changed_are_told_apart(
    folder: Path, options: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "codes.toml").write_text(CODEBOOK_OF_HOMES, encoding="utf-8")
    assert run(["plan", "homes.parquet", *SWAP, *options, "--verbose"]) == 0, capsys.readouterr().err
    assert line in re.sub(r"[\d.]+% of", "N of", " ".join(capsys.readouterr().out.split()))


def test_out_is_in_the_plan(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["release", "plan.toml", "--out", "there"]) == 2
    err = capsys.readouterr().err
    assert "--out: the plan file already says this. Fix: change it in the plan: [release] out" in err


# ---- what a newcomer gets wrong -------------------------------------------------------------------


def test_a_mistyped_link_is_named_and_no_fault_of_ours(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = listing(folder)
    files = ["homes.parquet", "--persons", "people.parquet", "--hid", "hidd"]
    assert run(["swap", *files, "--match", "size", "--swap", "county", "--rate", "1/2", "--out", "out"]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert 'there is no column "hidd" (named in hid)' in told
    assert 'did you mean "hid"?' in told
    assert listing(folder) == before


@pytest.mark.parametrize("rate", [["--rate", "5%"], []], ids=["with a rate", "without"])
@pytest.mark.parametrize("member", ["permutation", "shuffle"])
def test_a_loss_that_would_not_be_kept_is_refused_with_the_rate_that_keeps_it(
    rate: list[str], member: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = listing(folder)
    roles = ["homes.parquet", "--match", "size", "--swap", "county", "--id", "hid", "--mechanism", member]
    assert run(["swap", *roles, *rate, "--epsilon", "5", "--out", "out"]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert f"--epsilon: the {member} swap takes a rate, and its loss follows: 5 would not be kept" in told
    assert "`stirred plan homes.parquet ... --epsilon 5`" in told
    assert listing(folder) == before
    found = re.search(r"--rate ([0-9.]+)% is the lowest", told)
    assert found is not None
    losses = []
    for percent in (found[1], str(float(found[1]) - 0.02)):
        assert run(["plan", *roles, "--rate", f"{percent}%", "--json"]) == 0
        losses.append(json.loads(capsys.readouterr().out)["epsilon"])
    assert losses[0] <= 5 < losses[1]


def test_a_loss_that_no_rate_reaches_is_refused_all_the_same(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["swap", "homes.parquet", *SWAP, "--epsilon", "1", "--out", "out"]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "1 would not be kept" in told
    assert "is the lowest" not in told
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    ("option", "value"), [("--mechanism", "mallows"), ("--set", "fine_rate=1/2"), ("--codebook", "codes.toml")]
)
def test_no_option_beside_a_plan_is_left_without_effect(
    folder: Path, option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "codes.toml").write_text(CODEBOOK_OF_HOMES, encoding="utf-8")
    assert run(["plan", "plan.toml", option, value]) == 2
    assert f"{option}: the plan file already says this. Fix: change it in the plan" in capsys.readouterr().err
