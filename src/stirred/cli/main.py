"""The `stirred` command: its groups, and the one place where errors become messages and exit codes."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from stirred.cli import audit, budget, codebook, compare, ledger, publish, schema, spec, swap, synth, unswap

DONE, FAILED, REFUSED, INTERRUPTED, UNREAD = 0, 1, 2, 130, 141

app = typer.Typer(
    name="stirred",
    help="Publish statistics from confidential microdata: every release with the DP specification it satisfies.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(spec.app, name="spec")
app.add_typer(budget.app, name="budget")
app.add_typer(audit.app, name="audit")
app.add_typer(codebook.app, name="codebook")
app.add_typer(synth.app, name="synth")
app.add_typer(ledger.app, name="ledger")
app.command("swap")(swap.swap)
app.command("plan")(swap.plan)
app.command("release")(swap.release)
app.command("compare")(compare.compare)
app.command("publish")(publish.publish)
app.command("schema")(schema.schema)
app.command("unswap")(unswap.unswap)


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

    141 means that nobody read the output to its end.
    """
    _never_fail_to_print()
    try:
        code = app(args=arguments, prog_name="stirred", standalone_mode=False)
        sys.stdout.flush()
        if code == INTERRUPTED:
            sys.stderr.write("Interrupted.\n")
        return code if isinstance(code, int) else DONE
    except (KeyboardInterrupt, typer.Abort):
        sys.stderr.write("Interrupted.\n")
        return INTERRUPTED
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
        return _report(error, as_json="--json" in arguments)


def _never_fail_to_print() -> None:
    """Print a stand-in for letters the terminal cannot show, rather than stopping half-way."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _report(error: Exception, *, as_json: bool) -> int:
    """Print what went wrong, where and how to mend it; a bug of ours says so."""
    from stirred.cli.option_words import in_options
    from stirred.cli.output import emit_json, say
    from stirred.spec.problems import Problem, StirredError

    if isinstance(error, StirredError):
        problems, code = tuple(in_options(problem) for problem in error.problems), error.exit_code
    elif type(error).__name__ == "NoArgsIsHelpError":  # `stirred spec` alone
        sys.stdout.write(str(error) + "\n")
        return DONE
    elif isinstance(error, ArithmeticError):
        what = f"a number here is too large, or too close to another, to compute with ({error or type(error).__name__})"
        problems, code = (Problem(what=what, where="number", remedy="check the numbers you gave"),), REFUSED
    elif isinstance(error, OSError):
        what = f"the system refused: {error.strerror or error}"
        problems, code = (
            (Problem(what=what, where=str(error.filename or "output"), remedy="make room, or check rights"),),
            REFUSED,
        )
    elif hasattr(error, "format_message"):  # a wrong option or argument
        text = error.format_message().strip().rstrip(".")
        context = getattr(error, "ctx", None)
        place = context.command_path if context else "stirred"
        problems, code = (Problem(what=text, where=place, remedy=f"see `{place} --help`"),), REFUSED
    elif os.environ.get("STIRRED_DEBUG"):
        raise error
    else:
        what = f"this is a fault in stirred, not in your input ({type(error).__name__}: {error})"
        remedy = "please report it; STIRRED_DEBUG=1 shows where it happened"
        problems, code = (Problem(what=what, where="stirred", remedy=remedy),), FAILED
    if as_json:
        emit_json({"errors": [{"what": p.what, "where": p.where, "remedy": p.remedy} for p in problems]})
    else:
        for problem in problems:
            say(str(problem))
    for note in getattr(error, "__notes__", ()):
        say(note)
    return code


def main() -> None:
    """Run the command line and leave with its exit code."""
    sys.exit(run(sys.argv[1:]))
