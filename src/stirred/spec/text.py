"""Text for readers: labelled rows, and plain text inside Markdown, whose names come from files and plans."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import Final

Row = tuple[str, str]

# Of what Python prints; the command line has the width of its terminal.
WIDTH: Final = 100


def rows_text(rows: Sequence[Row], *, width: int = WIDTH, indent: int = 0, whole: Sequence[str] = ()) -> str:
    """Return the rows as lines, each text wrapped beside its label; those labelled as ``whole`` stay on one line.

    >>> print(rows_text([("who", "households"), ("how much", "epsilon 3")]))
    who       households
    how much  epsilon 3
    """
    column = max((len(label) for label, _ in rows), default=0) + 2
    lines = []
    for label, text in rows:
        first, rest = " " * indent + label.ljust(column), " " * (indent + column)
        lines.append(first + text if label in whole else wrapped(text, width=width, first=first, rest=rest))
    return "\n".join(lines)


def wrapped(text: str, *, width: int, first: str = "", rest: str = "") -> str:
    """Return text wrapped to a width, with the given indents; words are never broken."""
    return textwrap.fill(
        text,
        width=width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


# A low line between letters or digits is itself in Markdown, so that block_group stays readable.
_SIGNS: Final = re.compile(r"[\\`*~\[\]|]|#(?=#*$)|(?<![^\W_])_|_(?![^\W_])")
_NAMED: Final = re.compile(r"\\`([\w./ -]+)\\`")
_ENTITY: Final = re.compile(r"&(?=#?\w+;)")
_ESCAPED: Final = re.compile(r"\\([\\`*~\[\]|#_>+=.)-])")
_BLOCK: Final = re.compile(r"\d+(?=[.)](?:\s|$))|(?=[#>+=-])")  # at the start: a list, a heading, a quotation


def plain(text: str) -> str:
    r"""Return text that Markdown shows as it is, on one line.

    >>> print(plain("a|b <i> *x* _y_ block_group [z](javascript:1)\n# no heading"))
    a\|b &lt;i> \*x\* \_y\_ block_group \[z\](javascript:1) # no heading
    >>> print(plain("# heading"), plain("1. item"), plain("&lt;"))
    \# heading 1\. item &amp;lt;
    """
    line = " ".join(text.split())
    line = _SIGNS.sub(lambda sign: f"\\{sign.group()}", line)
    line = _ENTITY.sub("&amp;", line).replace("<", "&lt;")
    start = _BLOCK.match(line)
    return line if start is None else f"{line[: start.end()]}\\{line[start.end() :]}"


def sentence(text: str) -> str:
    r"""Return text like ``plain``, in which a command or a file name in backquotes is code.

    >>> print(sentence("`stirred unswap T.csv` undoes <it>"))
    `stirred unswap T.csv` undoes &lt;it>
    """
    return _NAMED.sub(r"`\1`", plain(text))


def raw(line: str) -> str:
    r"""Return the text that ``plain`` or ``sentence`` made a line of.

    Of any other line they make another one: it says something that Markdown does not show as it is.

    >>> raw(r"\# 1\. a\|b &lt;i> &amp;lt; `T.csv`"), sentence(raw("&#65; <!-- 41 -->"))
    ('# 1. a|b <i> &lt; `T.csv`', '&amp;#65; &lt;!-- 41 -->')
    """
    return _ESCAPED.sub(r"\1", line).replace("&lt;", "<").replace("&amp;", "&")


def code(text: str) -> str:
    r"""Return text as code, which Markdown shows as it is, whatever backquotes are in it.

    >>> print(code("ε=1"), code("a`b"))
    `ε=1` ``a`b``
    """
    line = " ".join(text.split())
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    space = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{space}{line}{space}{fence}"
