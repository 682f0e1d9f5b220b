"""`stirred spec budget` as a user runs it: the numbers of the theorems, losses rounded up, and every refusal."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import pytest

from stirred.spec.exact import Exact, exact
from stirred.spec.problems import Problem
from stirred.spec.swap_budget import Bound, bounded_psa_epsilon, smallest_psa_rate
from tests.cli.running import Command, told, words

COMPANIONS = {
    "who": "any file with the same variables",
    "where": "only between versions that agree on the match x swap table and on the table of all hold variables",
    "what": "one record of the kind that is swapped (d_HamS); such versions are at least 2 records apart",
    "how": "D_Mult: the logarithm of the factor by which the odds of any output change",
}
RESULT = {"paper": "the paper's bound", "sharp": "the sharp bound"}


def rounded_up(double: float | str, value: str) -> bool:
    """Say whether a double is the smallest one that is not below an exact number."""
    number = Exact.parse(value)
    if isinstance(double, str):
        return double == "inf" and number.is_infinite
    below = exact(Fraction(math.nextafter(double, -math.inf)))
    return below < number <= exact(Fraction(double))


# ---- swap, from a rate ----------------------------------------------------------------------------

# Equation 3.3 by hand: exp(epsilon) is the larger of (b + 1)/o and o, with o = p/(1 - p); and R1 likewise.
LOSSES = [
    ("264331", "1%", "paper", "ln(26168868)", "17.09"),
    ("264331", "5%", "paper", "ln(5022308)", "15.43"),
    ("264331", "0.1", "paper", "ln(2378988)", "14.69"),
    ("264331", "1/2", "paper", "ln(264332)", "12.49"),
    ("10", "1/2", "paper", "ln(11)", "2.40"),
    ("10", "99/100", "paper", "ln(99)", "4.60"),
    ("2", "1/4", "paper", "ln(9)", "2.20"),
    ("2", "1/4", "sharp", "ln(3)", "1.10"),
    ("2", "1/2", "sharp", "0", "0"),
    ("3", "1/2", "sharp", "1/2*ln(2)", "0.347"),
    ("4", "1/2", "sharp", "ln(3)", "1.10"),
    ("5", "1/2", "sharp", "1/2*ln(22)", "1.55"),
    ("5", "99/100", "sharp", "ln(99)", "4.60"),
    ("264331", "5%", "sharp", "1/2*ln(25223291376030000000361/1000000000)", "15.43"),
]


@pytest.mark.parametrize(("stratum", "rate", "bound", "loss", "shown"), LOSSES)
def test_the_loss_of_a_rate_is_that_of_the_theorem_rounded_up(
    stratum: str, rate: str, bound: Bound, loss: str, shown: str, command: Command
) -> None:
    options = ("spec", "budget", "--stratum", stratum, "--rate", rate, "--bound", bound)
    facts = told(command, *options)
    assert (facts["epsilon_exact"], facts["bound"], facts["stratum"]) == (loss, bound, int(stratum))
    assert rounded_up(facts["epsilon"], loss)
    assert facts["relative_to"] == COMPANIONS
    text = words(command, *options)
    assert text.startswith(f"Permutation swapping at rate {facts['rate_exact']}, largest stratum {int(stratum):,} who ")
    for question, answer in COMPANIONS.items():
        assert f"{question} {answer}" in text
    assert f"how much epsilon {shown} ({RESULT[bound]}; exactly {loss})" in text


# The smallest loss is half of ln(b + 1) by Theorem 1; Theorem 3 has d(b)/d(b-2), with d the derangement numbers.
COMPARED = [
    ("264331", "5%", "paper", "1/2*ln(264332)", "6.242", "99.81%", "1/2*ln(25223291376030)", "15.42"),
    ("10", "1/2", "paper", "1/2*ln(11)", "1.198", "76.83%", "1/2*ln(1334961/14833)", "2.24"),
    ("4", "1/2", "sharp", "1/2*ln(3)", "0.549", "63.40%", "ln(3)", "1.09"),
    ("3", "1/2", "sharp", "1/3*ln(2)", "0.231", "55.75%", "1/2*ln(2)", "0.34"),
    ("2", "1/4", "sharp", "0", "0.000", "50.00%", "ln(3)", "1.09"),
    ("100000000000000", "1/2", "paper", "1/2*ln(100000000000001)", "16.118", "just below 100%", None, "32.23"),
]  # fmt: skip


@pytest.mark.parametrize(("stratum", "rate", "bound", "least", "shown", "near", "exists", "below"), COMPARED)
def test_bounds_from_below_are_rounded_down(
    stratum: str, rate: str, bound: Bound, least: str, shown: str, near: str, exists: str | None, below: str,
    command: Command,
) -> None:  # fmt: skip
    options = ("spec", "budget", "--stratum", stratum, "--rate", rate, "--bound", bound)
    facts = told(command, *options)
    assert facts["smallest_epsilon_exact"] == least
    assert rounded_up(facts["smallest_epsilon"], least)
    assert facts["smallest_rate"] == float(smallest_psa_rate(int(stratum), bound=bound))
    assert exists in (None, facts["existential_bound_exact"])
    assert exact(Fraction(facts["existential_bound"])) <= Exact.parse(facts["existential_bound_exact"])
    text = words(command, *options)
    assert f"smallest no rate gives less than epsilon {shown}, reached near {near} tightness" in text
    assert f"loses at least {below}; that says nothing about yours" in text


def test_a_rate_written_in_any_way_is_the_same_rate(command: Command) -> None:
    told_of = [told(command, "spec", "budget", "--stratum", "10", "--rate", r) for r in ("5%", "1/20", "0.05", "5e-2")]
    assert told_of == [told_of[0]] * 4
    assert (told_of[0]["rate"], told_of[0]["rate_exact"]) == (0.05, "1/20")


@pytest.mark.parametrize("rate", ["0", "1"])
@pytest.mark.parametrize("bound", ["paper", "sharp"])
def test_at_rate_nought_and_one_nothing_is_promised(rate: str, bound: str, command: Command) -> None:
    options = ("spec", "budget", "--stratum", "10", "--rate", rate, "--bound", bound)
    facts = told(command, *options)
    assert (facts["epsilon"], facts["epsilon_exact"], facts["existential_bound"]) == ("inf", "inf", "inf")
    text = words(command, *options)
    assert "Nothing is promised: at this rate an output can give the file away." in text
    assert ("The loss is finite for a file in which no stratum has both" in text) == (rate == "1")
    assert "smallest" not in text


def test_where_nothing_can_be_swapped_a_loss_of_nought_is_no_protection(command: Command) -> None:
    facts = told(command, "spec", "budget", "--stratum", "0", "--rate", "5%")
    assert (facts["epsilon"], facts["smallest_epsilon"], facts["existential_bound"]) == (0, 0, 0)
    text = words(command, "spec", "budget", "--stratum", "0", "--rate", "5%")
    assert text.endswith("the file is published as it is, and a loss of 0 is not protection.")


# ---- swap, from a target --------------------------------------------------------------------------

TARGETS = [
    ("10", "3", "paper", ["11*(1/(11 + exp(3)))", "(1/(1 + exp(3)))*exp(3)"], "35.39% or 95.26%"),
    ("10", "ln(99)", "paper", ["1/10", "99/100"], "10.00% or 99.00%"),
    ("264331", "ln(5022308)", "paper", ["1/20", "5022308/5022309"], "5.00% or just below 100%"),
    ("10", "60", "paper", ["11*(1/(11 + exp(60)))", "(1/(1 + exp(60)))*exp(60)"], "9.6e-24% or just below 100%"),
    ("4", "ln(3)", "sharp", ["1/2", "3/4"], "50.00% or 75.00%"),
    ("2", "0", "sharp", ["1/2", "1/2"], "50.00% or 50.00%"),
    ("3", "1/2", "sharp", ["(1/(exp(1/2) + exp(1/3*ln(2))))*exp(1/3*ln(2))", "(1/(1 + exp(1/2)))*exp(1/2)"],
     "43.32% or 62.25%"),
]  # fmt: skip


@pytest.mark.parametrize(("stratum", "epsilon", "bound", "rates", "percent"), TARGETS)
def test_both_rates_of_a_target_reach_it_and_the_usable_ones_do_not_exceed_it(
    stratum: str, epsilon: str, bound: Bound, rates: list[str], percent: str, command: Command
) -> None:
    options = ("spec", "budget", "--stratum", stratum, "--epsilon", epsilon, "--bound", bound)
    facts = told(command, *options)
    assert (facts["rates_exact"], facts["relative_to"]) == (rates, COMPANIONS)
    assert all(rounded_up(double, rate) for double, rate in zip(facts["rates"], rates, strict=True))
    target = Exact.parse(epsilon)
    low, high = (Fraction(rate) for rate in facts["usable_rates"])
    assert Exact.parse(rates[0]) <= low
    assert Exact.parse(rates[1]) >= high
    for rate in (low, high):
        assert bounded_psa_epsilon(rate, largest_stratum=int(stratum), bound=bound) <= target
    text = words(command, *options)
    assert f"how much epsilon {target.shown()} ({RESULT[bound]})" in text
    assert f"rates {percent} reach it" in text
    assert [Fraction(rate) for rate in text.split("to use ")[1].split(":")[0].split(" or ")] == [low, high]


def test_a_printed_rate_keeps_the_decimals_without_which_its_loss_is_above_the_target(command: Command) -> None:
    """So close to the smallest loss, the nearest double of the rate already loses more."""
    least = "1.1989476363991853"
    text = words(command, "spec", "budget", "--stratum", "10", "--epsilon", least)
    low, high = text.split("to use ")[1].split(":")[0].split(" or ")
    for rate in (low, high):
        assert bounded_psa_epsilon(Fraction(rate), largest_stratum=10, bound="paper") <= exact(least)
    short = Fraction(str(float(low)))
    assert bounded_psa_epsilon(short, largest_stratum=10, bound="paper") > exact(least)


def test_an_infinite_target_is_given_no_rate_to_use(command: Command) -> None:
    assert told(command, "spec", "budget", "--stratum", "10", "--epsilon", "inf")["rates_exact"] == ["0", "1"]
    text = words(command, "spec", "budget", "--stratum", "10", "--epsilon", "inf")
    assert "Nothing is promised, and every rate will do" in text
    assert "to use" not in text


# ---- convert and duplicates -----------------------------------------------------------------------


def bun_steinke(rho2: str, delta: str) -> str:
    """Return rho squared + 2 sqrt(rho squared ln(1/delta)) with two decimals, rounded up, by other arithmetic."""
    with mpmath.workdps(40):
        rho, log = mpmath.mpf(rho2), mpmath.log(1 / mpmath.mpf(delta))
        return f"{int(mpmath.ceil((rho + 2 * mpmath.sqrt(rho * log)) * 100)) / 100:.2f}"


@pytest.mark.parametrize(
    ("rho2", "delta", "shown"),
    [("55.371", "1e-10", "126.79"), ("2.63", "1e-10", "18.20"), ("15.29", "1e-10", "52.82"), ("1", "1e-6", "8.44")],
)
def test_zcdp_converts_as_the_census_bureau_does(rho2: str, delta: str, shown: str, command: Command) -> None:
    options = ("spec", "budget", "--rho2", rho2, "--delta", delta)
    assert shown == bun_steinke(rho2, delta)
    facts = told(command, *options)
    assert (facts["delta"], facts["method"]) == (float(delta), "bun-steinke")
    assert rounded_up(facts["rho2"], rho2)
    assert (Fraction(facts["rho2_exact"]), Fraction(facts["delta_exact"])) == (Fraction(rho2), Fraction(delta))
    assert rounded_up(facts["epsilon"], facts["epsilon_exact"])
    assert Exact.parse(facts["epsilon_exact"]).shown() == shown
    text = words(command, *options)
    assert text.startswith(f"zCDP with rho squared {rho2} at delta {delta} epsilon {shown} (bun-steinke; exactly ")
    assert f"exactly {facts['epsilon_exact']}) This is for two files that differ in one unit" in text


def test_the_other_conversion_is_tighter_and_named(command: Command) -> None:
    options = ("spec", "budget", "--rho2", "55.371", "--delta", "1e-10")
    tight, usual = told(command, *options, "--method", "cks"), told(command, *options)
    assert (tight["method"], Exact.parse(tight["epsilon_exact"]).shown()) == ("cks", "125.08")
    assert tight["epsilon"] < usual["epsilon"]
    assert "epsilon 125.08 (cks; exactly " in words(command, *options, "--method", "cks")


@pytest.mark.parametrize(("rho2", "epsilon"), [("0", 0), ("inf", "inf")])
def test_no_loss_and_an_infinite_one_stay_what_they_are(rho2: str, epsilon: float | str, command: Command) -> None:
    assert told(command, "spec", "budget", "--rho2", rho2, "--delta", "1e-10")["epsilon"] == epsilon


@pytest.mark.parametrize(
    ("copies", "rho2", "shown", "epsilon"),
    [
        (1, "55371/1000", "55.371", "126.79"),
        (2, "55371/250", "221.484", "364.32"),
        (3, "498339/1000", "498.339", "712.58"),
    ],
)
def test_copies_of_a_record_square_into_the_budget(
    copies: int, rho2: str, shown: str, epsilon: str, command: Command
) -> None:
    options = ("spec", "budget", "--rho2", "55.371", "--copies", str(copies), "--delta", "1e-10")
    assert epsilon == bun_steinke(shown, "1e-10")
    facts = told(command, *options)
    assert (facts["copies"], facts["rho2_per_record_exact"], facts["rho2_exact"]) == (copies, "55371/1000", rho2)
    assert facts["rho2_per_record"] == 55.371
    assert Exact.parse(facts["epsilon_exact"]).shown() == epsilon
    assert rounded_up(facts["epsilon"], facts["epsilon_exact"])
    text = words(command, *options)
    assert text.startswith(f"A person whose answers stand in {copies} record{'s' if copies > 1 else ''} of rho squared")
    assert f"rho squared {shown} ({copies} squared times" in text
    assert f"epsilon {epsilon} at delta 1e-10 (bun-steinke)" in text


def test_a_loss_given_as_a_formula_stays_one(command: Command) -> None:
    facts = told(command, "spec", "budget", "--rho2", "ln(3)", "--copies", "2", "--delta", "1e-10")
    assert facts["rho2_exact"] == "4*ln(3)"


# ---- refusals -------------------------------------------------------------------------------------

CHANCE = "write a fraction from 0 to 1, such as '1/20', '0.05' or '5%'"
NUMBER = "write a fraction, decimal (with a point) or percentage, such as '1/20', '0.05' or '5%'"
LOSS = "write a number such as '3/4', '0.75' or 'ln(3)', or 'inf' if nothing is promised"
STRATUM = (
    "write 0 if no stratum has two different records, otherwise 2 or more: a single record has nobody to swap with"
)
DELTA = "choose a delta above 0 and below 1, far below one over the number of records"
INTEGER = "is not a whole number"
HELP = "see --help for what it takes"
IDLE = ("this option has no effect here", "leave it out, or see --help")
WHICH = (
    "stirred spec budget",
    "give either --stratum or --rho2",
    "such as --stratum 1000 --rate 5%, or --rho2 1 --delta 1e-10",
)
EITHER = ("stirred spec budget", "give either --rate or --epsilon", "such as --rate 5%")
ABSURD = ("--rho2", "a loss above 1,000,000,000,000 promises nothing", "write 'inf', or check the number")
ASK = "or make the largest stratum smaller (which adds invariants, and so protects less)"


def too_small(epsilon: str) -> tuple[str, str, str]:
    what = f"no rate reaches epsilon {epsilon} with a largest stratum of 10: the smallest is 1.199"
    return "--epsilon", what, f"ask for 1.199 or more, {ASK}"


TINY = ("--delta", "1e-10")
REFUSALS: list[tuple[list[str], tuple[str, str, str]]] = [
    (["--rate", "5%"], WHICH),
    (["--stratum", "10", "--rate", "5%", "--rho2", "1"], WHICH),
    (["--stratum", "10", "--rate", "5%", "--delta", "1e-10"], ("--delta", *IDLE)),
    (["--rho2", "1", "--delta", "1e-10", "--rate", "5%"], ("--rate", *IDLE)),
    (["--stratum", "ten", "--rate", "5%"], ("--stratum", f"'ten' {INTEGER}", HELP)),
    (["--stratum", "10"], EITHER),
    (["--stratum", "10", "--rate", "5%", "--epsilon", "3"], EITHER),
    (["--stratum", "10", "--rate", "5%", "--bound", "best"],
     ("--bound", "'best' is not known", "one of paper, sharp")),
    (["--stratum", "1", "--rate", "5%"], ("--stratum", "1 is not the size of a largest stratum", STRATUM)),
    (["--stratum", "-4", "--epsilon", "3"], ("--stratum", "-4 is not the size of a largest stratum", STRATUM)),
    (["--stratum", "10", "--rate", "5"],
     ("--rate", "5 is not a probability", f"{CHANCE}; did you mean 5%?")),
    (["--stratum", "10", "--rate", "-1/20"], ("--rate", "-1/20 is not a probability", CHANCE)),
    (["--stratum", "10", "--rate", "1/20/2"],
     ("--rate", "'1/20/2' is not a number that can be used here", NUMBER)),
    (["--stratum", "10", "--epsilon", "much"], ("--epsilon", "'much' is not a loss", LOSS)),
    (["--stratum", "10", "--epsilon", "-1"],
     ("--epsilon", "-1 is negative", "write a loss of 0 or more")),
    (["--stratum", "10", "--epsilon", "1"], too_small("1")),
    (["--stratum", "10", "--epsilon", "1.1985"], too_small("1.1985")),
    (["--stratum", "10", "--epsilon", "ln(3.31)"], too_small("1.196")),
    (["--stratum", "10", "--epsilon", "1.19894763639"], too_small("1.198")),
    (["--stratum", "10", "--epsilon", "ln(11)/2"],
     ("--epsilon", "epsilon 1.20 is so close to the smallest possible that no usable rate reaches it",
      "ask for a slightly larger one")),
    (["--stratum", "10", "--epsilon", "10001"],
     ("--epsilon", "epsilon 10001 promises nothing: its rates cannot be told from 0 and 1", "ask for a smaller one")),
    (["--stratum", "0", "--epsilon", "3"],
     ("--stratum", "no stratum is live, so every rate has epsilon 0",
      "choose the rate by other reasons; nothing is protected that swapping could change")),
    (["--rho2", "1"],
     ("--delta", "is needed", "write such as --delta 1e-10")),
    (["--rho2", "much", *TINY], ("--rho2", "'much' is not a loss", LOSS)),
    (["--rho2", "-1", *TINY], ("--rho2", "-1 is negative", "write a loss of 0 or more")),
    (["--rho2", "1e13", *TINY], ABSURD),
    (["--rho2", "1", "--delta", "0"],
     ("--delta", "delta 0 allows no conversion: a positive budget of this kind never gives pure DP", DELTA)),
    (["--rho2", "1", "--delta", "1"],
     ("--delta", "delta 1 allows no conversion: it would allow everything", DELTA)),
    (["--rho2", "1", "--delta", "200"], ("--delta", "200 is not a probability", CHANCE)),
    *((["--rho2", rho2, *TINY, "--method", "best"],
       ("--method", "'best' is not known", "one of bun-steinke, cks")) for rho2 in ("1", "0", "inf")),
    (["--rho2", "1", "--copies", "0", *TINY],
     ("--copies", "0 is below 1", "count the person's own record too: 2 for one copy")),
    (["--rho2", "1", "--copies", "1.5", *TINY],
     ("--copies", f"'1.5' {INTEGER}", HELP)),
    (["--rho2", "1", "--copies", "2000000", *TINY], ABSURD),
    (["--rho2", "1", "--copies", "2", "--delta", "x"],
     ("--delta", "'x' is not a number that can be used here", NUMBER)),
    (["--rho2", "inf", "--copies", "2", *TINY, "--method", "best"],
     ("--method", "'best' is not known", "one of bun-steinke, cks")),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "problem"), REFUSALS, ids=[" ".join(case[0]) for case in REFUSALS])
def test_a_wrong_sum_is_refused_with_what_where_and_remedy(
    arguments: list[str], problem: tuple[str, str, str], command: Command
) -> None:
    where, what, remedy = problem
    meant = str(Problem(where=where, what=what, remedy=remedy))
    assert command("spec", "budget", *arguments) == (2, "", f"{meant}\n")
