"""Assumptions that the ledger itself contradicts, and what holds then."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from stirred.release.ledger.row import Charge, entry_names, numbers
from stirred.spec.doubts import MORE_RUNS, Doubt
from stirred.spec.invariant import Margin
from stirred.spec.multiverse import Multiverse, Verdict
from stirred.spec.specification import ONE_RUN, KeysAlone, OneRun, Reliance, Specification, Unpublished

PlanOf = Callable[[str], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contradiction:
    """What ``entries`` assume and the entries ``by`` contradict, or may contradict where it is not ``certain``."""

    reliance: Reliance
    entries: tuple[int, ...]
    by: tuple[int, ...]
    then: str
    certain: bool = True

    @property
    def assumption(self) -> str:
        """Return the assumption in words."""
        return self.reliance.words

    def __str__(self) -> str:
        verb = "assumes" if len(self.entries) == 1 else "assume"
        return f"{entries_in_words(self.entries)} {verb} that {self.assumption}. {self.then}"


def contradictions(
    charges: Sequence[Charge], specification: Callable[[str], Specification], *, plan_of: PlanOf | None = None
) -> tuple[Contradiction, ...]:
    """Return what entries that count assume and other entries contradict.

    Equal specifications are looked at once: there may be very many entries and few of these.
    """
    groups: dict[str, list[Charge]] = {}
    for charge in charges:
        if charge.spent and charge.specification:
            groups.setdefault(charge.specification, []).append(charge)
    found: list[Contradiction] = []
    for digest, group in groups.items():
        for reliance in specification(digest).relies_on:
            if isinstance(reliance, Unpublished):
                others = [(specification(other), those) for other, those in groups.items() if other != digest]
                found += _published(reliance, group, others)
    found += _same_keys({digest: (specification(digest), group) for digest, group in groups.items()})
    if plan_of is not None:
        found += _run_again(groups, specification, plan_of)
    return tuple(found)


def _published(
    reliance: Unpublished, group: list[Charge], others: list[tuple[Specification, list[Charge]]]
) -> Iterator[Contradiction]:
    """Say who publishes exactly what these entries assume to be published nowhere."""
    figure = Multiverse(invariants=(reliance.figure,))
    those = _numbers(group)
    answers = [(other.multiverse.refines(figure).verdict, charges) for other, charges in others]
    for wanted in (Verdict.YES, Verdict.CANNOT_TELL):
        by = _numbers([charge for verdict, charges in answers if verdict is wanted for charge in charges])
        if not by:
            continue
        certain = wanted is Verdict.YES
        what = f"the counts of {' x '.join(reliance.figure.variables)}"
        publish = "may publish" if not certain else "publishes" if len(by) == 1 else "publish"
        then = (
            f"{entries_in_words(by)} {publish} {what} exactly. The loss of "
            f"{entries_in_words(those, lower=True)} then holds only between files that agree on them, and {what} "
            "are not protected."
        )
        yield Contradiction(reliance=reliance, entries=those, by=by, then=then, certain=certain)


def _same_keys(groups: Mapping[str, tuple[Specification, list[Charge]]]) -> Iterator[Contradiction]:
    """Say that entries use the same record keys, each for a table that has them alone, or that another looks at them.

    What looks at the column of the keys may publish them, and then nothing is random in the noise that they give. A
    release that lists no columns looks at all of them; where the column of the keys is not known, any may look at it.
    """
    keys = {d: r for d, (s, _) in groups.items() for r in s.relies_on if isinstance(r, KeysAlone)}
    keyed = [charge for digest in keys for charge in groups[digest][1]]
    for digest, reliance in keys.items():
        those = _numbers(groups[digest][1])
        for wanted in (Verdict.YES, Verdict.CANNOT_TELL):
            others = [
                charge
                for other, (said, charges) in groups.items()
                if other not in keys and _uses(said, reliance.column) is wanted
                for charge in charges
            ]
            if not others:
                continue
            by, certain = _numbers(others), wanted is Verdict.YES
            use = "may use" if not certain else "uses" if len(by) == 1 else "use"
            column = (
                f"{reliance.column}, the record keys"
                if reliance.column
                else "the record keys, whose column is not known,"
            )
            then = (
                f"{entries_in_words(by)} {use} {column} of {entries_in_words(those, lower=True)}. If they are "
                "published, no noise of these is random: their loss does not hold, and they do not add up."
            )
            yield Contradiction(reliance=reliance, entries=those, by=by, then=then, certain=certain)
    if len(keyed) > 1:
        those = _numbers(keyed)
        then = (
            f"{entries_in_words(those)} use the same record keys. Their noise is not independent, and no bound is "
            "proven for them together: the loss of each is that of its table alone, and they do not add up."
        )
        yield Contradiction(reliance=next(iter(keys.values())), entries=those, by=those, then=then)


def _uses(specification: Specification, column: str) -> Verdict:
    """Say whether a release looks at a column, as far as it says which ones it looks at."""
    columns = {name.removeprefix("person ") for name in specification.domain.columns}
    if not column or not columns:
        return Verdict.CANNOT_TELL
    return Verdict.YES if column in columns else Verdict.NO


def _run_again(
    groups: Mapping[str, list[Charge]], specification: Callable[[str], Specification], plan_of: PlanOf
) -> Iterator[Contradiction]:
    """Say which entries claim to be the one run of a plan that was run more than once on the same files.

    A run that was given up has no bundle: it cannot be chosen, and does not count as another run.
    """
    plans: dict[Hashable, list[str]] = {}
    for digest in groups:
        plans.setdefault(same_plan(specification(digest)), []).append(digest)
    for digests in plans.values():
        claiming = {digest for digest in digests if ONE_RUN in specification(digest).relies_on}
        drawn = [charge for digest in digests for charge in groups[digest] if charge.drawn and not charge.given_up]
        if not claiming or len(drawn) < 2:
            continue
        runs: dict[str, list[Charge]] = {}
        for charge in drawn:
            if plan := plan_of(charge.id):
                runs.setdefault(plan, []).append(charge)
        for same in runs.values():
            those, by = _numbers([charge for charge in same if charge.specification in claiming]), _numbers(same)
            if those and len(by) > 1:
                then = (
                    f"{entries_in_words(by)} are runs of one plan on one file. A release chosen among them has the "
                    "loss of all of them together, which the total counts, and not its own alone."
                )
                yield Contradiction(reliance=ONE_RUN, entries=those, by=by, then=then)


def same_plan(specification: Specification) -> Hashable:
    """Return what runs of one plan on one file have in common: what is fixed, the unit, and the loss with its formula.

    However a rate is spelled, and whether columns are listed or left to the default, is not part of it. Nor is what a
    person calls the file, or which doubts were accepted.
    """
    fixed = [
        replace(one, variables=tuple(sorted(one.variables))) if isinstance(one, Margin) else one
        for one in specification.multiverse.invariants
    ]
    unit = replace(specification.input_premetric, post_imputation=None)
    return frozenset(fixed), unit, specification.output_premetric, specification.budget


def rested(
    specification: Specification,
    relying: Sequence[tuple[tuple[Reliance, ...], tuple[int, ...]]],
    contradicted: Sequence[Contradiction],
) -> Specification:
    """Return a specification that rests on no contradicted assumption.

    ``relying`` says which entries rely on what. Where some of them still rely on it, the assumption names these.
    """
    for one in contradicted:
        if not one.certain or one.reliance not in specification.relies_on:
            continue
        void = {n for other in contradicted if other.certain and other.reliance == one.reliance for n in other.entries}
        left = [n for reliances, entries in relying if one.reliance in reliances for n in entries if n not in void]
        words = (f"{one.assumption} (entry {numbers(left)})",) if left else ()
        kept = [said for said in specification.assumptions if said != one.assumption]
        relies_on = tuple(each for each in specification.relies_on if each != one.reliance)
        specification = replace(specification, assumptions=(*kept, *words), relies_on=relies_on)
    return specification


def entries_in_words(entries: Sequence[int], *, lower: bool = False) -> str:
    """Return numbers of entries as the subject of a sentence.

    >>> entries_in_words((3,)), entries_in_words((1, 2), lower=True)
    ('Entry 3', 'entries 1-2')
    """
    words = f"{'Entry' if len(entries) == 1 else 'Entries'} {numbers(entries)}"
    return words[:1].lower() + words[1:] if lower else words


def doubt_about(one: Contradiction, *, known: int, instead: Callable[[Sequence[int]], str]) -> Doubt:
    """Return the doubt about a planned release, entry ``known``, that contradicts others or is contradicted.

    All of them refuse. A second run of a plan does so because no run of it is the one run then, as the first one may
    have told its readers; ``instead`` says what to do in its place. Each doubt has a name of its own, with the entries
    and the variables: accepting one accepts no other.
    """
    if isinstance(one.reliance, OneRun):
        earlier = tuple(number for number in one.by if number != known)
        return Doubt(
            kind=MORE_RUNS,
            about=entry_names(earlier),
            what=f"{entries_in_words(earlier)} ran this plan on this file before. A release chosen among the runs has "
            "the loss of all of them together, and each run costs as much again",
            remedy=instead(earlier),
        )
    if isinstance(one.reliance, KeysAlone) and known not in one.entries:
        column = f"{one.reliance.column}{', ' if one.reliance.column else ''}the column of these keys"
        return Doubt(
            kind="contradicts",
            about=f"{entry_names(one.entries)}:{one.reliance.about}",
            what=f"{entries_in_words(one.entries)} assumed that {one.assumption}, and this release "
            f"{f'uses {column}' if one.certain else f'may use {column}'}: if it is published, that noise is known",
            remedy=f"leave {one.reliance.column or 'that column'} out of this release",
        )
    if isinstance(one.reliance, KeysAlone):
        earlier = tuple(number for number in one.by if number != known)
        return Doubt(
            kind="contradicted-by",
            about=f"{entry_names(earlier)}:{one.reliance.about}",
            what=f"this release assumes that {one.assumption}, and {entries_in_words(earlier, lower=True)} "
            f"{'may use' if not one.certain else 'uses' if len(earlier) == 1 else 'use'} them too: nothing is proven "
            "of what they show together, and the ledger could state no total",
            remedy="let keys be drawn: leave keys and record_key out",
        )
    is_ours = known in one.entries
    others = tuple(number for number in (one.by if is_ours else one.entries) if number != known)
    others_in_words = entries_in_words(others, lower=is_ours)
    relying, publishing = ("this release", others_in_words) if is_ours else (others_in_words, "this release")
    single = {"this release": True, others_in_words: len(others) == 1}
    assume = "assumes" if single[relying] else "assume"
    publish = "may publish" if not one.certain else "publishes" if single[publishing] else "publish"
    what = " x ".join(one.reliance.figure.variables)
    said = f"{relying} {assume} that {one.assumption}, and {publishing} {publish} them exactly"
    return Doubt(
        kind="contradicted-by" if is_ours else "contradicts",
        about=f"{entry_names(others)}:{one.reliance.about}",
        what=f"{said}: the counts of {what} would not be protected",
        remedy=f"release without {what}, or protect it in the same way",
    )


def _numbers(charges: Sequence[Charge]) -> tuple[int, ...]:
    return tuple(sorted(charge.number for charge in charges))
