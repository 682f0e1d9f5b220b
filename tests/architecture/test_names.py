"""One word, one meaning: no class of the package has the name of another."""

import ast
from collections import defaultdict
from pathlib import Path

import stirred

PACKAGE = Path(stirred.__file__).parent


def classes_in(folder: Path) -> dict[str, list[str]]:
    """Return the files that define a class of each name."""
    found = defaultdict(list)
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(path.relative_to(folder).as_posix())
    return dict(found)


def test_no_class_has_the_name_of_another() -> None:
    assert {name: files for name, files in classes_in(PACKAGE).items() if len(files) > 1} == {}


def test_a_second_class_of_a_name_is_found(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("class Part: ...\n", "utf-8")
    (tmp_path / "two.py").write_text("def f():\n    class Part: ...\n", "utf-8")
    assert classes_in(tmp_path) == {"Part": ["one.py", "two.py"]}
