"""Draw a command and its real output as an SVG picture: ``python docs/capture.py``.

The pictures in the README and the documentation are made by this script and by nothing else.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

HERE = Path(__file__).parent
PICTURES = {"compare.svg": "stirred spec compare das-2020 psa-2020-state-county-5pct"}


def capture(command: str, picture: Path, *, columns: int = 100) -> None:
    """Run ``command`` and save what it prints as a picture."""
    tool = str(Path(sys.executable).with_name("stirred"))
    arguments = [tool, *shlex.split(command)[1:]]
    environment = {**os.environ, "COLUMNS": str(columns)}
    output = subprocess.run(arguments, capture_output=True, text=True, check=True, env=environment).stdout
    console = Console(record=True, width=columns, file=io.StringIO())
    console.print(Text(f"$ {command}", style="bold green"))
    console.print(Text(output.rstrip()))
    svg = console.export_svg(title="stirred")
    # Fonts are the reader's own: the picture fetches nothing.
    picture.write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.S), encoding="utf-8")


if __name__ == "__main__":
    for name, command in PICTURES.items():
        capture(command, HERE / "_static" / name)
