"""The member of the family that fits a custodian's wishes, on the screen, as JSON, and as a plan."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stirred.cli.output import bullets, emit, emit_json, facts, heading, paragraph, say, table
from stirred.cli.swap_options import Options, names

if TYPE_CHECKING:
    from stirred.release.plan_file import PlanFile
    from stirred.utility.advice import Advice, Proposal

RESTS_ON = (
    "All members shown keep the same counts exact. Their losses and shares follow from these counts, so that a choice "
    'by this table looks at nothing that is protected: settings_from = "invariants".'
)
STAGES = (
    "Whom a second stage changes depends on protected counts: its share of records changed is that of areas spread "
    "evenly, and its shares of single areas are bounds from above."
)
GIVING_UP = (
    "Giving up a margin is a decision by policy: what is shown for it rests on counts that would then be protected, "
    "and choosing by it would void the guarantee."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wished:
    """The wishes as they were given on the command line."""

    exact: list[str] | None
    nearly: list[str] | None
    undisturbed: list[str] | None
    epsilon: str | None
    at_most: str | None
    changed: str | None
    write: Path | None

    @property
    def given(self) -> bool:
        """Say whether there is any wish that only advice can answer; a loss alone may be meant for one member."""
        return any((self.exact, self.nearly, self.undisturbed, self.at_most, self.changed, self.write))


def show_advice(options: Options, wished: Wished, *, as_json: bool) -> None:
    """Print the advice, or its JSON, and write the plan where one was asked for."""
    from stirred.data.problems import bad_plan
    from stirred.mechanisms.swapping.revealing import revealing_columns
    from stirred.release.prepared import prepare
    from stirred.utility.advice import propose

    if wished.at_most is not None and not wished.undisturbed:
        raise bad_plan("it belongs to undisturbed areas", where="--at-most", remedy="name them with --undisturbed")
    if wished.write is not None and wished.write.exists():
        raise bad_plan("something is already there", where=str(wished.write), remedy="choose a new file")
    # Reads and checks the files as any plan does; the match variables are not known yet.
    data = prepare(replace(options, rate="1/2").planned()).data
    advice = propose(
        data,
        swap=names(options.swap),
        exact=wished.exact or (),
        nearly=wished.nearly or (),
        epsilon=wished.epsilon,
        undisturbed=wished.undisturbed or (),
        at_most=wished.at_most or "10%",
        changed=wished.changed or "5%",
        hold=None if options.hold is None else names(options.hold),
        unit=options.unit,
    )
    if wished.write is not None:
        _write(advice, options, wished.write)
    warnings = [*advice.plan.warnings, *revealing_columns(data, advice.plan)]
    if as_json:
        emit_json(
            {**_facts(advice), "warnings": warnings, "written": None if wished.write is None else str(wished.write)}
        )
        return
    for warning in warnings:
        say(f"Warning: {warning}")
    _show(advice)
    if wished.write is not None:
        emit()
        facts([("plan", str(wished.write)), ("next", f"stirred release {wished.write}")])
    elif advice.chosen is not None:
        paragraph("Nothing was written. --write PLAN.toml writes this as a plan.")


def _write(advice: Advice, options: Options, path: Path) -> None:
    from stirred.data.problems import bad_plan
    from stirred.release.plan_writing import write_plan

    chosen = advice.chosen
    if chosen is None:
        instead = "; or ".join(c.gives_up for c in advice.concessions) or "fewer or weaker wishes"
        raise bad_plan(
            f"no member meets all wishes, so there is no plan to write: {advice.proposals[0].name} comes closest",
            where=str(path),
            remedy=f"ask without --write to see them; what could be accepted instead: {instead}",
        )
    asked = f"Proposed by `stirred plan`, wishes: {_wishes_text(advice)}."
    write_plan(plan_of(chosen, advice, options, path), path, remarks=[asked, *advice.why, RESTS_ON])


def plan_of(proposal: Proposal, advice: Advice, options: Options, path: Path) -> PlanFile:
    """Return the plan of a proposal; the exact margins become tables, and the bundle gets the plan's name."""
    swap: Any = proposal.mechanism
    margins = [" x ".join(margin) for margin in advice.wishes.exact]
    told = replace(
        options,
        mechanism=swap.member,
        match=list(swap.match),
        rate=_percent(getattr(swap, "rate", None)),
        epsilon=str(_decimal(swap.epsilon.rational)) if swap.member == "mallows" else None,
        redraw_law=swap.redraw_law if swap.member == "conditioned" else None,
        fine_match=list(getattr(swap, "fine_match", ())),
        fine_rate=_percent(getattr(swap, "fine_rate", None)),
        settings_from="invariants",
        table=list(dict.fromkeys((*margins, *(options.table or ())))),
        out=Path(f"{path.stem}-bundle"),
    )
    return told.planned().plan


def _percent(rate: Fraction | None) -> str | None:
    return None if rate is None else f"{_decimal(100 * rate)}%"


def _decimal(number: Fraction) -> Decimal:
    """Return a fraction of hundredths as it is."""
    return Decimal(number.numerator) / Decimal(number.denominator)


