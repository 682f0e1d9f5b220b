"""`stirred spec lint`, `export` and `map`: what is doubtful about a specification, and how others may read it."""

from __future__ import annotations

from typing import Annotated

import typer

from stirred.cli.option_words import wrong
from stirred.cli.options import Json, Place, Text, opt
from stirred.cli.output import emit, emit_json, heading, picked, say, wrapped
from stirred.cli.spec import Budget, Name, app, idle
from stirred.cli.spec_atlas import draw_map
from stirred.cli.spec_given import read, read_two, write_new

__all__ = ["app"]  # with the commands below


@app.command()
def lint(
    name: Name,
    before: Annotated[Text, opt("--before NAME|FILE", "An earlier version, to see why its number fell.")] = None,
    records: Annotated[int | None, opt("--records NUMBER", "Number of records, to judge delta.")] = None,
    budget: Budget = None,
    json: Json = False,
) -> None:
    """Check a specification for ways a number promises little.

    Exits with 1 on a serious finding.
    """
    from stirred.spec.findings import SERIOUS
    from stirred.spec.findings import lint as check

    if records is not None and records < 1:
        raise wrong(f"{records} is not a number of records", where="--records", remedy="write 1 or more")
    if before is None:
        now, earlier = read(name, budget=budget).specification, None
    else:
        now, earlier = (entry.specification for entry in read_two(name, before, budget=budget))
        if now.budget.is_free or earlier.budget.is_free:
            where = name if now.budget.is_free else before
            raise wrong(
                "the budget is a letter, so nothing says whether it fell", where=where, remedy="give it: --budget 1"
            )
    findings = check(now, before=earlier, records=records)
    if json:
        emit_json({"findings": [picked(each, "check", "severity", "message", "advice") for each in findings]})
    else:
        for finding in findings:
            heading(f"{finding.severity}: {finding.check}")
            emit(wrapped(finding.message, first="  ", rest="  "))
            emit(wrapped(f"Advice: {finding.advice}", first="  ", rest="  "))
        if not findings:
            emit("nothing found; that is not a proof of protection")
    if any(finding.severity == SERIOUS for finding in findings):
        raise typer.Exit(1)


@app.command()
def export(
    name: Name,
    format_: Annotated[str, opt("--format NAME", "opendp (registry YAML), json or markdown.")] = "opendp",
    title: Annotated[Text, opt("--title TEXT", "Title of the release.")] = None,
    curator: Annotated[str, opt("--curator TEXT", "Who publishes it, for the registry.")] = "",
    budget: Budget = None,
    out: Annotated[Place, opt("--out FILE", "Write to this file instead of printing.")] = None,
    json: Json = False,
) -> None:
    """Export a specification to another format.

    OpenDP deployments registry, JSON or Markdown.
    """
    from stirred.spec.document import to_json
    from stirred.spec.render import to_markdown, to_registry

    entry = read(name, budget=budget)
    specification = entry.specification
    heading_ = title or entry.title
    writers = {
        "opendp": lambda: to_registry(specification, name=heading_, curator=curator),
        "json": lambda: to_json(specification),
        "markdown": lambda: to_markdown(specification, title=heading_),
    }
    if format_ == "latex":
        raise wrong(
            "LaTeX is no longer written; the last commit that has it is 03070069",
            where="--format",
            remedy="write --format markdown, whose formula is plain text that LaTeX can show",
        )
    if format_ not in writers:
        raise wrong(f"{format_!r} is not a format", where="--format", remedy=f"one of {', '.join(writers)}")
    if title is not None and format_ not in ("opendp", "markdown"):
        raise idle("--title")
    if curator and format_ != "opendp":
        raise idle("--curator")
    text = writers[format_]()
    if out is not None:
        write_new(out, text)
        say(f"wrote {out}")
    if json:
        emit_json({"name": name, "format": format_, "text": text})
    elif out is None:
        emit(text.rstrip("\n"))


app.command("map")(draw_map)
