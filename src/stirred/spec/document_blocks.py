"""The blocks of a specification from those of its document, each checked as it is built."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final, TypeVar

from stirred.spec.budget import Budget, ByUniverse, Constant, Derived, Free, PermutationSwapping, Policy, SwappedStrata
from stirred.spec.document_schema import (
    BudgetDocument,
    BudgetPolicyDocument,
    InequalityDocument,
    InputPremetricDocument,
    KeysAloneDocument,
    MarginDocument,
    MultiverseDocument,
    NamedDocument,
    OneRunDocument,
    OutputPremetricDocument,
    SpecificationDocument,
    UnpublishedDocument,
)
from stirred.spec.domain import Domain, file_identity
from stirred.spec.exact import Exact, compare_exact, exact
from stirred.spec.given_numbers import fraction, loss
from stirred.spec.hierarchy import Hierarchy
from stirred.spec.input_premetric import InputPremetric
from stirred.spec.invariant import Inequality, Margin, Named
from stirred.spec.multiverse import Multiverse
from stirred.spec.output_premetric import OutputPremetric
from stirred.spec.problems import Problem, SpecificationError, StirredError, placed, wrong
from stirred.spec.reliance import KEYS_ALONE, ONE_RUN, KeysAlone, Reliance, Unpublished
from stirred.spec.specification import Flavor, Specification
from stirred.spec.tradeoff import TradeOff

T = TypeVar("T")
# How sentences about one release alone began in files of versions that did not mark them.
_ALONE_ONCE: Final = (
    "nothing of the file is published but ",
    "nothing of the sample is published but ",
    "of these figures none is published: ",
)


def specification_in(document: SpecificationDocument) -> Specification:
    """Build the five blocks; problems of all of them are reported together."""
    problems: list[Problem] = []

    def block(build: Callable[[], T]) -> T | None:
        try:
            return build()
        except StirredError as error:
            problems.extend(error.problems)
            return None

    # The ledger tells which file it is, in whatever words: its id is public, as a checksum of the file must never be.
    # So is that its name was stated.
    stated = document.domain
    known = file_identity(
        ledger="" if document.account is None else document.account.ledger,
        name=stated.name if stated.name_is_stated else "",
    )
    domain = block(lambda: Domain(**stated.model_dump(exclude={"name_is_stated"}), identity=known))
    multiverse = block(lambda: multiverse_of(document.multiverse))
    premetric = block(lambda: input_premetric_of(document.input_premetric))
    output = block(lambda: _output_in(document.output_premetric))
    budget = block(lambda: _budget_in(document.budget, output))
    relies_on = block(lambda: tuple(_reliance_in(one) for one in document.relies_on)) or ()
    # What earlier versions said in words alone.
    if KEYS_ALONE.words in document.assumptions and not any(isinstance(r, KeysAlone) for r in relies_on):
        settings = {} if document.mechanism is None else document.mechanism.settings
        relies_on = (*relies_on, KeysAlone(column=settings.get("record_key") or ""))
    said = (*document.assumptions, *document.multiverse.consequences)
    alone = document.alone or tuple(line for line in said if line.startswith(_ALONE_ONCE))
    if domain is None or multiverse is None or premetric is None or output is None or budget is None or problems:
        raise SpecificationError(problems)
    return Specification(
        flavor=Flavor(domain=domain, multiverse=multiverse, input_premetric=premetric, output_premetric=output),
        budget=budget,
        assumptions=document.assumptions,
        theorem=document.theorem,
        settings_from=document.settings_from,
        seeded=document.seeded,
        relies_on=relies_on,
        measured_on=document.measured_on,
        alone=alone,
    )


def _reliance_in(document: OneRunDocument | UnpublishedDocument | KeysAloneDocument) -> Reliance:
    if isinstance(document, UnpublishedDocument):
        return Unpublished(figure=_invariant_in(document.figure))
    return ONE_RUN if isinstance(document, OneRunDocument) else KeysAlone(column=document.column)


def input_premetric_of(document: InputPremetricDocument) -> InputPremetric:
    """Return the input premetric a checked document describes."""
    premetric = InputPremetric(**{key: value for key, value in document if key != "bounded"})
    if document.bounded is not None and document.bounded != premetric.bounded:
        raise wrong(
            f"{premetric.name} is {'' if premetric.bounded else 'not '}bounded",
            where="input_premetric bounded",
            remedy="correct it, or leave it out",
        )
    return premetric


def _output_in(document: OutputPremetricDocument) -> OutputPremetric:
    delta, order, curve = document.delta, document.order, document.curve
    where = "output_premetric curve"
    corners = None if curve is None else tuple(tuple(fraction(n, where=where) for n in point) for point in curve)
    return OutputPremetric(
        name=document.name,
        delta=Fraction(0) if delta is None else fraction(delta, where="output_premetric delta"),
        order=None if order is None else fraction(order, where="output_premetric order"),
        curve=None if corners is None else TradeOff(corners),  # type: ignore[arg-type]
    )


def multiverse_of(document: MultiverseDocument) -> Multiverse:
    """Return the multiverse a checked document describes."""
    invariants = tuple(_invariant_in(invariant) for invariant in document.invariants)
    hierarchies = tuple(Hierarchy(**dict(hierarchy)) for hierarchy in document.hierarchies)
    listed = None if document.universes is None else tuple(map(frozenset, document.universes))
    if listed is not None and (invariants or not listed or not all(listed)):
        empty = "a universe without datasets" if listed else "no universe at all"
        raise wrong(
            "universes both listed and described by invariants" if invariants else empty,
            where="multiverse universes",
            remedy="list at least one universe, each with its datasets, or leave the list out",
        )
    return Multiverse(
        **{**dict(document), "invariants": invariants, "hierarchies": hierarchies, "universes": listed},
    )


_INVARIANTS: Final[dict[str, Callable[..., Any]]] = {"margin": Margin, "named": Named, "inequality": Inequality}


def _invariant_in(document: MarginDocument | NamedDocument | InequalityDocument) -> Any:
    facts = {key: value for key, value in document if key not in ("kind", "words")}
    if isinstance(document, InequalityDocument) and document.on is not None:
        facts["on"] = _invariant_in(document.on)
    invariant = _INVARIANTS[document.kind](**facts)
    if document.words is not None and document.words != str(invariant):
        raise wrong(
            f"the invariant says '{document.words}' in words, but it is: {invariant}",
            where="multiverse invariants",
            remedy="leave 'words' out: they are computed",
        )
    return invariant


def number_out(value: Exact) -> float | str:
    """Return a loss for JSON: a double rounded up, infinity and what no double reaches as the text ``"inf"``."""
    double = float(value)
    return "inf" if math.isinf(double) else double


def _budget_in(document: BudgetDocument, output: OutputPremetric | None) -> Budget:
    if output is not None and document.parameter is not None and document.parameter != output.parameter:
        raise wrong(
            f"a budget of {output.symbol} is stored as {output.parameter}, not {document.parameter}",
            where="budget parameter",
            remedy=f"write {output.parameter}",
        )
    paper = None
    if document.paper_epsilon_exact is not None:
        paper = loss(document.paper_epsilon_exact, where="budget paper_epsilon_exact")
    if document.paper_epsilon is not None and (paper is None or number_out(paper) != document.paper_epsilon):
        raise wrong(
            f"paper_epsilon {document.paper_epsilon} is not the number of paper_epsilon_exact",
            where="budget paper_epsilon",
            remedy="give paper_epsilon_exact, and leave paper_epsilon out: it is computed",
        )
    policy = _policy_in(document.policy)
    if paper is not None and isinstance(policy, PermutationSwapping) and compare_exact(paper, policy.paper) != 0:
        raise wrong(
            f"the stated bound of the paper, {paper}, is not {policy.paper}, that of its own policy",
            where="budget paper_epsilon_exact",
            remedy="correct one of them",
        )
    budget = Budget(policy=policy, paper_epsilon=paper)
    given = None if document.exact is None else exact(document.exact)
    if given is not None and compare_exact(given, budget.realised) != 0:
        raise _not_its_own("exact", f"{document.exact} is not the value {budget.realised} of")
    if document.realised is not None and document.realised != number_out(budget.realised):
        raise _not_its_own("realised", f"{document.realised} is not {number_out(budget.realised)}, that of")
    if document.shown is not None and document.shown != budget.shown:
        raise wrong(
            f"it is said to show as {document.shown}, but its policy shows as {budget.shown}",
            where="budget shown",
            remedy="leave 'shown' out: it is computed",
        )
    return budget


def _not_its_own(key: str, what: str) -> SpecificationError:
    remedy = "correct one of them, or leave the value out: it is computed"
    return wrong(f"the stated value {what} its own policy", where=f"budget {key}", remedy=remedy)


# What a policy needs, and what it may have besides.
_POLICIES: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "constant": (("value",), ()),
    "free": ((), ("symbol",)),
    "permutation-swapping": (("strata",), ("bound",)),
    "derived": (("value", "formula"), ("varies",)),
    "by-universe": (("budgets",), ("otherwise", "at")),
}


def _policy_in(document: BudgetPolicyDocument) -> Policy:
    needed, optional = _POLICIES[document.name]
    for key in needed:
        if getattr(document, key) is None:
            raise wrong(f"a {document.name} policy needs '{key}'", where="budget policy", remedy="add it")
    for key in sorted(document.model_fields_set - {"name", *needed, *optional}):
        raise wrong(f"a {document.name} policy has no '{key}'", where="budget policy", remedy="remove it")
    if document.name == "free":
        return Free(symbol=document.symbol or "ε")
    if document.name == "permutation-swapping":
        assert document.strata is not None
        strata = tuple(
            SwappedStrata(rate=fraction(s.rate, where="budget policy rate"), largest_stratum=s.largest_stratum)
            for s in document.strata
        )
        return PermutationSwapping(strata=strata, bound=document.bound or "paper")
    if document.name == "by-universe":
        listed = [(one.universe, loss(one.value, where="budget policy budgets")) for one in document.budgets or ()]
        rest = None if document.otherwise is None else loss(document.otherwise, where="budget policy otherwise")
        return ByUniverse(budgets=tuple(listed), otherwise=rest, at=document.at)
    assert document.value is not None
    with placed("budget policy value"):
        value = exact(document.value)
    if document.name == "constant":
        return Constant(value=value)
    return Derived(formula=document.formula or "", value=value, varies=bool(document.varies))