def _wishes_text(advice: Advice) -> str:
    from stirred.utility.advice import percent

    wishes = advice.wishes
    parts = [
        *(f"{' x '.join(margin)} exact" for margin in wishes.exact),
        *(f"{' x '.join(margin)} nearly exact" for margin in wishes.nearly),
        *([f"epsilon at most {wishes.epsilon.shown()}"] if wishes.epsilon is not None else []),
        f"at least {percent(float(wishes.changed))} of all records change {', '.join(wishes.swap)}",
        *(f"at most {percent(float(wishes.at_most))} of {area}" for area in wishes.undisturbed),
    ]
    return "; ".join(parts)


def _show(advice: Advice) -> None:
    from stirred.spec.explain import explain

    chosen = advice.chosen
    heading("No member meets all wishes" if chosen is None else f"Proposed: {_in_words(chosen)}")
    facts([("wishes", _wishes_text(advice)), *(("why" if n == 0 else "", why) for n, why in enumerate(advice.why))])
    emit()
    words = explain(advice.plan.specification)
    emit("NOT protected, because it is published exactly:")
    bullets(words.not_protected)
    emit()
    # Without a proposal there is no one loss: the table has each member's.
    answers = words.answers if chosen is not None else [a for a in words.answers if a.question != "how much"]
    facts([(answer.question, answer.answer) for answer in answers])
    _table(advice)
    paragraph(RESTS_ON)
    if any(each.bounded for each in advice.proposals):
        paragraph(STAGES)
    if advice.concessions:
        emit()
        emit("All other wishes would be met if you accepted one of these:")
        bullets([f"{each.gives_up}: {_in_words(each.proposal)}" for each in advice.concessions])
        if any(concession.looks_inside for concession in advice.concessions):
            paragraph(GIVING_UP)


def _in_words(each: Proposal) -> str:
    loss = "" if each.mechanism.member == "mallows" else f", epsilon {each.epsilon.shown()}"
    return f"{each.name}, {each.setting}{loss}"


def _table(advice: Advice) -> None:
    from stirred.utility.advice import percent

    # The smallest area is the same for all: only the swaps differ.
    smallest, records, _ = advice.proposals[0].smallest_area
    areas = advice.wishes.undisturbed
    apart = advice.wishes.fine_match
    alone = smallest in [area.value for area in areas] and len(advice.wishes.swap) == 1
    header = [
        "swap",
        "setting",
        "ε",
        "records changed",
        *(f"in {area}" for area in areas),
        *([] if alone else [f"in {smallest}, the smallest ({records:,})"]),
        *([f"mixed by {' x '.join(apart)}"] if apart else []),
        "wishes",
    ]
    rows = []
    for each in advice.proposals:
        about, most = ("about ", "at most ") if each.bounded else ("", "")
        rows.append(
            [
                each.name,
                each.setting,
                each.epsilon.shown(),
                about + percent(each.changed),
                *(most + percent(share) for _, share in each.undisturbed),
                *([] if alone else [most + percent(each.smallest_area[2])]),
                *([percent(each.mixed or 0.0)] if apart else []),
                "; ".join(short.short for short in each.shortfalls) or "all met",
            ]
        )
    table(header, rows)


def _facts(advice: Advice) -> dict[str, Any]:
    from stirred.spec.document import to_document

    wishes, chosen = advice.wishes, advice.chosen
    return {
        "meets_all": chosen is not None,
        "proposal": None if chosen is None else _proposal_facts(chosen),
        "why": list(advice.why),
        "wishes": {
            "swap": list(wishes.swap),
            "exact": [" x ".join(margin) for margin in wishes.exact],
            "nearly": [" x ".join(margin) for margin in wishes.nearly],
            "epsilon": None if wishes.epsilon is None else str(wishes.epsilon),
            "undisturbed": [str(area) for area in wishes.undisturbed],
            "at_most": str(wishes.at_most),
            "changed": str(wishes.changed),
        },
        "match": list(wishes.match),
        "fine_match": list(wishes.fine_match),
        "settings_from": "invariants",
        "specification": None if chosen is None else to_document(advice.plan.specification),
        "invariants": [str(invariant) for invariant in advice.plan.specification.multiverse.invariants],
        "proposals": [_proposal_facts(each) for each in advice.proposals],
        "concessions": [
            {
                "gives_up": each.gives_up,
                "settings_from": "this-data" if each.looks_inside else "invariants",
                "proposal": _proposal_facts(each.proposal),
            }
            for each in advice.concessions
        ],
    }


def _proposal_facts(each: Proposal) -> dict[str, Any]:
    from stirred.spec.document import number_out

    swap: Any = each.mechanism
    name, records, share = each.smallest_area
    return {
        "name": each.name,
        "mechanism": f"{swap.member}-swap",
        "match": list(swap.match),
        "rate": _percent(getattr(swap, "rate", None)),
        "redraw_law": getattr(swap, "redraw_law", None),
        "fine_match": list(getattr(swap, "fine_match", ())),
        "fine_rate": _percent(getattr(swap, "fine_rate", None)),
        "epsilon": number_out(each.epsilon),
        "epsilon_exact": str(each.epsilon),
        "share_changed": each.changed,
        "shares_are_bounds": each.bounded,
        "undisturbed": [{"area": str(area), "share_changed": share} for area, share in each.undisturbed],
        "smallest_area": {"area": name, "records": records, "share_changed": share},
        "share_mixed": each.mixed,
        "meets_all": each.meets_all,
        "shortfalls": [{"wish": short.wish, "text": short.text} for short in each.shortfalls],
    }
