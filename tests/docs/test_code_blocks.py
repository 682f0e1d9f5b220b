"""Every code block a reader can see does what its page says."""

from pathlib import Path

import pytest

from tests.docs.code_blocks import BlockError, makefile_targets, matches, read_blocks, run_blocks

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path for glob in ("README.md", "CONTRIBUTING.md", "docs/**/*.md", "examples/**/*.md") for path in ROOT.glob(glob)
)
TARGETS = {"setup", "test", "demo"}


@pytest.mark.parametrize("page", PAGES, ids=[path.relative_to(ROOT).as_posix() for path in PAGES])
def test_every_code_block_of_the_page_runs(page: Path, tmp_path: Path) -> None:
    blocks = read_blocks(page.read_text(encoding="utf-8"), page=page.relative_to(ROOT).as_posix())
    run_blocks(blocks, folder=tmp_path, targets=makefile_targets((ROOT / "Makefile").read_text()))


def run(markdown: str, folder: Path) -> None:
    run_blocks(read_blocks(markdown, page="page.md"), folder=folder, targets=TARGETS)


def fenced(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```\n"


PASSES = {
    "python shares one namespace": fenced("python", "a = 1") + fenced("python", "assert a == 1"),
    "python is run where files are saved": "<!-- test: file a/b.toml -->\n"
    + fenced("toml", "x = 1")
    + fenced("python", "from pathlib import Path\nassert Path('a/b.toml').read_text() == 'x = 1\\n'"),
    "a doctest sees earlier names": fenced("python", "a = 1") + fenced("python", ">>> a + 1\n2"),
    "pycon is a doctest": fenced("pycon", ">>> [1,\n...  2]\n[1, 2]"),
    "console output is compared": fenced("console", "$ python -c 'print(1)'\n1\n$ python -c 'print(2)'\n2"),
    "console output may be left out": fenced("console", "$ python -c 'print(1)'"),
    "console output may be abridged": fenced("console", "$ python -c 'for i in range(9): print(i)'\n0\n...\n8"),
    "console shows both streams in order": fenced(
        "console", "$ python -c 'import sys; print(1); print(2, file=sys.stderr); print(3)'\n1\n2\n3"
    ),
    "console commands may continue": fenced("console", "$ python -c \\\n>   'print(1)'\n1"),
    "a failure that is announced": "<!-- test: exit 2 -->\n"
    + fenced("console", "$ python -c 'import sys; print(1); sys.exit(2)'\n1"),
    "a comment and an empty line may precede": "<!-- test: exit 2 -->\n\n"
    + fenced("bash", "python -c 'print(1)'\npython -c 'raise SystemExit(2)'"),
    "bash comments and preparation are not run": fenced("bash", "# first\ngit clone x\ncd x\nmake setup\nmake"),
    "bash commands may continue": fenced("bash", "python -c \\\n  'print(1)'"),
    "the environment's own programs": fenced("bash", ".venv/bin/python -c 'import stirred'"),
    "the installed command in a shell": fenced("console", "$ stirred --version | cat\nstirred ..."),
    "toml": fenced("toml", "[a]\nb = 1"),
    "json": fenced("json", '{"a": 1}'),
    "shown only": fenced("text", "anything")
    + fenced("latex", r"\epsilon")
    + fenced("mermaid", "graph")
    + fenced("csv", "a,b"),
    "directives": fenced("{toctree}", ":glob:\n*"),
    "indented in a list": "- a\n\n  ```python\n  if True:\n      a = 1\n  ```\n",
}

FAILS = {
    "wrong output": (
        fenced("console", "$ python -c 'print(1)'\n2"),
        r"page\.md:2: .*does not print\n2\nIt prints\n1",
    ),
    "missing output": (fenced("console", "$ python -c 'print(1)'\n1\n2"), "does not print"),
    "output beyond the shown": (fenced("console", "$ python -c 'print(1);print(2)'\n1"), "does not print"),
    "failing command": (fenced("console", "$ python -c 'raise SystemExit(3)'"), "ends with 3, not 0"),
    "failing pipe": (fenced("bash", "python -c 'raise SystemExit(3)' | cat"), "ends with 3, not 0"),
    "failing bash line before the last": (
        fenced("bash", "python -c 'raise SystemExit(3)'\npython -c ''"),
        "ends with 3, not 0",
    ),
    "success where failure is announced": (
        "<!-- test: exit 2 -->\n" + fenced("bash", "python -c ''"),
        "ends with 0, not 2",
    ),
    "failing python": (
        "\n\n" + fenced("python", "a = 1\n1 / 0"),
        r"(?s)page\.md:4: .*line 5.*ZeroDivisionError",
    ),
    "python that exits": (fenced("python", "raise SystemExit(0)"), "this Python fails"),
    "python that does not parse": (fenced("python", "a = ="), "SyntaxError"),
    "wrong doctest": (fenced("python", ">>> 1 + 1\n3"), r"(?s)Expected:\s+3\s+Got:\s+2"),
    "unknown language": (fenced("ruby", "puts 1"), "blocks in 'ruby' are not run"),
    "no language": (fenced("", "$ stirred"), "a block without a language"),
    "unknown directive": (fenced("{code-block} python", "1 / 0"), "are not run"),
    "python inside a directive": ("````{note}\n" + fenced("python", "1 / 0") + "````\n", r"page\.md:3: .*"),
    "unknown command": (fenced("bash", "rm -r x"), "`rm -r x` is not run"),
    "unknown console command": (fenced("console", "$ curl x"), "`curl x` is not run"),
    "console without a command": (fenced("console", "stirred --help"), "opens with a line"),
    "empty bash": (fenced("bash", "# nothing"), "holds no command"),
    "unknown target": (fenced("bash", "make tea"), "no target tea. It has demo, setup, test"),
    "bad toml": (fenced("toml", "a ="), "this is not toml"),
    "bad json": (fenced("json", "{a}"), "this is not json"),
    "unknown steering": ("<!-- test: skip -->\n" + fenced("python", "1"), "is not understood"),
    "file outside the folder": ("<!-- test: file ../x -->\n" + fenced("text", "1"), "is not understood"),
    "saved python": ("<!-- test: file x.py -->\n" + fenced("python", "1"), "belongs above"),
    "exit of python": ("<!-- test: exit 2 -->\n" + fenced("python", "1"), "belongs above"),
    "steering that drifted": ("<!-- test: exit 2 -->\nprose\n" + fenced("bash", "make"), "directly above"),
    "steering without a block": ("<!-- test: exit 2 -->\n", "steers no block"),
    "open fence": ("```python\n1\n", "never closed"),
}


@pytest.mark.parametrize("markdown", PASSES.values(), ids=PASSES.keys())
def test_a_page_that_holds_passes(markdown: str, tmp_path: Path) -> None:
    run(markdown, tmp_path)


@pytest.mark.parametrize(("markdown", "message"), FAILS.values(), ids=FAILS.keys())
def test_a_page_that_does_not_hold_fails(markdown: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(BlockError, match=message):
        run(markdown, tmp_path)


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        ("a", "a  \n\n", True),
        ("a\n...", "a\n", True),
        ("a\n...\nb", "a\nb", True),
        ("...\nb", "x\ny\nb", True),
        ("a ... c", "a b c", True),
        ("a ... c", "a\nc", False),
        ("a\n\nb", "a\nb", False),
        ("  a", "a", False),
        ("x\n  a", "x\na", False),
        (".*", "a", False),
    ],
)
def test_ellipses_stand_for_what_they_say(expected: str, printed: str, same: bool) -> None:
    assert matches(expected, printed) is same


def test_makefile_targets_leave_out_variables_and_recipes() -> None:
    assert makefile_targets("A := 1\nbin := x\n.PHONY: a\na: b ## text\n\techo c: d\nb-c:\n") == {"a", "b-c"}
