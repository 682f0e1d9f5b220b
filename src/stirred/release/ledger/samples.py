"""Releases from one sample, or from dependent ones: composed on the sample first, then amplified once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from stirred.release.ledger.problems import bad_request
from stirred.release.ledger.row import Charge, numbers
from stirred.release.ledger.total import Share, TotalInWork
from stirred.spec.budget import Budget, derived
from stirred.spec.composition import FRESH, common_domain
from stirred.spec.domain import AS_GIVEN, BEFORE_A_SAMPLE, Domain
from stirred.spec.exact import Exact, add_up
from stirred.spec.given_numbers import loss, probability
from stirred.spec.output_premetric import PURE
from stirred.spec.problems import StirredError, refused, setting
from stirred.spec.specification import Flavor, Specification
from stirred.survey.amplify import greatest
from stirred.survey.compose import compose, conditions
from stirred.survey.designs import Design, amp, design_from
from stirred.survey.settings import ELEVENTH, Setting

Joins = Callable[[Sequence[Specification]], bool]  # whether specifications compose in the currency of the total
_SAMPLE = Setting("sample")
_INSTEAD = "compose on the sample first, then amplify once"
UNSTATED = (
    "its loss is amplified by a sample, and it states neither the design nor the loss on the sample: nothing shows "
    "what the sample makes of it"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How the sample of a release was drawn, and what the release lost on it before amplification.

    ``joint`` names dependent samples with the probability that a unit is in both, or "unknown": then nothing amplifies.
    ``shares`` are the parts of the inner loss that units can have, by the probabilities of the design; all if left out.

    >>> stated = Sampling.of({"design": {"design": "srswor", "n": 100, "N": 1000}, "inner": "1"})
    >>> stated.design.loss(stated.inner).shown(3)
    '0.159'
    """

    design: Design
    inner: Exact
    joint: Mapping[str, str] = field(default_factory=dict)
    shares: tuple[Fraction, ...] = ()

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Sampling:
        """Return what a ledger keeps."""
        inner, joint = loss(str(document.get("inner")), where="inner"), dict(document.get("joint", {}))
        shares = tuple(probability(share, where="shares") for share in document.get("shares", ()))
        return cls(design=design_from(dict(document.get("design", {}))), inner=inner, joint=joint, shares=shares)

    def by_unit(self) -> list[Exact]:
        """Return the inner loss of units by the probabilities of the design."""
        units = self.design.shape.units or (self.design.shape.rate,)
        return [self.inner * share for share in (self.shares if len(self.shares) == len(units) else [1] * len(units))]

    @property
    def implied(self) -> Exact:
        """Return the loss that the design makes of the inner loss; a unit with a smaller share of it loses less."""
        shape = self.design.shape
        if not (self.design.rated and shape.units):
            return self.design.loss(self.inner)
        return greatest([amp(own, p) for own, p in zip(self.by_unit(), shape.units, strict=True)])

    def document(self) -> dict[str, Any]:
        """Return what a ledger keeps, checked."""
        if self.inner.is_infinite:
            raise bad_request("the inner loss is infinite", where="inner", remedy="give the loss on the sample itself")
        units, within = self.design.shape.units, all(0 < share <= 1 for share in self.shares)
        if self.shares and (len(units) < 2 or len(units) != len(self.shares) or not within):
            raise bad_request(
                f"{self.design} has no units with the shares {', '.join(map(str, self.shares))} of the inner loss",
                where="shares", remedy="give one share above 0 and up to 1 for each stratum, or leave shares out",
            )  # fmt: skip
        for value in self.joint.values():
            if value != "unknown":
                probability(value, where="joint")
        found = {"design": self.design.document(), "inner": str(self.inner), "joint": dict(self.joint),
                 "shares": [str(share) for share in self.shares]}  # fmt: skip
        return {key: value for key, value in found.items() if value}


