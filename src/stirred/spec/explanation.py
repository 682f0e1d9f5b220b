"""A specification in plain language, for a board: what is not protected comes first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby
from typing import Final

from stirred.spec.budget import ByUniverse, PermutationSwapping
from stirred.spec.convert import path_factor
from stirred.spec.convert_output import at_most_one, hellinger_to_tv, zcdp_to_epsilon
from stirred.spec.exact import Exact, exact, exp, sqrt
from stirred.spec.invariant import ALL, Invariant, Margin, plural, records_of, the
from stirred.spec.number_text import small
from stirred.spec.output_premetric import OutputPremetric
from stirred.spec.specification import Specification
from stirred.spec.text import Row, rows_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One of the five questions with its answer in words; ``below`` is the answer where the loss stands above it."""

    question: str
    block: str
    answer: str
    below: str


# What is held fixed is known to the attacker in the sense of the promise; a release publishes some of it, or all.
NOT_PROTECTED: Final = "NOT protected, because it is held fixed (published exactly, or taken as known)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What is not protected, the five answers, what they assume, and what the number means.

    ``fixed`` are the figures held fixed, and ``unprotected`` what no specification of this kind protects.
    """

    fixed: tuple[str, ...]
    unprotected: tuple[str, ...]
    answers: tuple[Answer, ...]
    meaning: str
    assumptions: tuple[str, ...]

    @property
    def not_protected(self) -> tuple[str, ...]:
        """Return all that is not protected."""
        return self.fixed + self.unprotected

    @property
    def how_to_read(self) -> str:
        """Return what the number means, with its label."""
        return f"How to read it: {self.meaning}"

    @property
    def why_not_compare(self) -> str:
        """Return why the number cannot be set beside another one, with its label."""
        return f"{NOT_BESIDE}: {WHY_NOT_BESIDE}"

    def __str__(self) -> str:
        lines = [f"{NOT_PROTECTED}:"]
        lines += [f"  - {item}" for item in self.not_protected]
        lines += ["", "What is promised:"]
        lines += [f"  {a.question:<11}{a.answer}" for a in self.answers]
        lines += ["", self.how_to_read, "", self.why_not_compare]
        if self.assumptions:
            lines += ["", "This holds if:", *(f"  - {a}" for a in self.assumptions)]
        return "\n".join(lines)


NOT_BESIDE: Final = "Why this number cannot be set beside another one"
WHY_NOT_BESIDE: Final = (
    "like a price, it means nothing without its currency. "
    "The currency is the other four answers. Publish more figures exactly, call a smaller thing a unit, or measure "
    "change more gently, and the number falls although nobody is better protected. Two numbers compare only if "
    "the other four answers are the same."
)


def explain(specification: Specification, *, with_paper: bool = True) -> Explanation:
    """Return the specification in words, what is *not* protected first; ``with_paper`` tells the paper's bound too.

    >>> from stirred.spec import catalogue
    >>> explain(catalogue.load("das-2020").specification).not_protected[0]
    'the number of persons in each state'
    """
    return Explanation(
        fixed=(fixed := _fixed(specification)),
        unprotected=_unprotected(specification, nothing_fixed=not fixed),
        answers=_answers(specification, with_paper=with_paper),
        meaning=_meaning(specification),
        assumptions=specification.assumptions,
    )


def _fixed(specification: Specification) -> tuple[str, ...]:
    items = [the(invariant) for invariant in specification.multiverse.invariants]
    premetric = specification.input_premetric
    if premetric.bounded and specification.multiverse.universes is None:
        listed = specification.multiverse.with_invariants([])
        effective = specification.flavor.effective_multiverse
        if set(effective.invariants) != set(listed.invariants):
            items.append(
                f"the total number of {plural(premetric.unit)}: not listed, but fixed by the distance itself, "
                "which never compares files of different size"
            )
        elif not items:
            items.append(f"the total number of {plural(premetric.unit)}")
    if specification.multiverse.universes is not None:
        items.append("what tells versions apart that no listed universe holds together")
    return (*items, *specification.multiverse.consequences)


def _unprotected(specification: Specification, *, nothing_fixed: bool) -> tuple[str, ...]:
    known = "whatever can be worked out from these figures together with other knowledge"
    items = ["nothing: no figure is published exactly" if nothing_fixed else known]
    premetric = specification.input_premetric
    if premetric.post_imputation:
        items.append(
            f"people as such: the unit is a {records_of(premetric.unit, 1)} after imputation, and one person's answers "
            "may have been copied into several records"
        )
    return tuple(items)


def _answers(specification: Specification, *, with_paper: bool) -> tuple[Answer, ...]:
    domain, premetric = specification.domain, specification.input_premetric
    output = specification.output_premetric
    coarser = f"; exact figures are those after preparation ({domain.prepared_in_words})"
    made = coarser if domain.prepared else ""
    spoilt = "" if output.immune else "; a function of the output may lie further apart than the output itself"
    part = f"; measured on {', '.join(specification.measured_on)} only" if specification.measured_on else ""
    if specification.multiverse.is_vacuous:
        where = "everywhere: no figure is published exactly"
        if premetric.bounded:
            where = (
                f"between versions of the file with the same number of {plural(premetric.unit)}; nothing else is fixed"
            )
    else:
        where = "only between versions of the file that agree on all that is held fixed"
        if specification.multiverse.universes is not None:
            where = f"only between versions in one of {len(specification.multiverse.universes)} listed universes"
        if premetric.bounded:
            where += ", and so have the same number of records"
    words = (
        ("who", "domain", f"{domain.dataset}; protected as {domain.stage_in_words}{made}"),
        ("where", "multiverse", where),
        ("what", "input_premetric", _what(specification)),
        ("how", "output_premetric", f"{output.words}; known as {output.classic}{spoilt}{part}"),
    )
    if specification.budget.is_free:
        below = "a letter: choose its value"
        whole = f"{specification.budget.shown}, {below}"
    else:
        below = _how_much(specification, with_paper=with_paper)
        whole = f"{specification.budget_text} {below}"
    return (
        *(Answer(question=question, block=block, answer=answer, below=answer) for question, block, answer in words),
        Answer(question="how much", block="budget", answer=whole, below=below),
    )


def _nearest(specification: Specification) -> Exact:
    """Return how far apart versions are at least, as stated; a table of distances counts where it says less."""
    stated, premetric = exact(specification.multiverse.nearest), specification.input_premetric
    own = premetric.least if premetric.table else stated
    return stated if own >= stated else own if own > 1 else exact(1)


def _what(specification: Specification) -> str:
    premetric, nearest = specification.input_premetric, _nearest(specification)
    counted = f"the {premetric.words}" if premetric.is_metric else premetric.words
    words = f"one {premetric.unit}; the distance between two versions of the file is {counted}"
    if nearest > 1 and premetric.is_metric:
        # A preparation may map versions that are closer to one and the same file, and nothing is lost between those.
        differ = " and differ once prepared" if specification.domain.prepared else ""
        words += f"; versions that agree on the fixed figures{differ} are at least {nearest} apart"
    if premetric.post_imputation is None and not specification.budget.is_free:  # a definition has no file
        words += "; not stated: whether imputation copied answers between records"
    return words


def _how_much(specification: Specification, *, with_paper: bool) -> str:
    budget = specification.budget
    text = f"{_how_far(specification)}{_exactly(budget.realised)}{_between_nearest(specification)}"
    if isinstance(budget.policy, ByUniverse) and budget.policy.at is None:
        text += f". This is the largest of the budgets {budget.policy}"
    elif isinstance(budget.policy, ByUniverse):
        text += f". It depends on the universe; this is its value for {budget.policy.at}, that of this file"
    elif budget.varies:
        text += ". It depends on the figures held fixed; this is its value for those of this file"
    paper = budget.paper_epsilon
    if with_paper and paper is not None and paper > budget.realised and paper.shown() != budget.realised.shown():
        text += f". The paper's bound is {paper.shown()}; this is a sharper one"
    return text


def _how_far(specification: Specification) -> str:
    """Say between which versions the budget holds as it is, and what the specification states for others.

    A distance says something about every pair: the budget times the distance. From a neighbour relation that follows
    where losses add up along single changes, none of which breaks an invariant; otherwise nothing is stated.
    """
    premetric, output = specification.input_premetric, specification.output_premetric
    if premetric.related_only:
        return f"between versions related by {premetric.relation}; nothing is stated for any others"
    if premetric.within is not None and not premetric.closure:
        near = premetric.counted(premetric.within)
        stated = f"between versions that differ in {'up to ' if premetric.within > 1 else ''}{near}"
        stated = stated if premetric.counts else f"between versions at most {premetric.within} apart"
        if premetric.within < specification.multiverse.nearest:
            return f"{stated}; under the fixed figures there are none so close, and nothing is promised"
        return f"{stated}; {_further(specification)}"
    if output.delta:
        text = "at distance 1; at distance k epsilon is k times that, and delta stays the same"
    else:
        text = f"at distance 1, {'k²' if output.name == 'D_NoR' else 'k'} times that at distance k"
    return f"{text}{', and never above 1' if output.at_most_one else ''}"


def _further(specification: Specification) -> str:
    """Say what follows for versions further apart than neighbours, by group privacy."""
    premetric, output = specification.input_premetric, specification.output_premetric
    if not premetric.counts or path_factor(specification) != 1 or not (output.is_metric or output.delta):
        return "nothing is stated for versions further apart"
    between = "" if specification.domain.datasets is not None else "if every file in between is eligible, "
    if output.is_metric:
        times = "k²" if output.name == "D_NoR" else "k"
        capped = ", and never above 1" if output.at_most_one else ""
        return f"{between}{times} times that follows for versions that differ in k{capped}"
    if premetric.within != 1:
        return "nothing is stated for versions further apart"
    delta = "delta (e^(k ε) - 1)/(e^ε - 1) times itself"
    return f"{between}for versions that differ in k epsilon is k times that, and {delta}"


def _between_nearest(specification: Specification) -> str:
    """Say what the budget comes to between the nearest versions, where these are more than 1 apart."""
    nearest, value = _nearest(specification), specification.budget.realised
    if nearest == 1 or not specification.input_premetric.is_metric or value.is_infinite:
        return ""
    times = nearest * nearest if specification.output_premetric.name == "D_NoR" else nearest
    total = value * times
    if specification.output_premetric.at_most_one:
        total = at_most_one(total)
    return f": {total.shown()} between the nearest two versions, {nearest} apart"


_MOST_CHARACTERS: Final = 16


def _exactly(value: Exact) -> str:
    """Add the exact number where what is shown was rounded up."""
    if value.is_infinite or (value.is_rational and exact(value.shown()) == value):
        return ""
    if value.is_rational and value.rational.denominator > 10**9:
        return " (a certified upper bound)"
    formula = str(value)
    # A longer one would tell a reader nothing and break the line; documents keep it.
    return f" (rounded up from exactly {formula})" if len(formula) <= _MOST_CHARACTERS else " (rounded up)"


def _meaning(specification: Specification) -> str:
    if specification.budget.is_free:
        return "the smaller the letter's value, the less an output can tell versions of the file apart."
    return why_nothing(specification) or _read(specification)


def why_nothing(specification: Specification) -> str:
    """Say why a specification protects nothing, as its first words on every page; empty where it protects.

    >>> from stirred.spec import catalogue
    >>> why_nothing(catalogue.load("das-2020").specification)
    ''
    """
    budget, premetric = specification.budget, specification.input_premetric
    if budget.is_free:
        return ""
    if budget.realised.is_infinite:
        return "the budget is infinite, so nothing is promised."
    policy = budget.policy
    if isinstance(policy, PermutationSwapping) and not any(part.largest_stratum for part in policy.strata):
        return "nothing can be swapped, so the file is published as it is. 0 is not protection here."
    if not premetric.closure and premetric.within is not None and premetric.within < specification.multiverse.nearest:
        return (
            f"only versions that differ in {'up to ' if premetric.within > 1 else ''}"
            f"{premetric.counted(premetric.within)} are compared. No two versions that agree on the fixed figures are "
            "so close, so nothing is promised."
        )
    return "the budget is so large that nothing is promised." if budget.realised > exact(10**5) else ""


def _read(specification: Specification) -> str:
    """Return what the budget means for the two versions for which it is read."""
    budget, output, premetric = specification.budget, specification.output_premetric, specification.input_premetric
    nearest = _nearest(specification) if premetric.is_metric else exact(1)
    changed = f"{nearest} {plural(premetric.unit) if nearest > 1 else premetric.unit}"
    if premetric.within is not None and premetric.within > 1:
        changed = f"up to {premetric.within} {plural(premetric.unit)}"
    apart = f"differ in {changed}"
    if premetric.related_only:
        apart = f"are related by {premetric.relation}"
    elif not premetric.counts:
        apart = f"are at distance {_nearest(specification)}"
    if output.name in ("D_Mult", "D_Mult^delta"):
        factor = exp(budget.realised * nearest)
        if output.delta:
            return (
                f"if the true file and another version of it {apart}, then for every set of outputs, its probability "
                f"under one is at most {_large(factor)} times that under the other, plus {small(output.delta)}"
                f"{_hardly(factor)}. A single output may change the odds by more, and that may happen with a larger "
                "probability."
            )
        return (
            f"if the true file and another version of it {apart}, seeing the output changes "
            f"the odds between them by a factor of at most {_large(factor)}{_hardly(factor)}."
        )
    if output.name == "D_Max":
        return (
            f"if the true file and another version of it {apart}, no output is more than "
            f"{_large(exp(budget.realised * nearest))} times as probable under the first as under the second. Nothing "
            "is stated the other way round, unless that distance is finite too."
        )
    if output.name == "D_NoR":
        mu = sqrt(2 * budget.realised) * nearest
        rho2, delta = budget.realised * nearest * nearest, Fraction(1, 10**10)
        usual, sharper = (zcdp_to_epsilon(rho2, delta=delta, method=each) for each in ("bun-steinke", "cks"))
        return (
            f"by this measure, two versions that {apart} give outputs no further apart than "
            f"two bell curves of unit width whose centres are {mu.shown()} apart{_overlap(mu)}. The same promise is "
            f"also quoted as ε={usual.shown()} at δ=1e-10 by the usual formula, ε={sharper.shown()} by a sharper one, "
            "for such versions: another scale, not a second loss."
        )
    if output.name == "D_GDP":
        mu = budget.realised * nearest
        return (
            f"telling apart two versions that {apart} is at least as hard as telling apart "
            f"two bell curves of unit width whose centres are {mu.shown()} apart{_overlap(mu)}."
        )
    if output.name == "D_TV":
        most = at_most_one(budget.realised * nearest).shown()
        when = f"when {changed} change{'s' if changed == f'1 {premetric.unit}' else ''}"
        when = when if premetric.counts else f"between two versions that {apart}"
        return f"the probability of any output event changes by at most {most} {when}; one may still give a file away."
    return _read_other(output, budget.realised * nearest, f"two versions that {apart}")


def _read_other(output: OutputPremetric, far: Exact, versions: str) -> str:
    """Return what a budget means in the rarer measures."""
    if output.curve is not None:
        curve = ", ".join(f"{b} at size {a}" for a, b in output.curve.corners[:-1])
        often = "" if far == 1 else f" The curve is applied {far.shown()} times, each time to the power before."
        return f"no test between {versions} has more power than the curve gives: {curve}, and straight between.{often}"
    if output.name == "D_H":
        most = hellinger_to_tv(at_most_one(far)).shown()
        return f"between {versions}, the probability of any output event changes by at most {most}."
    if output.name == "D_chi2":
        return f"between {versions}, the average squared relative change of probabilities is at most {far.shown()}."
    if output.name == "D_W1":
        return (
            f"between {versions}, a published number moves by at most {far.shown()} on average. Nothing is said about "
            "how well they can be told apart."
        )
    return "an average over outputs of the factor by which odds change, on a logarithmic scale."


def _overlap(mu: Exact) -> str:
    """Say what a distance between bell curves means, where it is large."""
    return ": they hardly overlap, so on its own this number promises little" if mu > exact(6) else ""


def _hardly(factor: Exact) -> str:
    return ": on its own, practically no limit" if factor > exact(10**6) else ""


def _large(value: Exact) -> str:
    """Write a factor so that people can take it in; rounded up."""
    number = value.enclose().high
    if number < 1000:
        return value.shown(1) if value > exact(10) else value.shown()
    if number < 10**6:
        return f"{-(-int(number) // 1) + (number != int(number)):,}"
    digits = number.adjusted()
    lead = int(number.scaleb(-digits)) + 1
    names = {6: "million", 9: "billion", 12: "trillion"}
    base = digits - digits % 3
    if base in names:
        return f"{int(number.scaleb(-base)) + 1} {names[base]}"
    return f"{lead} followed by {digits} zeros"


# More variables than this are counted, and named by whoever explains at length.
_MOST_VARIABLES: Final = 10


def brief(specification: Specification) -> str:
    """Return the specification in a few lines: what is not protected, the promise, and how to read it.

    >>> from stirred.spec import catalogue
    >>> print(brief(catalogue.load("pure-dp").specification))
    held fixed  the total number of records
    promise    ε (how much) for one record (what) of 'datasets' (who), among versions with as many
               records (where), measured in odds (how).
    meaning    the smaller the letter's value, the less an output can tell versions of the file apart.
    """
    return rows_text([("held fixed", published_exactly(specification)), *promise_rows(specification)])


def promise_rows(specification: Specification) -> list[Row]:
    """Return the promise in one sentence, and how to read its number."""
    return [("promise", promise(specification)), ("meaning", explain(specification).meaning)]


def promise(specification: Specification) -> str:
    """Return the promise in one sentence: the loss and its four companions.

    >>> from stirred.spec import catalogue
    >>> print(promise(catalogue.load("das-2020").specification))
    ρ²=55.371 (how much) for one person record after imputation (what) of 'CEF' (who), among versions with the same
    fixed figures (where), measured in odds, on average (how).
    """
    return (
        f"{specification.budget_text} (how much) for {_unit(specification)} (what) of '{specification.domain.name}' "
        f"(who), among versions {_agreeing(specification)} (where), measured in "
        f"{specification.output_premetric.measured} (how)."
    )


def blocks(specification: Specification) -> list[Row]:
    """Return the five blocks, each in a few words.

    >>> from stirred.spec import catalogue
    >>> for question, answer in blocks(catalogue.load("pure-dp").specification):
    ...     print(f"{question}: {answer}")
    who: datasets
    where: the total number of records
    what: one record
    how: odds (D_Mult)
    how much: ε
    """
    premetric = specification.output_premetric
    return [
        ("who", specification.domain.name),
        ("where", published_exactly(specification)),
        ("what", _unit(specification)),
        ("how", f"{premetric.measured} ({premetric.name})"),
        ("how much", specification.budget_text),
    ]


def _unit(specification: Specification) -> str:
    premetric = specification.input_premetric
    unit = f"{premetric.unit} record after imputation" if premetric.post_imputation else premetric.unit
    return f"one {unit}" if premetric.within in (None, 1) else f"up to {premetric.within} {plural(unit)}"


def _agreeing(specification: Specification) -> str:
    if not specification.multiverse.is_vacuous:
        return "with the same fixed figures"
    if specification.input_premetric.bounded:
        return f"with as many {plural(specification.input_premetric.unit)}"
    return "of any kind"


def published_exactly(specification: Specification) -> str:
    """Return all figures that are published exactly, in one line.

    >>> from stirred.spec import catalogue
    >>> print(published_exactly(catalogue.load("das-2020").specification))
    the number of persons in each state; the number of occupied group quarters by type in each block; the number of
    housing units in each block
    """
    invariants = specification.multiverse.invariants
    if not invariants and specification.input_premetric.bounded:
        return f"the total number of {plural(specification.input_premetric.unit)}"
    return "; ".join(figures(invariants)) or "nothing"


def figures(invariants: Sequence[Invariant]) -> Iterable[str]:
    """Yield the invariants in short: counts of the same things are named once, long lists of variables are cut.

    Of two tables the first crosses what is swapped, and is never cut.

    >>> margins = [Margin(of="household", variables=by) for by in (("size", "county"), ("size", "tenure"))]
    >>> list(figures(margins))
    ['the number of households by size x county, and by size x tenure']
    """
    for things, group in groupby(invariants, key=_things):
        together = list(group)
        if things is None:
            yield from map(the, together)
        else:
            margins = [each.variables for each in together if isinstance(each, Margin)]
            first, others = margins[: len(margins) - 1], margins[len(margins) - 1 :]
            crossed = [*(" x ".join(each) for each in first), *map(_crossed, others)]
            yield f"the number of {things} by {', and by '.join(crossed)}"


def _things(invariant: Invariant) -> str | None:
    """Return what a margin by variables counts; None for any other invariant."""
    if not isinstance(invariant, Margin) or invariant.level or not invariant.variables or ALL in invariant.variables:
        return None
    return plural(invariant.of)


def _crossed(variables: Sequence[str]) -> str:
    """Cross variables; of very many the first and the last, which may stand for all those of the persons."""
    if len(variables) > _MOST_VARIABLES:
        kept = _MOST_VARIABLES - 2
        variables = (*variables[:kept], f"{len(variables) - kept - 1} more columns", variables[-1])
    return " x ".join(variables)
