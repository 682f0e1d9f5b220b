"""Print how much of each package the tests run: python tests/coverage_by_package.py coverage.json."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path


def main(path: Path) -> None:
    """Add the files of each package up."""
    statements: Counter[str] = Counter()
    covered: Counter[str] = Counter()
    for name, file in json.loads(path.read_text(encoding="utf-8"))["files"].items():
        _, _, inside = name.rpartition("stirred/")
        package, slash, _ = inside.partition("/")
        for key in (package if slash else "(top)", "total"):
            statements[key] += file["summary"]["num_statements"]
            covered[key] += file["summary"]["covered_lines"]
    print(f"{'package':12} {'statements':>10} {'run':>7}")
    for package in sorted(statements, key=lambda name: (name == "total", name)):
        print(f"{package:12} {statements[package]:10,} {covered[package] / statements[package]:7.1%}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
