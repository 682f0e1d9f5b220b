"""Doubts: what speaks against releasing a file, and the names by which a person overrides them.

There is one list of doubts. The plan computes it once, from data and settings, before anything random happens. Python,
command line, report, ledger and `publish` all show this list, and all refuse while a doubt about protection stands.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from stirred.spec.problems import Problem, StirredError, Worded, in_plan, marked, setting, written
from stirred.spec.specification import ONE_RUN, Specification

NOTHING_PROMISED: Final = "nothing-promised"
_LONG: Final = 60  # letters of a remark that several doubts share and the first one alone says
_ACCEPTED: Final = "a person accepted these doubts about protection by name: "
# What an accepted doubt means for readers of the release: no more than its public name tells.
MEANINGS: Final = {
    "areas-from-file": "the list of areas was read off the confidential file",
    "clamped": "many values of {} lie beyond their declared bounds and count as the nearer one",
    "contradicted-by": "entry {0} of the ledger publishes {1} exactly, which it protects",
    "contradicts": "it publishes {1} exactly, which entry {0} of the ledger protects",
    "coordinates": "{} may show where each record is",
    "draft": "the declared values of {} were read off the confidential file",
    "formula": "{} has texts that a spreadsheet runs as formulas: import the column as text",
    "earlier-dataset": "nothing but this statement shows that {} belongs to a release of the same dataset",
    "exposed": "more records than the policy allows are unique on what is published unchanged",
    "identifier": "{} may identify records",
    "levels": "the levels of areas may be named in the wrong order at {}",
    "large-delta": "delta is not small: so much is added to the bound on every probability",
    "left-behind": "{} follows from the values before the swap and may show which records were swapped",
    "missing": "{} has texts that may mean a missing value and are treated as codes",
    "more-runs": "the plan was run more than once, see entry {} of the ledger",
    "mostly-unmoved": "most records are published as they are, surely or nearly so",
    "nearly-tells": "{} often shows which records were swapped",
    "nothing-promised": "the loss is infinite: nothing is promised",
    "nothing-swapped": "nothing can be swapped, and only the randomised response protects",
    "other-version": "another version of stirred made the release, and its pages were not compared word by word",
    "partly-tells": "{} shows for a part of the records where they were before the swap",
    "regroup": "records that share {} may belong to one unit, and the promise is for one record",
    "shows-response": "{} may show where the randomised response changed a value",
    "tells": "{} shows which records were swapped, and from where",
    "tells-response": "{} shows the value that the randomised response protects",
    "unknown-earlier": "the ledger does not know the earlier release that {} belongs to",
    "times": "{} has times of day, which may identify records",
    "unit": "records that share {} belong to one household, and the promise is for one record",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """One thing that speaks against a release, with the name by which a person accepts it.

    A doubt about protection ``refuses`` until somebody accepts it by name; any other is shown and no more. Nobody can
    accept a ``final`` one. ``what`` may quote confidential values, so it is for the custodian; ``name`` has column
    names only and may be published. ``remark`` is what holds of every remedy of this kind.

    >>> doubt = Doubt(kind="identifier", about="mark", what='"mark" is unique', remedy=f"see {setting('id')}")
    >>> doubt.name
    'identifier:mark'
    >>> print(doubt.problem)
    mark: "mark" is unique. Fix: see --id; or accept it: --accept identifier:mark (in a plan: accept = ...
    """

    kind: str
    what: str
    remedy: str
    about: str = ""
    refuses: bool = True
    final: bool = False
    public: str = ""  # ``what`` without confidential values, where it quotes any
    remark: str = ""

    def __post_init__(self) -> None:
        if (remedy := Worded(self.remedy)) != remedy.marked:
            object.__setattr__(self, "remedy", remedy)

    @property
    def name(self) -> str:
        """Return the name by which the doubt is accepted."""
        return f"{self.kind}:{self.about}" if self.about else self.kind

    @property
    def problem(self) -> Problem:
        """Return the doubt as an error, whose remedy includes how to accept it, where that is possible."""
        return self.refusal(plan_file=False, said=set())

    @property
    def problem_of_plan(self) -> Problem:
        """Return the doubt as an error about a plan file: commands that read one have no option to accept it.

        >>> doubt = Doubt(kind="identifier", about="mark", what="", remedy=f"see {setting('id', 'mark')}")
        >>> print(doubt.problem_of_plan.remedy)
        see id = ["mark"] under [data]; or accept it: accept = ["identifier:mark"] under [release]
        """
        return self.refusal(plan_file=True, said=set())

    @property
    def whole_remedy(self) -> str:
        """Return the remedy with its remark."""
        return f"{self.remedy} ({self.remark})" if self.remark else self.remedy

    def refusal(self, *, plan_file: bool, said: set[str]) -> Problem:
        """Return the doubt as an error, without long remarks that were ``said``; adds its own to them."""
        remark = f" ({self.remark})" if self.remark and self.remark not in said else ""
        said |= {self.remark} if len(self.remark) >= _LONG else set()
        accept = "" if self.final else f"; or accept it: {setting('accept', self.name, planned=True)}"
        remedy = f"{marked(self.remedy)}{remark}{accept}"
        # The number of an entry alone is not a place.
        where = self.name if self.about[:1].isdecimal() else self.about or self.kind
        remedy = written(remedy, in_plan) if plan_file else remedy
        return Problem(what=self.what, where=where, remedy=remedy, public=self.public)

    def __str__(self) -> str:
        return f"{self.what}. {self.whole_remedy[:1].upper()}{self.whole_remedy[1:]}."


def nothing_promised(what: str, *, remedy: str) -> Doubt:
    """Return the doubt about an infinite loss, which is one rule for all mechanisms.

    Whoever accepts it may make the release and account for it: bundle, report and ledger say that nothing is promised.
    To publish it, a person accepts it once more.

    >>> print(nothing_promised("nothing is promised at rate 1", remedy="choose a lower rate").problem.remedy)
    choose a lower rate; or accept it: --accept nothing-promised (in a plan: accept = ["nothing-promised"] under ...
    """
    return Doubt(kind=NOTHING_PROMISED, what=what, remedy=remedy)


class DoubtError(StirredError):
    """A release that is refused because nobody accepted the doubts about its protection."""


def refuse_doubts(
    doubts: Iterable[Doubt], *, accept: str | Sequence[str] | None = (), plan_file: bool = False
) -> tuple[Doubt, ...]:
    """Return the doubts that were accepted; raise the others, and names of doubts that nobody can accept.

    A single name may be given without a list, and None for no name. Messages about a ``plan_file``
    name its key and not an option.

    >>> doubt = Doubt(kind="tells", about="zip", what="zip determines county", remedy="leave zip out")
    >>> [each.name for each in refuse_doubts([doubt], accept="tells:zip")]
    ['tells:zip']
    """
    names: object = (accept,) if isinstance(accept, str) else () if accept is None else accept
    if not isinstance(names, Collection):
        remedy = 'give a list of names, such as accept=["tells:zip"]'
        raise DoubtError([Problem(what=f"{accept!r:.60} is not a list of names", where="accept", remedy=remedy)])
    standing = [doubt for doubt in doubts if doubt.refuses]
    open_ = {doubt.name for doubt in standing if not doubt.final}
    left = [doubt for doubt in standing if doubt.final or doubt.name not in names]
    said: set[str] = set()
    problems = [doubt.refusal(plan_file=plan_file, said=said) for doubt in left]
    offered = f"the doubts are {', '.join(sorted(open_))}" if open_ else "there is no doubt to accept; leave it out"
    where = "[release] accept" if plan_file else setting("accept")
    problems += [
        Problem(what=f"no doubt that can be accepted is called {name!r}", where=where, remedy=offered)
        for name in dict.fromkeys(names)
        if name not in open_
    ]
    if problems:
        raise DoubtError(problems)
    return tuple(doubt for doubt in standing if doubt.name in names)


def accepted_in_words(names: Iterable[str]) -> str:
    """Return the condition under which a promise is useful although doubts stand; empty where there is none.

    >>> accepted_in_words(["identifier:mark"])
    'a person accepted these doubts about protection by name: identifier:mark (mark may identify records)'
    """
    listed = ", ".join(f"{name}{_meaning(name)}" for name in sorted(set(names)))
    return f"{_ACCEPTED}{listed}" if listed else ""


def accepted_among(assumptions: Iterable[str]) -> list[str]:
    """Return the accepted doubts, with what they mean, as they stand among the conditions of a promise.

    >>> accepted_among(["one run", accepted_in_words(["identifier:mark"])])
    ['identifier:mark (mark may identify records)']
    """
    return [line.removeprefix(_ACCEPTED) for line in assumptions if line.startswith(_ACCEPTED)]


def _meaning(name: str) -> str:
    kind, _, about = name.partition(":")
    first, _, rest = about.partition(":")
    parts = (first, rest.replace("+", " x ")) if "{1}" in MEANINGS.get(kind, "") else (about,)
    return f" ({MEANINGS[kind].format(*parts)})" if kind in MEANINGS else ""


MORE_RUNS: Final = "more-runs"


def with_accepted(specification: Specification, accepted: Iterable[Doubt]) -> Specification:
    """Return the promise with the accepted doubts among its conditions."""
    return with_accepted_names(specification, (doubt.name for doubt in accepted))


def with_accepted_names(specification: Specification, names: Iterable[str]) -> Specification:
    """Return the promise with the accepted doubts, by their names, among its conditions.

    A release whose plan was run before cannot say that it is the one run: the accepted doubt stands in its place.

    >>> from stirred.spec import catalogue
    >>> pure = catalogue.load("pure-dp").specification
    >>> one = replace(pure, assumptions=(ONE_RUN.words,), relies_on=(ONE_RUN,))
    >>> again = with_accepted_names(one, ["more-runs:1"])
    >>> again.relies_on, [line.partition(": ")[2] for line in again.assumptions]
    ((), ['more-runs:1 (the plan was run more than once, see entry 1 of the ledger)'])
    """
    names = list(names)
    sentence = accepted_in_words(names)
    if not sentence or sentence in specification.assumptions:
        return specification
    kept, relies_on = specification.assumptions, specification.relies_on
    if any(name.partition(":")[0] == MORE_RUNS for name in names):
        kept = tuple(line for line in kept if line != ONE_RUN.words)
        relies_on = tuple(one for one in relies_on if one != ONE_RUN)
    return replace(specification, assumptions=(*kept, sentence), relies_on=relies_on)