def check_stated(sampling: Sampling, specification: Specification) -> None:
    """Refuse an amplified loss that is not what the design makes of the inner loss.

    A smaller one would count less than the entry itself implies; a larger one is a loss of other changes. A number
    that was rounded up passes, as long as it is not 1% too large.
    """
    claimed, most = specification.budget.realised, sampling.design.loss(sampling.inner)
    if why := _no_formula(sampling, specification):
        remedy = (
            f"state the loss on the sample itself, without {setting('amplified')}; or convert that to pure DP, and "
            "amplify it"
        )
        raise bad_request(why, where="design", remedy=remedy)
    if greatest([claimed, sampling.implied]) is not claimed:
        raise bad_request(
            f"a loss of {sampling.inner} on the sample is {sampling.implied.shown(6)} by this design, and the "
            f"specification says {specification.budget.shown}", where="inner",
            remedy=f"state {sampling.implied.shown(6)} in the specification, or the design and the inner loss that it "
            "was computed from",
        )  # fmt: skip
    if float(claimed) > 1.01 * float(most):
        raise bad_request(
            f"a loss of {sampling.inner} on the sample is at most {most.shown(6)} by this design, and the "
            f"specification says {specification.budget.shown}", where="inner",
            remedy="state a loss for added and removed records twice, and one for entities of several units as often "
            "as they have units",
        )  # fmt: skip


def _no_formula(sampling: Sampling, specification: Specification) -> str:
    """Say that it is not known what a design makes of a loss in this measure; nothing where it is known.

    Of approximate DP the inner delta is not stated: epsilon is held to the design, where delta has a formula as well.
    """
    output, design = specification.output_premetric, sampling.design
    if output == PURE or (output.delta and design.delta(sampling.inner, output.delta) is not None):
        return ""
    return f"no formula is known for what {design.name} makes of a loss in {output.classic}"


def settle(found: TotalInWork) -> None:
    """Compose charges that share a sample, or have dependent ones, where an amplified loss is among them.

    Adding amplified losses would understate what is lost (section 6.5.2). Losses stated for the sample itself add up.
    Beside a promise that starts at the sample, amplified losses count with what they lose on it; where that does not
    make one promise of everything, they count amplified as well, with what starts earlier.
    """
    charges = found.left
    own = {charge.number: found.specification(charge.specification) for charge in charges}
    early = any(charge.amplified and own[charge.number].domain.stage in BEFORE_A_SAMPLE for charge in charges)
    given = [c.number for c in charges if early and not c.amplified and own[c.number].domain.stage == AS_GIVEN]
    if given:  # the file that was given is the sample, and not what it was drawn from
        own |= {n: own[n].with_flavor(domain=replace(own[n].domain, stage=_SAMPLE.start)) for n in given}
        found.claims.append(f"entry {numbers(given)} says no stage of the file, and counts for the sample itself")
    there = _at_the_sample(charges, own, found.joins)
    settled: set[int] = set()
    whole = False
    if there:
        found.composed += [Share(one, [number]) for number, one in there.items()]
        settled = {c.number for c in charges if not c.amplified and own[c.number].domain.stage == _SAMPLE.start}
        whole = found.joins([*{one.flavor: one for one in (own | there).values()}.values()])
        words = f"entry {numbers([*there])} counts with its loss on the sample where promises start there"
        found.claims.append(words if whole else f"{words}, and amplified where they start earlier")
    done = settled | (there.keys() if whole else set())
    groups = _components([c for c in charges if c.sample is not None and c.number not in done])
    plain = [c for c in charges if c.sample is None or c.number in settled]
    for group in groups:
        plain += _settle_group(group, own, found)
    samples = [next((repr(c.sample) for c in group if c.amplified), "") for group in groups]
    if len(amplified := [f"sample {name}" for name in samples if name]) > 1:
        found.claims.append(f"{' and '.join(amplified)} were drawn independently of each other")
    found.composed += [Share(own[charge.number], [charge.number]) for charge in plain if charge.number in given]
    # The order of entries is that of the ledger.
    found.left = sorted((c for c in plain if c.number not in given), key=lambda charge: charge.number)


