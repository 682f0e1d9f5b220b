"""Small worlds to check theorems in: laws, datasets, mechanisms, invariants and specifications.

Everything is exact and finite, so that a claim about every mechanism is checked on all pairs of datasets.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from fractions import Fraction
from itertools import combinations_with_replacement, product
from typing import Any

import mpmath
from hypothesis import settings
from hypothesis import strategies as st

from stirred.spec import (
    GDP,
    INFINITE,
    PURE,
    TOTAL_VARIATION,
    ZCDP,
    Budget,
    Domain,
    Exact,
    Flavor,
    Hierarchy,
    Inequality,
    InputPremetric,
    Invariant,
    Law,
    Margin,
    Multiverse,
    Named,
    OutputPremetric,
    Specification,
    approximate,
    exact,
    ln,
    protection_loss,
    trade_off,
)
from stirred.spec.budget import Constant, Derived, Free, PermutationSwapping, SwappedStrata
from stirred.spec.convert_output import pure_to_rho2
from stirred.spec.domain import STAGES
from stirred.spec.exact import exp, sqrt
from stirred.spec.output_premetric import CHI_SQUARED, HELLINGER, KULLBACK_LEIBLER, WASSERSTEIN, Between
from stirred.spec.specification import SETTINGS_FROM
from stirred.spec.tradeoff import TradeOff
from tests.depth import examples

# The same examples on every run: a failure is a fact about the code, not about the day.
MANY = settings(max_examples=examples(200), derandomize=True, deadline=None)
SOME = settings(max_examples=examples(60), derandomize=True, deadline=None)
FEW = settings(max_examples=examples(20), derandomize=True, deadline=None)

Dataset = tuple[int, ...]
Mechanism = dict[Dataset, Law]

SEQUENCES: tuple[Dataset, ...] = tuple(rows for n in range(3) for rows in product((0, 1), repeat=n))
MULTISETS: tuple[Dataset, ...] = tuple(
    rows for n in range(4) for rows in combinations_with_replacement((0, 1), n) if n < 3 or rows[0] == rows[-1]
)
ORDERED = tuple(InputPremetric(name=name, unit="person") for name in ("d_Ham", "d_InsDel"))
UNORDERED = tuple(InputPremetric(name=name, unit="person") for name in ("d_HamS", "d_SymDiff"))
ALL_INPUTS = ORDERED + UNORDERED

RENYI = OutputPremetric(name="D_Renyi", order=Fraction(3))
APPROXIMATE = approximate(Fraction(1, 10))
TRADE_OFF = trade_off(TradeOff.bounded([(3, 0)]))
OPEN_TRADE_OFF = trade_off(TradeOff.bounded([(2, Fraction(1, 10))]))
DIVERGENCES = (KULLBACK_LEIBLER, HELLINGER, CHI_SQUARED, TRADE_OFF)
ALL_OUTPUTS = (PURE, APPROXIMATE, ZCDP, RENYI, GDP, TOTAL_VARIATION, *DIVERGENCES)
# Those computed in closed form; the others are enclosed by searches and take their time.
EXACT_OUTPUTS = (PURE, APPROXIMATE, TOTAL_VARIATION, CHI_SQUARED)
METRICS = tuple(premetric for premetric in ALL_OUTPUTS if premetric.is_metric)

DOMAIN = Domain(name="X", dataset="a list of at most three bits")


def law(*weights: int, space: Hashable = None) -> Law:
    """Return the law that gives outcome i the share ``weights[i]`` of the sum."""
    return Law({i: Fraction(w, sum(weights)) for i, w in enumerate(weights)}, space=space)


def laws(*, outcomes: int = 3, heaviest: int = 6, positive: bool = False) -> st.SearchStrategy[Law]:
    """Draw a law with small denominators; ``positive`` gives every outcome a chance."""
    weights = st.lists(st.integers(int(positive), heaviest), min_size=outcomes, max_size=outcomes)
    return weights.filter(any).map(lambda drawn: law(*drawn))


def mechanisms(
    datasets: Sequence[Dataset], *, outcomes: int = 3, positive: bool = True
) -> st.SearchStrategy[Mechanism]:
    """Draw an output law for every dataset."""
    return st.fixed_dictionaries({x: laws(outcomes=outcomes, positive=positive) for x in datasets})


@st.composite
def worlds(
    draw: st.DrawFn, *, outputs: Sequence[OutputPremetric] = ALL_OUTPUTS
) -> tuple[tuple[Dataset, ...], InputPremetric, OutputPremetric]:
    """Draw a domain, a distance on it that tells its datasets apart, and an output premetric.

    The domain is smaller where the output premetric takes its time.
    """
    premetric = draw(st.sampled_from(ALL_INPUTS))
    output = draw(st.sampled_from(outputs))
    datasets = SEQUENCES if premetric.ordered else MULTISETS
    return (datasets if output in EXACT_OUTPUTS else datasets[1:5]), premetric, output


def classes(datasets: Sequence[Dataset], *, most: int = 3) -> st.SearchStrategy[dict[Dataset, int]]:
    """Draw a function of the dataset with few values: an invariant."""
    return st.fixed_dictionaries({x: st.integers(0, most - 1) for x in datasets})


def invariant(values: Mapping[Dataset, Hashable], *, name: str = "c") -> Named:
    """Return the invariant that is a table of values."""
    table = dict(values)
    return Named(name=name, function=table.__getitem__)


def flavor(
    premetric: InputPremetric,
    output: OutputPremetric,
    *invariants: Invariant,
    universes: Sequence[frozenset[Any]] | None = None,
) -> Flavor:
    """Return a flavor on the small domain."""
    listed = None if universes is None else tuple(universes)
    multiverse = Multiverse(invariants=invariants, universes=listed)
    return Flavor(domain=DOMAIN, multiverse=multiverse, input_premetric=premetric, output_premetric=output)


def worst(flavor: Flavor, mechanism: Mapping[Any, Law]) -> Between:
    """Return the largest loss of a mechanism over all universes, as the ends of an interval."""
    losses = [found.loss for found in protection_loss(flavor, mechanism)]
    return Between(max(loss.low for loss in losses), max(loss.high for loss in losses))


def may_be_at_most(a: Between, b: Between) -> bool:
    """Say whether the enclosures allow a <= b; for exact numbers that is a <= b itself."""
    return a.low <= b.high


def surely_at_most(a: Between, bound: Exact) -> bool:
    """Say whether a is certain to be at most ``bound``."""
    return a.high <= bound


# -- numbers --------------------------------------------------------------------------------------

_RATIONALS = st.builds(Fraction, st.integers(-60, 60), st.integers(1, 12))
_POSITIVE = st.builds(Fraction, st.integers(1, 60), st.integers(1, 12))


def _grow(children: st.SearchStrategy[Exact]) -> st.SearchStrategy[Exact]:
    def divide(a: Exact, b: Exact) -> Exact:
        return a / b if abs(high_precision(b)) > mpmath.mpf(10) ** -20 else a

    def logarithm(a: Exact) -> Exact:
        return ln(a) if high_precision(a) > mpmath.mpf(10) ** -20 else a

    def root(a: Exact) -> Exact:
        return sqrt(a) if high_precision(a) > mpmath.mpf(10) ** -20 else a

    def exponential(a: Exact) -> Exact:
        return exp(a) if abs(high_precision(a)) < 40 else a

    return st.one_of(
        st.builds(lambda a, b: a + b, children, children),
        st.builds(lambda a, b: a - b, children, children),
        st.builds(lambda a, b: a * b, children, children),
        st.builds(divide, children, children),
        st.builds(logarithm, children),
        st.builds(root, children),
        st.builds(exponential, children),
        st.builds(lambda a, n: a**n, children, st.integers(0, 3)),
    )


def exacts() -> st.SearchStrategy[Exact]:
    """Draw a number as a tree of sums, products, quotients, logarithms, roots and exponentials."""
    leaves = st.one_of(_RATIONALS.map(exact), _POSITIVE.map(ln), _POSITIVE.map(sqrt))
    return st.recursive(leaves, _grow, max_leaves=6)


def high_precision(value: Exact) -> Any:
    """Evaluate a number with mpmath at 400 digits, from its structure and not from its enclosures."""
    with mpmath.workdps(400):
        return +_evaluate(value)


def _evaluate(value: Exact) -> Any:
    if value.is_infinite:
        return mpmath.inf
    if value.is_rational:
        return mpmath.mpf(value.rational.numerator) / value.rational.denominator
    parts = [_evaluate(part) for part in value.parts]
    return {
        "sum": lambda: mpmath.fsum(parts),
        "product": lambda: mpmath.fprod(parts),
        "reciprocal": lambda: 1 / parts[0],
        "ln": lambda: mpmath.log(parts[0]),
        "exp": lambda: mpmath.exp(parts[0]),
        "sqrt": lambda: mpmath.sqrt(parts[0]),
    }[value.kind]()


def mp(value: Fraction | Exact | int) -> Any:
    """Return a number for mpmath, at the precision in force."""
    if isinstance(value, Exact):
        return high_precision(value)
    fraction = Fraction(value)
    return mpmath.mpf(fraction.numerator) / fraction.denominator


def losses() -> st.SearchStrategy[Exact]:
    """Draw a budget of a kind that occurs: rational, logarithm, conversion formula, infinite."""
    positive = st.builds(Fraction, st.integers(0, 500), st.integers(1, 40)).map(exact)
    return st.one_of(
        positive,
        st.builds(Fraction, st.integers(1, 10**7), st.integers(1, 9)).map(lambda q: ln(q if q > 1 else 1 / q)),
        positive.map(lambda rho2: rho2 + 2 * sqrt(rho2 * ln(10**10))),
        st.builds(lambda epsilon, nearest: pure_to_rho2(epsilon, nearest=nearest), positive, st.integers(1, 2)),
        st.just(INFINITE),
    )


# -- specifications -------------------------------------------------------------------------------

_WORDS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1, max_size=12)
_NAMES = _WORDS.filter(lambda text: bool(text.strip()))
_VARIABLES = st.lists(st.sampled_from(("age", "sex", "size", "tenure")), unique=True, max_size=3).map(tuple)
GEOGRAPHY = Hierarchy(name="geography", levels=("block", "tract", "county", "state"))
AGES = Hierarchy(name="ages", levels=("age", "age_group"), geographic=False)


def margins() -> st.SearchStrategy[Margin]:
    """Draw a margin."""
    return st.builds(
        Margin,
        of=st.sampled_from(("person", "household", "housing unit")),
        variables=st.one_of(_VARIABLES, st.just(("*",))),
        level=st.sampled_from((None, *GEOGRAPHY.levels)),
        includes=st.sampled_from(((), ("person",))),
    )


def invariants() -> st.SearchStrategy[Invariant]:
    """Draw an invariant of any kind, as a file could hold it."""
    return st.one_of(
        margins(),
        st.builds(Named, name=_NAMES, description=st.one_of(st.just(""), _NAMES)),
        st.builds(Inequality, name=_NAMES, condition=_NAMES, on=st.one_of(st.none(), margins())),
    )


@st.composite
def multiverses(draw: st.DrawFn) -> Multiverse:
    """Draw a multiverse described by invariants; a nearest distance above 1 comes with its reason."""
    fixed = draw(st.lists(invariants(), max_size=3).map(tuple))
    nearest = draw(st.integers(1, 3)) if fixed else 1
    return Multiverse(
        invariants=fixed,
        hierarchies=draw(st.sampled_from(((), (GEOGRAPHY,), (GEOGRAPHY, AGES)))),
        nearest=nearest,
        nearest_because="swapping" if nearest > 1 else "",
    )


def input_premetrics() -> st.SearchStrategy[InputPremetric]:
    """Draw a distance, or a neighbour relation."""
    named = st.builds(
        InputPremetric,
        name=st.sampled_from(("d_HamS", "d_Ham", "d_SymDiff", "d_InsDel")),
        unit=_NAMES,
        post_imputation=st.sampled_from((None, False, True)),
        within=st.one_of(st.none(), st.integers(1, 4)),
    )
    own = st.builds(InputPremetric, name=st.just("d_r"), unit=_NAMES, relation=_NAMES)
    return st.one_of(named, own)


def output_premetrics() -> st.SearchStrategy[OutputPremetric]:
    """Draw an output premetric with its parameters."""
    deltas = st.builds(lambda n, d: Fraction(n, n + d), st.integers(1, 99), st.integers(1, 10**12))
    orders = st.builds(lambda n, d: 1 + Fraction(n, d), st.integers(1, 99), st.integers(1, 9))
    return st.one_of(
        st.sampled_from((PURE, ZCDP, GDP, TOTAL_VARIATION, WASSERSTEIN, OPEN_TRADE_OFF, *DIVERGENCES)),
        deltas.map(approximate),
        orders.map(lambda order: OutputPremetric(name="D_Renyi", order=order)),
    )


def budgets() -> st.SearchStrategy[Budget]:
    """Draw a budget with any policy."""
    rates = st.builds(lambda n, d: Fraction(n, n + d), st.integers(0, 20), st.integers(1, 20))
    sizes = st.one_of(st.just(0), st.integers(2, 10**7))
    strata = st.lists(st.builds(SwappedStrata, rate=rates, largest_stratum=sizes), min_size=1, max_size=3)
    policies = st.one_of(
        losses().map(lambda value: Constant(value=value)),
        _NAMES.map(lambda symbol: Free(symbol=symbol)),
        strata.map(lambda drawn: PermutationSwapping(strata=tuple(drawn))),
        st.builds(Derived, formula=_NAMES, value=losses(), varies=st.booleans()),
    )
    return policies.flatmap(_with_paper)


def _with_paper(policy: Any) -> st.SearchStrategy[Budget]:
    """Swap has one bound of the paper; other budgets may state any."""
    paper = st.just(policy.paper) if isinstance(policy, PermutationSwapping) else losses()
    return st.builds(Budget, policy=st.just(policy), paper_epsilon=st.one_of(st.none(), paper))


def specifications() -> st.SearchStrategy[Specification]:
    """Draw a specification that could stand in a file."""
    domains = st.builds(
        Domain,
        name=_NAMES,
        dataset=_NAMES,
        stage=st.sampled_from(tuple(STAGES)),
        record_types=st.lists(_NAMES, max_size=2).map(tuple),
    )
    flavors = st.builds(
        Flavor,
        domain=domains,
        multiverse=multiverses(),
        input_premetric=input_premetrics(),
        output_premetric=output_premetrics(),
    )
    lines = st.lists(_NAMES, max_size=2).map(tuple)
    return st.builds(
        Specification,
        flavor=flavors,
        budget=budgets(),
        assumptions=lines,
        theorem=lines,
        settings_from=st.sampled_from((None, *SETTINGS_FROM)),
        seeded=st.booleans(),
    )


def specification(
    output: OutputPremetric = PURE,
    budget: Exact | int | str | Budget = 1,
    *,
    premetric: InputPremetric | None = None,
    multiverse: Multiverse | None = None,
    domain: Domain = DOMAIN,
) -> Specification:
    """Return a plain specification: persons, unordered, nothing fixed, unless told otherwise."""
    chosen = Flavor(
        domain=domain,
        multiverse=multiverse if multiverse is not None else Multiverse(),
        input_premetric=premetric if premetric is not None else InputPremetric(name="d_HamS", unit="person"),
        output_premetric=output,
    )
    return Specification(flavor=chosen, budget=budget if isinstance(budget, Budget) else Budget.constant(budget))


def infimum(function: Callable[[Any], Any], low: Any, high: Any) -> Any:
    """Return the minimum of a unimodal function, by golden section at the precision in force."""
    golden = (mpmath.sqrt(5) - 1) / 2
    for _ in range(260):
        left, right = high - golden * (high - low), low + golden * (high - low)
        if function(left) < function(right):
            high = right
        else:
            low = left
    return function((low + high) / 2)
