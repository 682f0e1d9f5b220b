"""The order and identifier audit: does the place or the id of a released record tell anything about the input?

The guarantee of swapping is about the unordered table; a file left in input order gives every true
location away (docs/theory/conditions.md, condition 1). The mechanism is run many times on one small
file, each time with its rows in a uniformly random order and their ids dealt out anew. If place and id
tell nothing, the released files are independent of these orders, so that every way of pairing releases
with input orders was equally likely: an exact test, whatever the mechanism does to the values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from stirred.audit.memory import leftover_memory
from stirred.audit.order_relations import (
    Coding,
    Matrix,
    Trial,
    can_be_followed,
    coded,
    codings_of,
    detectable_share,
    relations,
    standardised,
)
from stirred.data.microdata import Microdata
from stirred.mechanisms.protocol import Mechanism, for_sampling
from stirred.randomness.entropy import Entropy
from stirred.randomness.integers import permutation
from stirred.spec.problems import wrong

Run = Callable[[pl.DataFrame, Entropy], pl.DataFrame]
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderAudit:
    """What repeated runs say about the order and the ids of released records.

    ``p_value`` is that of an exact test at ``level``; ``finding`` names the relation that stood out most.
    ``detectable`` is a share of runs: had that many left their rows in the order of the input records they
    come from, an alarm would have had probability ``power``. It is infinite where the records are too few or
    too alike to show it, or where released rows cannot be ``followed`` to the input. ``memory`` says what the
    returned frames hold in memory besides their values; that needs no test.
    """

    p_value: float
    level: float
    finding: str
    detectable: float
    followed: bool = True
    power: float
    runs: int
    memory: tuple[str, ...] = ()

    @property
    def alarm(self) -> bool:
        """Say whether order or ids depend on the input, at the level of the test."""
        return self.p_value <= self.level or bool(self.memory)

    @property
    def passed(self) -> bool:
        """Say whether nothing was found; that is not a proof."""
        return not self.alarm

    @property
    def in_words(self) -> str:
        """Return the finding, and what would have been found."""
        if self.memory:
            return (
                f"What is returned still holds memory of the input: {'; '.join(self.memory)}. Build the released frame "
                "from its values, so that nothing else is in it"
            )
        if self.alarm:
            return (
                f"The order gives the input away: {self.finding} (p-value {self.p_value:.2g} from {self.runs} runs). "
                "Release the records sorted on released values or in random order, and issue ids anew"
            )
        if not self.followed:
            seen = (
                "What would have been seen is not stated, because released rows cannot be followed to the input: name "
                "the columns that the mechanism leaves as they are (hold)"
            )
        elif math.isinf(self.detectable):
            seen = "These records are too few or too alike to show anything"
        else:
            share = self.detectable
            which = f"{math.ceil(100 * share)}% of the runs" if share > 1 / 2 else f"one run in {math.floor(1 / share)}"
            sure = f"with {self.power:.0%} probability"
            seen = f"If {which} had left the rows in input order, this would have been seen {sure}"
        return f"No trace of the input order found in {self.runs} runs (p-value {self.p_value:.2g}). {seen}"


def audit_order(
    mechanism: Any,
    data: pl.DataFrame,
    *,
    id: str | None = None,
    hold: Sequence[str] | None = None,
    runs: int = 200,
    pairings: int = 1_999,
    level: float = 0.005,
    power: float = 0.99,
    entropy: Entropy | None = None,
    progress: Progress | None = None,
) -> OrderAudit:
    """Run a mechanism on reordered copies of a small file, and test whether what it releases depends on the order.

    ``mechanism`` is a function of a frame and entropy that returns the released frame or a release, or has
    such a ``release``. ``id`` names an identifier; its values are dealt out to the records anew in every run.
    A right mechanism raises an alarm with probability at most ``level``.

    ``hold`` names columns that the mechanism leaves as they are, so that the audit can say which leak it would
    have seen: by them a released row is followed to its record. Without it these are the columns that the
    mechanism does not name in its own ``swap``, or those of its ``hold``, or all.

    >>> homes = pl.DataFrame({"county": list("AABBCC"), "tenure": list("ororoo")})
    >>> found = audit_order(lambda frame, entropy: frame, homes, runs=60)  # publishes the file as it is
    >>> found.alarm, audit_order(lambda frame, entropy: frame.sort("county", "tenure"), homes, runs=60).p_value
    (True, 1.0)
    """
    if id is not None and id not in data.columns:
        raise wrong(f"there is no column {id!r}", where="id", remedy=f"choose one of {', '.join(data.columns)}")
    if data.height < 2 or runs < 2 or pairings < 1:
        what = f"{data.height} records, {runs} runs and {pairings} pairings show nothing"
        raise wrong(what, where="order audit", remedy="give two records or more, and at least two runs and one pairing")
    entropy = entropy or Entropy.from_os()
    kept: dict[str, None] = {}
    trials = [*_trials(_runnable(mechanism, id, kept), data, id, runs, entropy, progress)]
    codings = codings_of(data, [name for name in data.columns if name != id], trials)
    link = _link(mechanism, data, id, hold, trials)
    names, scores = [], []
    for name, matrix in relations(codings, trials, keep_ids=id is not None):
        if (scaled := standardised(matrix)) is not None:
            names.append(name)
            scores.append(scaled)
    p_value, finding, limit = 1.0, "nothing", 0.0
    if scores:
        stacked = np.stack(scores)
        observed = np.abs(np.trace(stacked, axis1=1, axis2=2))
        null = _null(stacked, pairings, entropy.child("pairings"))
        # Sums in another order differ in the last digits; a tie counts as at least as extreme.
        p_value = (1 + int((null >= observed.max() - 1e-9).sum())) / (1 + pairings)
        finding = names[int(observed.argmax())]
        limit = float(np.quantile(null, 1 - level / 2))
    detectable = math.inf
    if link is not None:
        detectable = detectable_share(
            codings, link, limit=limit, level=level, power=power, entropy=entropy.child("power")
        )
    return OrderAudit(
        p_value=p_value,
        level=level,
        finding=finding,
        detectable=detectable,
        followed=link is not None,
        power=power,
        runs=runs,
        memory=tuple(kept),
    )


def _link(
    mechanism: Any, data: pl.DataFrame, id: str | None, hold: Sequence[str] | None, trials: Sequence[Trial]
) -> Coding | None:
    """Number the values by which released rows are followed to their records; None where that cannot be done."""
    changed = [*getattr(mechanism, "swap", ())]
    given = hold or getattr(mechanism, "hold", None)
    kept = [name for name in data.columns if name != id and name not in changed] if changed or not given else given
    columns = [name for name in kept if name in trials[0].released[0].columns]
    link = coded(data, columns, trials) if columns else None
    if link is not None and can_be_followed(link):
        return link
    if hold:
        remedy = "name released columns that no record changes, or none"
        raise wrong(f"the mechanism does not leave {', '.join(hold)} as it is", where="hold", remedy=remedy)
    return None


def _runnable(mechanism: Any, id: str | None, kept: dict[str, None]) -> Run:
    """Return how to run it once: a mechanism of the package is told which column identifies.

    What a returned frame keeps in memory besides its values is written into ``kept``.
    """
    run = getattr(mechanism, "release", mechanism)
    ours = id is not None and hasattr(mechanism, "plan")

    def released(frame: pl.DataFrame, entropy: Entropy) -> pl.DataFrame:
        data = Microdata(households=frame, id=(str(id),)) if ours else frame
        # Nothing of these runs is published: doubts about the file are not the question here.
        own = isinstance(mechanism, Mechanism)
        more = {"plan": for_sampling(mechanism.plan(data, doubts=False))} if own else {}
        if own and not entropy.seeded:  # a draw that no doubt refuses is a test draw
            entropy = Entropy.from_seed(entropy.kept.hex())
        found = run(data, entropy, **more)
        frame = found.public["data"] if hasattr(found, "public") else found
        if not isinstance(frame, pl.DataFrame):
            raise wrong(
                f"it releases a {type(frame).__name__}",
                where="order audit",
                remedy="return the released records as a polars frame",
            )
        kept.update(dict.fromkeys(leftover_memory(frame).findings))
        return frame

    return released


def _trials(
    run: Run, data: pl.DataFrame, id: str | None, runs: int, entropy: Entropy, progress: Progress | None
) -> Iterator[Trial]:
    orders, deals = entropy.keystream("input orders"), entropy.keystream("ids")
    for number in range(runs):
        order = permutation(data.height, orders.reader(number))
        dealt = permutation(data.height, deals.reader(number))
        given = data if id is None else data.with_columns(data[id].gather(dealt))
        released = run(given[order], entropy.child(f"run {number}"))
        by_id = (released.sort(id),) if id is not None and id in released.columns else ()
        place = np.argsort(np.array(order))
        ranks = place if id is None else np.argsort(given[id].arg_sort().to_numpy())
        yield Trial(place, ranks, (released, *by_id))
        if progress is not None:
            progress("running", number + 1, runs)


def _null(stacked: Matrix, pairings: int, entropy: Entropy) -> Matrix:
    """Return the largest score of any relation in each of many random pairings of releases and input orders."""
    runs = stacked.shape[1]
    words, rows = entropy.keystream("pairing"), np.arange(runs)
    largest = np.empty(pairings)
    for number in range(pairings):
        paired = np.argsort(words.words(number, count=runs, dtype=np.uint64))
        largest[number] = np.abs(stacked[:, rows, paired].sum(axis=1)).max()
    return largest
