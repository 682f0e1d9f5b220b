"""The `stirred` command: its groups, and the one place where errors become messages and exit codes."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import sys
import warnings
from contextlib import suppress
from errno import EIO
from types import FrameType
from typing import Annotated, Final

import typer

from stirred.cli.command import Root
from stirred.cli.places import renamed, renamed_option

DONE, FAILED, REFUSED, INTERRUPTED, UNREAD = 0, 1, 2, 130, 141

app = typer.Typer(
    name="stirred",
    cls=Root,
    help="Publish statistics from confidential microdata: every release with the DP specification it satisfies.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        from stirred import __version__

        sys.stdout.write(f"stirred {__version__}\n")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Publish statistics from confidential microdata: every release with the DP specification it satisfies."""


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code: 0 done, 1 a check failed, 2 bad input or refused, 130 interrupted.

    129 and 143 are interruptions by SIGHUP and SIGTERM. 141 means that nobody read the output to its end.
    """
    _never_fail_to_print()
    if odd := next((text for text in arguments if not _is_text(text)), None):
        what = f"{ascii(odd)[:80]} is not UTF-8, or holds a NUL"
        error = _refused(what, where="command line", remedy="rename the file, or write the option again")
        return _report(error, as_json="--json" in arguments)
    if answer := renamed(arguments):
        return _report(_refused(answer), as_json="--json" in arguments)
    try:
        code = app(args=arguments, prog_name="stirred", standalone_mode=False)
        sys.stdout.flush()
        if code == INTERRUPTED:
            return _interrupted()
        return code if isinstance(code, int) else DONE
    except (KeyboardInterrupt, typer.Abort):
        return _interrupted()
    except typer.Exit as stop:
        return stop.exit_code
    except SystemExit as stop:
        # The command-line library leaves like this when the reader of a pipe went away.
        closed = type(sys.stdout).__name__ == "PacifyFlushWrapper"
        return UNREAD if closed else int(stop.code or 0)
    except BrokenPipeError:
        # The reader of a pipe went away (such as `head`). What the command found is then not known, and a check that
        # failed must not look like one that passed: the code is that of any program which is stopped by this.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNREAD
    except Exception as error:
        if not _received:
            return _report(error, as_json="--json" in arguments)
        # A library may wrap the interruption that passes through a callback of ours, as pydantic does while it writes.
        for note in getattr(error, "__notes__", ()):
            sys.stderr.write(f"{note}\n")
        return _interrupted()
    except BaseException as error:
        # polars' own kind of exception for a file in the middle of which its reader gives up; it is not an Exception.
        if type(error).__name__ != "PanicException":
            raise
        return _report(
            OSError(EIO, "a file is damaged: its reader gives up in the middle of it", "input"),
            as_json="--json" in arguments,
        )


def _is_text(argument: str) -> bool:
    try:
        return b"\0" not in argument.encode()
    except UnicodeEncodeError:
        return False


def _refused(what: str, *, where: str = "", remedy: str = "") -> Exception:
    from stirred.spec.problems import Problem, StirredError

    return StirredError([Problem(what=what, where=where, remedy=remedy)])


def _interrupted() -> int:
    """Say that the command was interrupted, and return the code of the signal that did it."""
    with suppress(OSError):  # the terminal may be gone
        sys.stderr.write("Interrupted.\n")
    return 128 + interrupted_by()


def _never_fail_to_print() -> None:
    """Print a stand-in for letters the terminal cannot show, rather than stopping half-way."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


# What Python says of input that no check of ours has stopped.
_NOT_WRITABLE: Final = {
    "surrogates not allowed": "the name of a file or folder here is not UTF-8",
    "embedded null": "a name here holds a NUL",
    "integer string conversion": "a number here has thousands of digits",
}


