"""RESULTS.md has one section for each benchmark; a run replaces its own and leaves the others."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

RESULTS = Path(__file__).with_name("RESULTS.md")


def machine() -> str:
    """Return the machine in a few words; ratios travel between machines, seconds do not."""
    load = os.getloadavg()[0]
    return f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, load average {load:.1f}"


def write_section(title: str, body: str, results: Path = RESULTS) -> None:
    """Replace the section of this title, or append it."""
    text = results.read_text(encoding="utf-8") if results.exists() else "# Results\n"
    section = f"## {title}\n\n{body.strip()}\n"
    pattern = re.compile(rf"^## {re.escape(title)}\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
    found = pattern.search(text)
    text = pattern.sub(lambda _: section + "\n", text) if found else f"{text.rstrip()}\n\n{section}"
    results.write_text(text.rstrip() + "\n", encoding="utf-8")