def _settle_group(group: list[Charge], own: Mapping[int, Specification], found: TotalInWork) -> list[Charge]:
    """Compose the charges of one sample, or of dependent ones, or set them apart; return what counts as it is."""
    entries = [charge.number for charge in group]
    names = ", ".join(sorted({repr(charge.sample) for charge in group}))
    if not any(charge.amplified for charge in group):
        return group
    if len(group) > 1:
        try:
            together, added = _together(group, own)
        except StirredError as error:
            for charge in group:
                others = ", ".join(str(number) for number in entries if number != charge.number)
                found.set_apart(
                    charge,
                    f"shares sample {names} with entry {others}, and a loss amplified by a sample adds up with no "
                    f"other of that sample: {_INSTEAD}. {error.problems[0].what}",
                )
            return []
        found.composed.append(Share(together, entries, once=True))
        words = f"entry {numbers(entries)}: their losses on sample {names} were added, and not amplified"
        found.claims.append(words if added else _secret(group, own, names))
        return []
    (charge,) = group
    if not charge.sampling:
        found.set_apart(charge, UNSTATED, needs_design=True)
        return []
    if why := _no_formula(Sampling.of(charge.sampling), own[charge.number]):
        found.set_apart(charge, f"{why}, and so what it states cannot be checked")
        return []
    found.claims.append(_secret(group, own, names))
    raised = _at_least_implied(charge, own[charge.number])
    if raised is None:
        return group
    found.composed.append(Share(raised, entries, once=True))
    return []


def _at_least_implied(charge: Charge, own: Specification) -> Specification | None:
    """Return an entry of an earlier version that states less than its design implies, with what is implied."""
    if not charge.sampling:
        return None
    implied = Sampling.of(charge.sampling).implied
    if greatest([own.budget.realised, implied]) is not implied:
        return None
    policy = derived("what the design makes of the loss on the sample", implied, own.budget)
    return replace(own, budget=Budget(policy=policy))


def _secret(group: list[Charge], own: Mapping[int, Specification], names: str) -> str:
    """Say on what an amplified loss rests, and what is lost where that does not hold."""
    known = [Sampling.of(c.sampling).inner if c.sampling else own[c.number].budget.realised for c in group]
    added = "; their losses on it were added, then amplified once" if len(group) > 1 else ""
    shares = dict.fromkeys(s.shares for c in group if c.sampling and (s := Sampling.of(c.sampling)).shares)
    parts = "".join(
        f"; units of its strata lose at most {' and '.join(map(str, each))} of that, as somebody stated"
        for each in shares
    )
    return (
        f"entry {numbers([charge.number for charge in group])}: who is in sample {names} stays secret{added}; against "
        f"somebody who knows the sample, the loss is {add_up(known).shown()}{parts}"
    )


def _at_the_sample(charges: list[Charge], own: Mapping[int, Specification], joins: Joins) -> dict[int, Specification]:
    """Return amplified charges as promises about the sample, by number, where they join others that start there.

    The draw amplifies nothing before those who know the sample, and with their eyes both kinds add up; that holds
    whether the samples are the same or not, and need not be stated. Only pure losses do: no inner delta is stated.
    """
    pure = [c for c in charges if own[c.number].output_premetric == PURE and not own[c.number].budget.is_unbounded]
    start = {own[c.number].flavor: own[c.number] for c in pure if not c.amplified}
    found: dict[int, Specification] = {}
    fits: dict[Flavor, bool] = {}
    for charge in pure:
        one = own[charge.number]
        if charge.amplified and charge.sampling and one.domain.stage != _SAMPLE.start:
            value = greatest([Sampling.of(charge.sampling).inner, one.budget.realised])
            policy = derived("its loss on the sample, not amplified", value, one.budget)
            # The settings of a survey have other words for a dataset before the sample, which is the file itself.
            before = one.domain.dataset == ELEVENTH.domain
            words = Domain.of_file(one.domain.name).dataset if before else one.domain.dataset
            moved = one.with_flavor(domain=replace(one.domain, stage=_SAMPLE.start, dataset=words))
            if moved.flavor not in fits:
                same = [each for each in start.values() if _of_one_file([moved, each])]
                fits[moved.flavor] = any(joins([moved, each]) for each in same)
            found |= {charge.number: replace(moved, budget=Budget(policy=policy))} if fits[moved.flavor] else {}
    return found


def _of_one_file(specifications: Sequence[Specification]) -> bool:
    """Say whether all are about one file at one stage, whatever each looks at."""
    first = specifications[0].domain
    return all(s.domain.is_file_of(first) and s.domain.stage == first.stage for s in specifications)


def _components(charges: list[Charge]) -> list[list[Charge]]:
    """Group charges by sample, and samples by what is stated of their dependence."""
    leader = {charge.sample: charge.sample for charge in charges}

    def find(name: str | None) -> str | None:
        while leader[name] != name:
            name = leader[name]
        return name

    for charge in charges:
        for other in (charge.sampling or {}).get("joint", {}):
            if other in leader:
                leader[find(other)] = find(charge.sample)
    groups: dict[str | None, list[Charge]] = {}
    for charge in charges:
        groups.setdefault(find(charge.sample), []).append(charge)
    return list(groups.values())


