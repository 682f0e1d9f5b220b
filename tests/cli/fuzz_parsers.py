"""Fuzz the readers of plans, codebooks and specifications by coverage, for as long as you like.

    pip install atheris
    python tests/cli/fuzz_parsers.py plan FOLDER -max_total_time=60

FOLDER holds a few right files to begin with; libFuzzer adds to it what reaches new code. Atheris is no development
requirement; the suite fuzzes with Hypothesis (test_fuzzed_files.py).
"""

from __future__ import annotations

import sys
import tempfile
from importlib import import_module
from pathlib import Path


def main(arguments: list[str]) -> None:
    atheris = import_module("atheris")
    with atheris.instrument_imports(include=["stirred", "tomllib"]):
        from stirred.data.codebook_file import read_codebook
        from stirred.release.plan_file import read_plan
        from stirred.spec.document import from_json
        from stirred.spec.problems import StirredError

    kind = arguments.pop(1)
    place = Path(tempfile.mkdtemp()) / "fuzzed"

    def read(data: bytes) -> None:
        try:
            if kind == "specification":
                from_json(data.decode("utf-8", errors="replace"))
                return
            place.write_bytes(data)
            (read_plan if kind == "plan" else read_codebook)(place)
        except StirredError:
            pass  # refused, as it should be; anything else is a finding

    atheris.Setup(arguments, read)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv)
