"""What plans of survey estimates ask for."""

from __future__ import annotations

import json
from collections.abc import Sequence


def estimate(kind: str, variable: str = "", *, by: str | Sequence[str] = ()) -> str:
    """Return one section [[estimates]] of a plan; values of the variable count from 0 to 100."""
    own = [f'variable = "{variable}"', "bounds = [0, 100]"] if variable else []
    return "\n".join(["[[estimates]]", f'kind = "{kind}"', *own, *([f"by = {json.dumps(by)}"] if by else []), ""])
