"""Plain text inside Markdown: names come from files and plans, and must not become headings, links or tags."""

from __future__ import annotations

import re
from typing import Final

# A low line between letters or digits is itself in Markdown, so that block_group stays readable.
_SIGNS: Final = re.compile(r"[\\`*~\[\]|]|#(?=#*$)|(?<![^\W_])_|_(?![^\W_])")
_NAMED: Final = re.compile(r"\\`([\w./ -]+)\\`")
_ENTITY: Final = re.compile(r"&(?=#?\w+;)")
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


def code(text: str) -> str:
    r"""Return text as code, which Markdown shows as it is, whatever backquotes are in it.

    >>> print(code("ε=1"), code("a`b"))
    `ε=1` ``a`b``
    """
    line = " ".join(text.split())
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    space = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{space}{line}{space}{fence}"


_CODE: Final = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)")
_TAG: Final = re.compile(r"<[a-zA-Z/!?]")
_DEFINED: Final = re.compile(r"^ {0,3}\[[^\]]*\]:", re.MULTILINE)
_TITLED: Final = re.compile(r"""(?<!\\)\]\([^()\s]*\s+["'(]""")
_FENCED: Final = re.compile(r"^ {0,3}(?:`{3}|~{3})", re.MULTILINE)
_BLANKS: Final = re.compile(r"[^\S\n]+$", re.MULTILINE)


def unshown(text: str) -> list[str]:
    r"""Return what a page of Markdown holds that its readers are not shown; no page of ours has any of it.

    >>> unshown("# Homes, `<a>` and &lt;b>"), unshown("<!-- 41 -->"), unshown("[//]: # (41)")
    ([], ['a tag or a comment'], ['a definition'])
    >>> unshown('[homes](https://a.b "41")'), unshown("```East-41\na\n```"), unshown("Homes \t \n")
    (['the title of a link'], ['a block of code'], ['blanks at the end of a line'])
    """
    shown = _CODE.sub("", text)
    return [
        *(["a tag or a comment"] if _TAG.search(shown) else []),
        *(["a definition"] if _DEFINED.search(shown) else []),
        *(["the title of a link"] if _TITLED.search(shown) else []),
        *(["a block of code"] if _FENCED.search(text) else []),
        *(["blanks at the end of a line"] if _BLANKS.search(text) else []),
    ]
