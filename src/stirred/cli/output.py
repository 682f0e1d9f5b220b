"""Printing: results to stdout, conversation to stderr, and the same facts as JSON on request."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from stirred.mechanisms.groups import Outcome, OutputBlock
    from stirred.mechanisms.protocol import Picture

FAILED: Final = 1


def emit_json(facts: Any) -> None:
    """Print facts as JSON on stdout."""
    sys.stdout.write(json.dumps(facts, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def picked(thing: Any, *names: str) -> dict[str, Any]:
    """Return facts of an object under their names."""
    return {name: getattr(thing, name) for name in names}


def exactly(**values: Any) -> dict[str, Any]:
    """Return each number as a double rounded up, and beside it the exact expression."""
    from stirred.spec.document import number_out

    return {key: out for name, v in values.items() for key, out in ((name, number_out(v)), (f"{name}_exact", str(v)))}


def step_facts(step: Any) -> dict[str, Any]:
    """Return a step of a derivation for JSON."""
    return picked(step, "action", "theorem", "before", "after")


def uniqueness_out(found: Any) -> dict[str, Any]:
    """Return for JSON how many records share their keys with how many others."""
    return {
        **picked(found, "of", "records", "classes", "unique", "k", "expected_matches", "population_uniques"),
        "keys": list(found.keys),
        "share_unique": found.unique / max(found.records, 1),
        "below_3": found.below(3),
        "below_5": found.below(5),
        "unique_match": found.unique_match,
    }


def emit(text: str = "") -> None:
    """Print text on stdout."""
    sys.stdout.write(text + "\n")


def say(text: str) -> None:
    """Print conversation on stderr."""
    sys.stderr.write(text + "\n")


def width() -> int:
    """Return the width to wrap to: the terminal's, between 60 and 120 columns."""
    return min(max(shutil.get_terminal_size((100, 24)).columns, 60), 120)


def facts(rows: Sequence[tuple[str, str]], *, indent: int = 0) -> None:
    """Print labelled facts, the text wrapped beside its label; a command under "next" stays whole, to be copied.

    >>> facts([("who", "households"), ("how much", "epsilon 3")])
    who       households
    how much  epsilon 3
    """
    from stirred.spec.text import rows_text

    if rows:
        emit(rows_text(rows, width=width(), indent=indent, whole=["next"]))


def wrapped(text: str, *, first: str = "", rest: str = "") -> str:
    """Return text wrapped to the width, with the given indents; words are never broken."""
    from stirred.spec.text import wrapped as wrapped_to

    return wrapped_to(text, width=width(), first=first, rest=rest)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table, its cells wrapped to the width."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in header:
        drawn.add_column(name, overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(cell) for cell in row))
    console = Console(file=sys.stdout, width=width(), highlight=False, markup=False)
    console.print(drawn)


def showing(outcome: Outcome, *, as_json: bool) -> int:
    """Print what a command found, draw its pictures, and return the exit code."""
    from stirred.mechanisms.groups import Bullets, FactRows, Title
    from stirred.spec.problems import StirredError

    draw(outcome.pictures)
    for note in outcome.notes:
        say(note)
    failed = 0 if outcome.passed else FAILED
    if as_json:
        errors = [{"what": each.told, "where": each.where, "remedy": each.remedy} for each in outcome.problems]
        emit_json({**outcome.values, "errors": errors} if errors else outcome.values)
        return StirredError.exit_code if errors else failed
    facts([(label, str(text)) for label, text in outcome.rows])
    for grid in outcome.grids:
        emit()
        table(grid.header, [[str(cell) for cell in row] for row in grid.rows])
    if outcome.text:
        emit(outcome.text.rstrip("\n"))
    for block in outcome.blocks:
        if isinstance(block, str):
            emit(wrapped(block.lstrip(), first=(indent := " " * (len(block) - len(block.lstrip()))), rest=indent))
        elif isinstance(block, Title):
            emit(f"\x1b[1m{block.text}\x1b[0m" if sys.stdout.isatty() else block.text)
        elif isinstance(block, FactRows):
            facts(block.rows, indent=block.indent)
        elif isinstance(block, Bullets):
            for item in block.items:
                emit(wrapped(item, first=" " * block.indent + "- ", rest=" " * (block.indent + 2)))
        else:
            table(block.header, [[str(cell) for cell in row] for row in block.rows])
    if outcome.problems:
        raise StirredError(outcome.problems)
    return failed


