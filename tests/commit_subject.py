"""Check the subject of a commit message, as git's commit-msg hook: `python tests/commit_subject.py MESSAGE_FILE`."""

from __future__ import annotations

import sys
from pathlib import Path

LONGEST = 71


def problems(message: str) -> list[str]:
    """Return what is wrong with the subject of a message, which is its first line that is not a comment.

    >>> problems("Refuse to compare budgets across flavors")
    []
    >>> problems("Refuse it.")
    ['the subject ends with a full stop']
    """
    lines = [line for line in message.splitlines() if not line.startswith("#")]
    subject = lines[0].rstrip() if lines else ""
    if subject.startswith(("Merge ", "Revert ", "fixup! ", "squash! ")):
        return []  # git wrote these
    found = []
    if not subject:
        found.append("there is no subject")
    if len(subject) > LONGEST:
        found.append(f"the subject has {len(subject)} characters; write fewer than {LONGEST + 1}")
    if subject.endswith("."):
        found.append("the subject ends with a full stop")
    if len(lines) > 1 and lines[1].strip():
        found.append("the second line is not empty")
    return found


def main() -> int:
    """Print the problems of the message in the file that is named, and return 1 where there are any."""
    found = problems(Path(sys.argv[1]).read_text(encoding="utf-8"))
    for problem in found:
        sys.stderr.write(f"commit message: {problem}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
