"""Make the pictures of the README and the documentation from real runs: ``python docs/capture.py`` (needs chromium).

They are made by this script and by nothing else.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

PICTURES = Path(__file__).parent / "_static"
STIRRED = str(Path(sys.executable).with_name("stirred"))
PLAN = """
[data]
households = "ma/households.parquet"
[mechanism]
match = ["state"]
swap = ["county"]
hold = ["state", "tenure"]
rate = "1/2"
[[tables]]
variables = ["county", "tenure"]
[release]
out = "family"
"""
RUNS = (
    "stirred synth massachusetts-1940 --out ma",
    "stirred swap ma/households.parquet --match state,size --swap county --rate 50% "
    "--table 'county x tenure' --out release --quiet",
    "stirred compare plan.toml --out family.html",
    "stirred demo census-2020 --out census --quiet",
)
# Page, picture, and how much of the page is shown.
PAGES = (
    ("release/public/report.html", "report.png", "1100,1240"),
    ("family.html", "family.png", "1100,1110"),
    ("census/report.html", "census-2020.png", "1100,1160"),
)
BROWSER = ("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run")


def ran(command: str, *, folder: Path, columns: int = 100) -> str:
    """Run a command as a reader would and return what it prints."""
    environment = {**os.environ, "COLUMNS": str(columns)}
    arguments = [STIRRED, *shlex.split(command)[1:]]
    return subprocess.run(arguments, capture_output=True, text=True, check=True, env=environment, cwd=folder).stdout


def draw(command: str, output: str, picture: Path, *, columns: int = 100) -> None:
    """Save a command and its output as a picture of a terminal."""
    console = Console(record=True, width=columns, file=io.StringIO())
    console.print(Text(f"$ {command}", style="bold green"))
    console.print(Text(output.rstrip()))
    svg = console.export_svg(title="stirred")
    # Fonts are the reader's own: the picture fetches nothing.
    picture.write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.S), encoding="utf-8")


def photograph(page: Path, picture: Path, size: str) -> None:
    """Save the top of a page as a real browser shows it."""
    with tempfile.TemporaryDirectory() as profile:
        places = [f"--user-data-dir={profile}", f"--window-size={size}", f"--screenshot={picture}", page.as_uri()]
        subprocess.run([*BROWSER, *places], check=True, capture_output=True)


def main() -> None:
    """Make all pictures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        compared = "stirred compare das-2020 psa-2020-state-county-5pct"
        draw(compared, ran(compared, folder=folder), PICTURES / "compare.svg")
        (folder / "plan.toml").write_text(PLAN, encoding="utf-8")
        for command in RUNS:
            ran(command, folder=folder)
        for page, picture, size in PAGES:
            photograph(folder / page, PICTURES / picture, size)


if __name__ == "__main__":
    main()