def _together(group: list[Charge], own: Mapping[int, Specification]) -> tuple[Specification, bool]:
    """Return one specification of all charges of dependent samples, or refuse; and whether their losses only add."""
    specifications = [own[charge.number] for charge in group]
    for charge, each in zip(group, specifications, strict=True):
        if not charge.amplified and each.domain.stage in BEFORE_A_SAMPLE:
            what = f"the loss of entry {charge.number} is stated for the {each.domain.stage}, and not for the sample"
            raise refused(what, where="sample")
    if _of_one_file(specifications):  # on one sample losses add up, whatever each looks at
        domain = common_domain(specifications)
        specifications = [each.with_flavor(domain=domain) for each in specifications]
    first = specifications[0]
    if any(s.flavor != first.flavor or s.budget.is_unbounded for s in specifications) or first.output_premetric != PURE:
        raise refused("their specifications are not of one flavor with a pure, finite loss", where="sample")
    stated = [Sampling.of(charge.sampling) if charge.sampling else None for charge in group]
    if any(charge.amplified and one is None for charge, one in zip(group, stated, strict=True)):
        named = f"{setting('design')}, {setting('inner')}"
        raise refused(f"an entry does not state its design and its inner loss ({named})", where="sample")
    inner: dict[str, list[Exact]] = {}
    units: list[list[Exact]] = []
    designs: dict[str, set[Design]] = {}
    for charge, one, promise in zip(group, stated, specifications, strict=True):
        name = str(charge.sample)
        inner.setdefault(name, []).append(promise.budget.realised if one is None else one.inner)
        units.append([promise.budget.realised] if one is None else one.by_unit())
        designs.setdefault(name, set()).update([] if one is None else [one.design])
    if any(len(found) != 1 for found in designs.values()):
        raise refused("the entries of one sample do not state one design", where="sample")
    drawn = {name: found.pop() for name, found in designs.items()}
    losses = {name: add_up(found) for name, found in inner.items()}
    joint = {p for one in stated if one is not None for other, p in one.joint.items() if other in drawn}
    lost, rests = _lost(losses, drawn, joint, units)
    # Never less than what was counted before an entry came in, amplified or not: no further entry lowers a total.
    parts = [[s.budget.realised for c, s in zip(group, specifications, strict=True) if c.amplified is kind]
             for kind in (True, False)]  # fmt: skip
    value = greatest([lost, *map(add_up, parts)])
    only_added = len(drawn) > 1 and not rests
    rule = "losses on the sample added, then amplified once"
    if only_added:
        rule = "losses on samples that may depend on each other added, and not amplified"
    policy = derived(rule, value, *(s.budget for s in specifications))
    relies = tuple(dict.fromkeys(reliance for s in specifications for reliance in s.relies_on))
    assumed = (*dict.fromkeys(assumption for s in specifications for assumption in s.assumptions), *rests, FRESH)
    alone = tuple(dict.fromkeys(line for s in specifications for line in s.alone))
    together = replace(first, budget=Budget(policy=policy), relies_on=relies, assumptions=assumed, alone=alone)
    return together, only_added


def _lost(
    losses: Mapping[str, Exact], drawn: Mapping[str, Design], joint: set[str], units: list[list[Exact]]
) -> tuple[Exact, tuple[str, ...]]:
    """Return what releases from these samples lose together, and on what that rests."""
    names = list(losses)
    if len(names) == 1:
        (design,) = drawn.values()
        if not (design.rated and design.shape.units):
            return design.loss(losses[names[0]]), ()
        each = [own * len(design.shape.units) if len(own) == 1 else own for own in units]
        return greatest([amp(add_up(list(own)), p) for *own, p in zip(*each, design.shape.units, strict=True)]), ()
    even = all(len({*design.shape.units}) == 1 for design in drawn.values())
    known = next(iter(joint)) if len(names) == 2 and len(joint) == 1 and even else "unknown"
    if joint != {"unknown"} and not all(design.rated for design in drawn.values()):
        raise refused("a joint probability is of use for designs that draw unit by unit", where="sample")
    found = compose([losses[name] for name in names], [drawn[name].shape.rate for name in names], joint=known)
    return found, conditions(2, known)[-1:]
