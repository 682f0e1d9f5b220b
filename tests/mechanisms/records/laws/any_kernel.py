"""The conditioned swap with any kernel on the swap values (R6): what the theory says of it beyond the redraw law."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from stirred.spec.exact import INFINITE, Exact, ln

Kernel = list[list[Fraction]]


def kernel_epsilon(kernel: Sequence[Sequence[Fraction]]) -> Exact:
    """The largest ln R(a,c)/R(b,c): the budget of randomised response with the same kernel R(from, to).

    Conditioning on the margins costs nothing, because its normaliser is the same in the whole universe.
    """
    columns = [*zip(*kernel, strict=True)]
    if any(min(column) == 0 for column in columns):
        return INFINITE
    return ln(max(Fraction(max(column)) / min(column) for column in columns))


def k_ary_kernel(weight: Fraction, *, values: int) -> Kernel:
    """The kernel of k-ary randomised response: 1 for staying, ``weight`` for each other value."""
    return [[Fraction(1) if a == b else weight for b in range(values)] for a in range(values)]