def _report(error: Exception, *, as_json: bool) -> int:
    """Print what went wrong, where and how to fix it; a bug of ours says so.

    JSON ends in logs and tickets: it gets the words without values of the confidential file.
    """
    from stirred.cli.option_words import in_options
    from stirred.cli.output import emit_json, say
    from stirred.spec.problems import Problem, StirredError
    from stirred.spec.spelling import elsewhere

    if isinstance(error, StirredError):
        problems, code = tuple(in_options(problem) for problem in error.problems), error.exit_code
    elif type(error).__name__ == "NoArgsIsHelpError":  # `stirred spec` alone
        sys.stdout.write(str(error) + "\n")
        return DONE
    elif isinstance(error, ArithmeticError):
        what = f"a number here is too large, or too close to another, to compute with ({error or type(error).__name__})"
        problems, code = (Problem(what=what, where="number", remedy="check the numbers you gave"),), REFUSED
    elif isinstance(error, OSError) or "(os error " in str(error):  # polars says it of a full disk in its own error
        what = f"the system refused: {getattr(error, 'strerror', None) or str(error).rpartition('IO error: ')[2]}"
        place = str(getattr(error, "filename", None) or "output")
        problems, code = (Problem(what=what, where=place, remedy="make room, or check rights"),), REFUSED
    elif found := next((each for each in _NOT_WRITABLE if each in str(error)), None):
        what, remedy = _NOT_WRITABLE[found], "rename the file or folder, or correct the number"
        problems, code = (Problem(what=what, where="input", remedy=remedy),), REFUSED
    elif hasattr(error, "format_message"):  # a wrong option or argument
        text = error.format_message().strip().rstrip(".")
        context = getattr(error, "ctx", None)
        place = context.command_path if context else "stirred"
        command = re.match("No such command '([^']*)'", text)  # perhaps a method of another program
        old = renamed_option(place.removeprefix("stirred "), getattr(error, "option_name", ""))
        what, remedy = (elsewhere(command[1]) if command else None) or (
            old or text,
            "" if old else f"see `{place} --help`",
        )
        problems, code = (Problem(what=what, where="" if old else place, remedy=remedy),), REFUSED
    elif os.environ.get("STIRRED_DEBUG"):
        raise error
    else:
        what = f"this is a fault in stirred, not in your input ({type(error).__name__}: {error})"
        remedy = "please report it; STIRRED_DEBUG=1 shows where it happened"
        # What Python says of an error may quote what it stumbled over.
        public = f"this is a fault in stirred, not in your input ({type(error).__name__})"
        problems, code = (Problem(what=what, where="stirred", remedy=remedy, public=public),), FAILED
    if as_json:
        emit_json({"errors": [{"what": p.told, "where": p.where, "remedy": p.remedy} for p in problems]})
    else:
        for problem in problems:
            say(str(problem))
    for note in getattr(error, "__notes__", ()):
        say(note)
    return code


def _show_warning(message: Warning | str, *_: object) -> None:
    """Print a warning as a sentence: the line of our code that raised it means nothing to a reader."""
    typer.echo(f"warning: {message}", err=True)


def main() -> None:
    """Run the command line and leave with its exit code."""
    warnings.showwarning = _show_warning  # type: ignore[assignment]
    protect_memory()
    share_memory()
    clean_up_on_signals()
    sys.exit(run(sys.argv[1:]))


# Sent by service managers and schedulers, and by a terminal that is closed.
_ENDINGS: Final = ("SIGTERM", "SIGHUP")
_SET_DUMPABLE: Final = 4  # of prctl(2)
_ARENA_MAX: Final = -8  # of mallopt(3)
_received: list[int] = []


class Interrupted(KeyboardInterrupt):
    """An interruption by a signal.

    It is a class of its own because Python remembers a plain KeyboardInterrupt that passes through `exec` of a text,
    as the making of a dataclass does it, and ends the process by SIGINT whatever code it leaves with: 130 instead of
    143 after SIGTERM.
    """


def clean_up_on_signals() -> None:
    """Let SIGTERM and SIGHUP interrupt a command as Ctrl-C does, so that it removes what it has begun.

    A signal that somebody chose to ignore (`nohup`) stays ignored.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _stop)
    for name in _ENDINGS:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    for name in _ENDINGS:
        signal.signal(getattr(signal, name), signal.SIG_IGN)  # cleaning up is not interrupted again
    _received.append(number)
    raise Interrupted


def _stop(number: int, frame: FrameType | None) -> None:
    _received.append(number)
    raise Interrupted


def interrupted_by() -> int:
    """Return the signal that interrupted the command; Ctrl-C if no other did."""
    return _received[0] if _received else int(signal.SIGINT)


def protect_memory() -> None:
    """Forbid core dumps: the memory of a command holds confidential records."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        # A limit of 0 does not hold for a dump that the kernel hands to a program.
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0, 0, 0, 0)


def share_memory() -> None:
    """Let all threads take memory from one place: what one gave back, another uses again.

    Otherwise the C library keeps freed memory for every thread apart, half a gigabyte after a large swap.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # only glibc has it
            ctypes.CDLL(None).mallopt(_ARENA_MAX, 1)
