"""Run the fenced code blocks of a Markdown page as its reader would.

All blocks of one page share a working folder, and its Python blocks share one namespace:

- ``python`` is executed; a block that opens with ``>>>`` is a doctest, as is ``pycon``;
- ``console`` holds ``$ command`` lines; output that follows a command is compared with what it prints;
- ``bash`` holds one command a line, each of which must succeed;
- ``toml`` and ``json`` must parse; ``text``, ``csv``, ``latex`` and ``mermaid`` are only shown.

Any other language fails, so that nothing is silently left unrun. In expected output a line ``...`` stands for
any number of lines, and ``...`` within a line for anything on it. Two comments directly above a block steer
it: ``<!-- test: exit 2 -->`` says with which code its last command ends, and
``<!-- test: file plan.toml -->`` saves the block under that name.
"""

import contextlib
import doctest
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

SHOWN = {"text", "csv", "latex", "mermaid"}
SAVED = {"toml", "json", "text", "csv"}
# MyST directives; fences inside them are blocks of the page like any other.
DIRECTIVES = {
    "toctree",
    "include",
    "note",
    "tip",
    "warning",
    "important",
    "admonition",
    "math",
    "figure",
    "commands",
    "eval-rst",
    "mermaid",
}

EXECUTED = {"stirred", "python"}
# Steps that prepare the reader's machine: shown, never run by a test.
PREPARATION = {"git", "cd", "pip", "source", "."}

TIMEOUT_SECONDS = 600
SCREEN = {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}


