"""A mechanism before the tables: records are swapped first, and tables of the swapped file are published alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from stirred.data.problems import bad_plan
from stirred.mechanisms import registry
from stirred.mechanisms.protocol import Mechanism


def mechanism_before(after: Mapping[str, Any], *, unit: str, published: Sequence[str]) -> Mechanism:
    """Return the mechanism that a setting ``after`` names, of the columns that tables are made of.

    The others leave in no file, and its promise is not about them. What a swap does to a record depends on matched and
    swapped columns, and on those that its other settings name.
    """
    own = {key: value for key, value in after.items() if key != "name"}
    name = registry.full_name(str(after.get("name", registry.DEFAULT)), where="after")
    inner: Any = registry.build(name, {"unit": unit, **own})
    if not {"swap", "hold"} <= {*inner.settings_model.model_fields}:
        return cast(Mechanism, inner)
    rules = [name for rule in getattr(inner, "rates", ()) for name in rule if name != "rate"]
    used = dict.fromkeys([*published, *rules, getattr(inner, "respond", None)])
    held = tuple(name for name in used if name is not None and name not in (*inner.swap, *inner.matched))
    if inner.hold is not None and not {*held} <= {*inner.hold}:
        return cast(Mechanism, inner)  # refused by the plan: a table needs what is not released
    if not held:
        what = f"no table has more than the matched and swapped variables: {inner.title} changes none of their counts"
        raise bad_plan(what, where="after", remedy="cross a swapped variable with another one, or leave after out")
    return cast(Mechanism, replace(inner, hold=held))
