"""A Sphinx directive, ``{commands}``: every command of ``stirred`` with its options, read from the program itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from stirred.cli.main import app as stirred


def _leaves(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path, command
        return
    for name, one in inner.items():
        yield from _leaves(one, (*path, name))


def _usage(path: tuple[str, ...], command: Any) -> str:
    context = command.make_context(" ".join(path), [], resilient_parsing=True)
    return " ".join([" ".join(path), *command.collect_usage_pieces(context)])


def _row(option: Any, context: Any) -> str:
    record = option.get_help_record(context)
    if record is None:  # an argument: its help is its own
        name, text = option.make_metavar(context), getattr(option, "help", "") or ""
    else:
        name, text = record
    name, text = (" ".join(part.split()).replace("|", "\\|") for part in (name, text))
    return f"| `{name}` | {_escaped(text)} |"


def _escaped(text: str) -> str:
    return text.replace("<", "&lt;").replace("*", "\\*").replace("$", "\\$").replace("[", "\\[")


def _section(path: tuple[str, ...], command: Any) -> str:
    context = command.make_context(" ".join(path), [], resilient_parsing=True)
    words = " ".join((command.help or "").split())
    rows = [_row(option, context) for option in command.params if not getattr(option, "hidden", False)]
    title = " ".join(path)
    table = "\n".join(["| option | meaning |", "|---|---|", *rows]) if rows else ""
    return f"## {title}\n\n{_escaped(words)}\n\n```text\n{_usage(path, command)}\n```\n\n{table}\n"


class Commands(SphinxDirective):
    """Write one section for each command."""

    def run(self) -> list[nodes.Node]:
        """Return the sections, from the program as it is installed."""
        root = typer.main.get_command(stirred)
        text = "\n".join(_section(path, command) for path, command in _leaves(root, ("stirred",)))
        return self.parse_text_to_nodes(text, allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("commands", Commands)
    return {"parallel_read_safe": True}
