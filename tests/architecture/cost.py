"""What a mechanism costs the rest of the house: the source files outside its own folder that know of it.

``python -m tests.architecture.cost`` prints it for every built-in mechanism and for the example plug-in.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import stirred
from stirred.mechanisms.registry import BUILT_IN

SOURCE = Path(stirred.__file__).parent
PLUGIN = ("coin-answers", "CoinAnswers", "coin_answers")


def files_that_know(words: Sequence[str], *, but: Path | None = None) -> list[str]:
    """Return the source files that spell one of these words, but for those in the mechanism's own family."""
    wanted = re.compile("|".join(rf"\b{re.escape(word)}\b" for word in words))
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        own = but is not None and path.is_relative_to(but)
        if not own and wanted.search(_code(path)):
            found.append(path.relative_to(SOURCE).as_posix())
    return found


@cache
def _code(path: Path) -> str:
    """Return a module without its docstrings: an example in one is no code that knows."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value.value = ""
    return ast.unparse(tree)


def cost_of(name: str) -> list[str]:
    """Return the files outside the family, a folder of the room, of a mechanism that know its name or its class."""
    module, attribute = BUILT_IN[name]
    family = SOURCE.joinpath(*module.split(".")[1:3])
    return files_that_know([name, attribute], but=family)


def main() -> None:
    """Print the files that each mechanism costs."""
    print(f"{'plug-in ' + PLUGIN[0]:28} {len(files_that_know(PLUGIN))} files")
    for name in BUILT_IN:
        found = cost_of(name)
        print(f"{name:28} {len(found)} files: {', '.join(found)}")


if __name__ == "__main__":
    main()