class BlockError(AssertionError):
    """A block of a page does not do what the page says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block; ``line`` is where its first line of text stands in ``page``."""

    page: str
    line: int
    language: str
    text: str
    exit_code: int | None = None
    file: str | None = None

    def error(self, what: str) -> BlockError:
        return BlockError(f"{self.page}:{self.line}: {what}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A shell command and the output its page shows, if any."""

    line: str
    expected: list[str] = field(default_factory=list)


# --- reading --------------------------------------------------------------------------------------------

_FENCE = re.compile(r"^(?P<indent>\s*)(?P<fence>`{3,}|~{3,})\s*(?P<info>[^`]*)$")
_STEER = re.compile(r"^\s*<!--\s*test:\s*(?P<verb>\S+)\s*(?P<value>.*?)\s*-->\s*$")


def read_blocks(markdown: str, *, page: str, first_line: int = 1) -> list[Block]:
    """Return the fenced blocks of a page in reading order, those inside directives included."""
    blocks: list[Block] = []
    steering: dict[str, Any] = {}
    lines = markdown.splitlines()
    at = 0
    while at < len(lines):
        here = first_line + at
        if steer := _STEER.match(lines[at]):
            steering |= _steering(steer["verb"], steer["value"], where=f"{page}:{here}")
        elif opening := _FENCE.match(lines[at]):
            end = _closing(lines, at, opening["fence"], where=f"{page}:{here}")
            indent = len(opening["indent"])
            text = "".join(line[min(indent, len(line) - len(line.lstrip())) :] + "\n" for line in lines[at + 1 : end])
            language = opening["info"].strip()
            blocks.append(Block(page=page, line=here + 1, language=language, text=text, **steering))
            if language.startswith("{"):
                blocks += read_blocks(text, page=page, first_line=here + 1)
            steering = {}
            at = end
        elif steering and lines[at].strip():
            raise BlockError(f"{page}:{here}: a `test:` comment must stand directly above the block it steers")
        at += 1
    if steering:
        raise BlockError(f"{page}: its last `test:` comment steers no block")
    return blocks


def _steering(verb: str, value: str, *, where: str) -> dict[str, Any]:
    if verb == "exit" and value.isdigit():
        return {"exit_code": int(value)}
    if verb == "file" and value and not Path(value).is_absolute() and ".." not in Path(value).parts:
        return {"file": value}
    raise BlockError(f"{where}: `test: {verb} {value}` is not understood. Write `exit CODE` or `file NAME`.")


def _closing(lines: list[str], opening: int, fence: str, *, where: str) -> int:
    closes = re.compile(rf"^\s*{re.escape(fence[0])}{{{len(fence)},}}\s*$")
    for at in range(opening + 1, len(lines)):
        if closes.match(lines[at]):
            return at
    raise BlockError(f"{where}: this fence is never closed")


def makefile_targets(makefile: str) -> set[str]:
    """Return the targets a Makefile defines.

    >>> sorted(makefile_targets("test: lint\\n\\tpytest\\nlint:\\n"))
    ['lint', 'test']
    """
    return set(re.findall(r"^([a-z][\w-]*):(?!=)", makefile, flags=re.MULTILINE))


# --- running --------------------------------------------------------------------------------------------


def run_blocks(blocks: list[Block], *, folder: Path, targets: set[str]) -> None:
    """Run the blocks of one page in ``folder``; ``targets`` are what ``make`` may be asked for."""
    namespace: dict[str, Any] = {"__name__": "__page__"}
    with contextlib.chdir(folder):
        for block in blocks:
            _run(block, namespace=namespace, targets=targets)


def _run(block: Block, *, namespace: dict[str, Any], targets: set[str]) -> None:
    if block.exit_code is not None and block.language not in {"bash", "console"}:
        raise block.error(f"`test: exit` belongs above a bash or console block, not above {block.language!r}")
    if block.file is not None:
        _save(block)
    match block.language:
        case "python" if not block.text.lstrip().startswith(">>>"):
            _run_python(block, namespace=namespace)
        case "python" | "pycon":
            _run_doctest(block, namespace=namespace)
        case "console":
            _run_commands(block, _console_commands(block), targets=targets)
        case "bash":
            _run_commands(block, _bash_commands(block), targets=targets)
        case "toml" | "json":
            _parse(block)
        case language if language in SHOWN or _directive(language) in DIRECTIVES:
            pass
        case "":
            raise block.error("a block without a language is not run. Name one; `text` if it is only shown.")
        case language:
            raise block.error(f"blocks in {language!r} are not run. Use python, bash, console, toml, json or text.")


def _directive(language: str) -> str | None:
    found = re.match(r"\{([\w-]+)\}", language)
    return found[1] if found else None


def _save(block: Block) -> None:
    if block.language not in SAVED:
        raise block.error(f"`test: file` belongs above {', '.join(sorted(SAVED))}, not above {block.language!r}")
    path = Path(str(block.file))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(block.text, encoding="utf-8")


def _parse(block: Block) -> None:
    try:
        tomllib.loads(block.text) if block.language == "toml" else json.loads(block.text)
    except ValueError as error:
        raise block.error(f"this is not {block.language}: {error}") from error


def _run_python(block: Block, *, namespace: dict[str, Any]) -> None:
    # The empty lines put the page's own line numbers into the traceback.
    source = "\n" * (block.line - 1) + block.text
    try:
        exec(compile(source, block.page, "exec"), namespace)
    except (Exception, SystemExit) as error:
        raise block.error(f"this Python fails:\n{''.join(traceback.format_exception(error))}") from error


def _run_doctest(block: Block, *, namespace: dict[str, Any]) -> None:
    test = doctest.DocTestParser().get_doctest(block.text, {}, block.page, block.page, block.line - 1)
    test.globs = namespace
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    complaints: list[str] = []
    if runner.run(test, out=complaints.append, clear_globs=False).failed:
        raise block.error("".join(complaints))


def _console_commands(block: Block) -> list[Command]:
    commands: list[Command] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            commands.append(Command(line=line[2:]))
        elif not commands:
            raise block.error("a console block opens with a line `$ command`")
        elif commands[-1].line.endswith("\\") and not commands[-1].expected:
            commands[-1] = Command(line=commands[-1].line[:-1] + line.removeprefix(">").strip())
        else:
            commands[-1].expected.append(line)
    return commands


def _bash_commands(block: Block) -> list[Command]:
    lines = block.text.replace("\\\n", " ").splitlines()
    return [Command(line=line) for line in map(str.strip, lines) if line and not line.startswith("#")]


def _run_commands(block: Block, commands: list[Command], *, targets: set[str]) -> None:
    if not commands:
        raise block.error("this block holds no command")
    for command in commands:
        last = command is commands[-1]
        exit_code = (block.exit_code or 0) if last else 0
        words = shlex.split(command.line, comments=True)
        program = words[0].removeprefix(".venv/bin/")
        if program in EXECUTED:
            _execute(block, command, exit_code=exit_code)
        elif program == "make":
            _check_make(block, words[1:], targets=targets)
        elif program not in PREPARATION:
            raise block.error(f"`{command.line}` is not run. Begin with stirred, python or make.")


def _check_make(block: Block, words: list[str], *, targets: set[str]) -> None:
    asked = [word for word in words if "=" not in word and not word.startswith("-")]
    if unknown := [word for word in asked if word not in targets]:
        raise block.error(f"the Makefile has no target {', '.join(unknown)}. It has {', '.join(sorted(targets))}.")


def _execute(block: Block, command: Command, *, exit_code: int) -> None:
    line = command.line.replace(".venv/bin/", "")
    # A plain command of ours needs no shell and no process.
    ended, printed = _in_process(line) if plain(line) else _in_shell(line)
    if ended != exit_code:
        raise block.error(f"`{command.line}` ends with {ended}, not {exit_code}. It prints:\n{printed}")
    expected = "\n".join(command.expected)
    if expected.strip() and not matches(expected, printed):
        raise block.error(f"`{command.line}` does not print\n{expected}\nIt prints\n{printed}")


def plain(line: str) -> bool:
    """Whether a line is one command of ours, without anything that is the shell's to do.

    >>> plain("stirred compare --rate 1/2 --table 'county x tenure'"), plain("python -c 'print(1)'")
    (True, False)
    >>> plain("stirred plan homes.csv --set weights=weights.csv"), plain("A=1 stirred plan homes.csv")
    (True, False)
    >>> plain("stirred plan --schema plan > plan.json"), plain("stirred plan *.toml"), plain('stirred audit "$HOME"')
    (False, False, False)
    """
    bare = re.sub(r"""'[^']*'|"[^"$`\\]*\"""", "", line)
    return line.startswith("stirred ") and not set(bare) & set("|&;<>()$`*?[]{}~#\\!\"'")


def _in_process(line: str) -> tuple[int, str]:
    """Run a command of ours as a shell would, and return its exit code and both its streams in order."""
    from stirred.cli.main import run

    both = io.TextIOWrapper(bytes_ := io.BytesIO(), encoding="utf-8", newline="", write_through=True)
    with (
        patch.dict(os.environ, SCREEN),
        Path(os.devnull).open() as nothing,
        patch.object(sys, "stdin", nothing),
        contextlib.redirect_stdout(both),
        contextlib.redirect_stderr(both),
    ):
        code = run(shlex.split(line, comments=True)[1:])
    return code, bytes_.getvalue().decode()


def _in_shell(line: str) -> tuple[int, str]:
    here = Path(sys.executable).parent
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PYTEST")},
        "PATH": f"{here}{os.pathsep}{os.environ.get('PATH', '')}",
        **SCREEN,
        "PYTHONUNBUFFERED": "1",  # keeps stdout and stderr in the order they were written
    }
    result = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    return result.returncode, result.stdout


def matches(expected: str, printed: str) -> bool:
    """Whether ``printed`` is what a page shows, up to ellipses and space at the ends of lines.

    >>> matches("first\\n...\\nlast", "first\\nsecond\\nthird\\nlast\\n")
    True
    >>> matches("epsilon ...", "epsilon 12.49\\n")
    True
    >>> matches("epsilon 12", "epsilon 12.49\\n")
    False
    """

    def pattern(line: str) -> str:
        if line.strip() == "...":
            return r"(?:.*\n)*?"
        return ".*?".join(map(re.escape, line.split("..."))) + r"\n"

    return bool(re.fullmatch("".join(map(pattern, _trimmed(expected))), "".join(f"{x}\n" for x in _trimmed(printed))))


def _trimmed(text: str) -> list[str]:
    return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n").split("\n")