def five_blocks(words: Any, *, indent: int = 0, without: str = "") -> Iterator[OutputBlock]:
    """Yield what is not protected, and the five answers."""
    from stirred.mechanisms.groups import Bullets, FactRows, Title
    from stirred.spec.explanation import NOT_PROTECTED

    yield Title(" " * indent + f"{NOT_PROTECTED}:")
    yield Bullets(words.not_protected, indent + 2)
    if not indent:
        yield ""
    yield FactRows([(a.question, a.answer) for a in words.answers if a.question != without], indent)


def draw(pictures: Mapping[Path, Picture]) -> None:
    """Draw pictures into new files: all of them, or none."""
    if not pictures:
        return
    from stirred.data.problems import bad_file
    from stirred.report.charts import standing_alone

    for path in pictures:
        if path.suffix != ".svg" or path.exists():
            what = "this file exists already" if path.exists() else "pictures are drawn as SVG"
            raise bad_file(what, where=str(path), remedy="choose another file, with the ending .svg")
    for path, text in [(path, standing_alone(block)) for path, block in pictures.items()]:
        with suppress(OSError):  # writing says what is wrong
            path.parent.mkdir(parents=True, exist_ok=True)
        write_new(path, text)
        say(f"wrote {path}")


def notes_of(out: Path | None, text: str, *, private: bool = False) -> list[str]:
    """Write a text to a new file if one is named, and return the note that says so."""
    if out is None:
        return []
    write_new(out, text, private=private)
    return [f"wrote {out}"]


def write_new(path: Path, text: str, *, private: bool = False) -> None:
    """Write a file that does not exist yet, complete or not at all."""
    from stirred.data.place import file_at
    from stirred.spec.problems import wrong

    if path.exists():
        raise wrong("this file exists already", where=str(path), remedy="choose another name, or remove it")
    try:
        content = text.encode("utf-8")  # before the file is made, so that none is left half-written
    except UnicodeEncodeError:
        raise wrong(
            "the text to write holds half a character", where=str(path), remedy="give titles and reasons in UTF-8"
        ) from None
    try:
        with file_at(path, private=private) as half:
            half.write_bytes(content)
    except OSError as error:
        raise wrong(f"cannot write: {error.strerror}", where=str(path), remedy="choose another place") from None


Progress = Callable[[str, int, int], None]

# The same words in every run: which inner steps a run needs must not be told.
_WORDS = {"mark": "selecting", "gather": "swapping", "derange": "swapping", "return": "swapping", "redraw": "swapping",
          "write": "writing", "verify": "checking", "report": "reporting",
          "reconstruct": "attacking"}  # fmt: skip


@contextmanager
def shown_progress(*, quiet: bool) -> Iterator[Progress | None]:
    """Yield a function (stage, done, total) that shows progress, or None if nothing is to be shown."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        yield from _bar()
    else:
        yield _lines()


def _bar() -> Iterator[Progress]:
    """Yield a bar that is drawn when the first step is reported: most commands have none."""
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (SpinnerColumn(), TextColumn("{task.description:<12}"), BarColumn(), TimeElapsedColumn())
    bar = Bar(*columns, console=Console(stderr=True), transient=True)
    tasks: dict[str, Any] = {}

    def advance(stage: str, done: int, total: int) -> None:
        stage = _WORDS.get(stage, stage)
        if not tasks:
            bar.start()
        if stage not in tasks:
            tasks[stage] = bar.add_task(stage, total=total)
        bar.update(tasks[stage], completed=done, total=total)

    try:
        yield advance
    finally:
        bar.stop()


def _lines() -> Progress:
    seen: set[str] = set()

    def advance(stage: str, done: int, total: int) -> None:
        stage = _WORDS.get(stage, stage)
        if stage not in seen:
            seen.add(stage)
            sys.stderr.write(f"{stage} ...\n" if done < total else f"{stage}\n")
            sys.stderr.flush()

    return advance
