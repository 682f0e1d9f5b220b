"""The choices of match and swap variables that a geography allows, on the screen (Table 5 of the paper)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stirred.cli.output import emit, emit_json, facts, heading, paragraph, say
from stirred.cli.swap_options import names

CHOOSING = (
    "Losses of different choices are in different currencies: a choice with smaller strata has the smaller number "
    "because more is published exactly. And choosing settings by looking at the confidential file voids the guarantee, "
    "unless what you looked at are invariants of the choice you make: such choices are marked 'from its "
    "invariants' (record "
    'settings_from = "invariants"). Otherwise decide by policy, or on an earlier census or the synthetic one.'
)


def show_choices(
    file: Path,
    geography: list[str],
    cross: list[str] | None,
    id: list[str] | None,
    persons: Path | None,
    hid: str | None,
    *,
    unit: str,
    epsilon: str | None,
    as_json: bool,
) -> None:
    """Print the choices, or their JSON."""
    from stirred.data.microdata import Microdata
    from stirred.mechanisms.swapping.candidates import candidates
    from stirred.spec.given_numbers import loss

    data = Microdata.read(file, persons, hid=hid, id=names(id))
    target = None if epsilon is None else loss(epsilon, where="--epsilon")
    found = candidates(data, levels=names(geography), cross=names(cross), epsilon=target, unit=unit)
    if as_json:
        facts_ = {"choices": [_choice_facts(choice) for choice in found], "warning": CHOOSING}
        emit_json({**facts_, "warnings": list(dict.fromkeys(w for choice in found for w in choice.warnings))})
        return
    for warning in dict.fromkeys(w for choice in found for w in choice.warnings):
        say(f"Warning: {warning}")
    for choice in found:
        heading(choice.name)
        where = ", ".join(f"{k} = {v}" for k, v in zip(choice.match, choice.largest_values, strict=False))
        losses = "; ".join(f"{100 * float(rate):g}%: epsilon {e.shown()}" for rate, e in choice.epsilons)
        rows = [
            ("swaps", ", ".join(choice.swap)),
            ("strata", f"{choice.strata:,}, of which {choice.live:,} have something to swap"),
            ("largest", f"{choice.largest:,}{f' ({where})' if where else ''}"),
            ("loss", f"{losses}; smallest possible {choice.least.shown()}"),
        ]
        if target is not None:
            rate = choice.reaching
            rows.append(
                (
                    "target",
                    "not reached by any rate" if rate is None else f"reached from a rate of {100 * float(rate):.4g}%",
                )
            )
        rows += [("fixes", f"the {words}") for words in choice.invariants]
        rows.append(
            ("choosing it", "by this list: from its invariants" if choice.safe else "by this list: looks at the data")
        )
        facts(rows, indent=2)
        emit()
    paragraph(CHOOSING)


def _choice_facts(choice: Any) -> dict[str, Any]:
    from stirred.spec.document import number_out

    return {
        "match": list(choice.match),
        "swap": list(choice.swap),
        "strata": choice.strata,
        "live_strata": choice.live,
        "largest_live_stratum": choice.largest,
        "epsilon_by_rate": [
            {"rate": str(rate), "epsilon": number_out(e), "epsilon_exact": str(e)} for rate, e in choice.epsilons
        ],
        "smallest_epsilon": number_out(choice.least),
        "rate_reaching_target": None if choice.reaching is None else str(choice.reaching),
        "invariants": list(choice.invariants),
        "settings_from": "invariants" if choice.safe else "this-data",
    }
