"""Compile the swapping kernels once, so that the first release does not wait for it: ``make kernels`` runs this."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from stirred.data import code_kernels
from stirred.mechanisms.records.kernels.changed import expected_changes
from stirred.mechanisms.records.kernels.counted import swap_counted_in_place
from stirred.mechanisms.records.kernels.partition import release_order
from stirred.mechanisms.records.kernels.rates import Rates
from stirred.mechanisms.records.kernels.redrawn import ConditionedCounting
from stirred.mechanisms.records.kernels.selected import swap_in_place
from stirred.mechanisms.records.laws.mallows import MallowsCounting
from stirred.randomness.entropy import Entropy
from tests.mechanisms.records.kernels.reference import rates_by_stratum


def compile_kernels() -> None:
    """Swap and order a small file, with strata small enough that some are selected again."""
    entropy = Entropy.from_seed("warm")
    stratum = np.repeat(np.arange(500, dtype=np.uint32), 3)
    for rates in (
        Rates.constant(Fraction(1, 3), strata=500),
        rates_by_stratum([Fraction(1, 2 + n % 2) for n in range(500)]),
        Rates(
            values=(Fraction(1, 3), Fraction(1, 2)),
            index=np.arange(1500, dtype=np.uint16) % 2,
            strata=500,
            by_record=True,
        ),
    ):
        codes = np.arange(stratum.size, dtype=np.uint32)
        swap_in_place(stratum, codes, rates=rates, entropy=entropy.child("swap"))
        release_order(codes, entropy=entropy.child("order"))
    codes = np.arange(stratum.size, dtype=np.uint32) % 7
    for counting in (MallowsCounting(Fraction(1, 3)), ConditionedCounting(rate=Fraction(1, 3))):
        for values in (7, 700):  # with a table of all cells, and with too many for one
            swap_counted_in_place(
                stratum, codes, strata=500, values=values, counting=counting, entropy=entropy.child("counted")
            )
    expected_changes(np.zeros(2, dtype=np.int64), np.ones(2, dtype=np.int64), np.ones(2))
    _compile_code_kernels()


def _compile_code_kernels() -> None:
    """Compile the passes over columns for the integer types that files have."""
    codes = np.zeros(4, dtype=np.uint32)
    table = np.zeros(1, dtype=np.uint32)
    flags = np.zeros(1, dtype=np.bool_)
    records = np.zeros((4, 1), dtype=np.uint32)
    for kind in (np.uint8, np.uint16, np.uint32, np.int64, np.int32):
        for writable in (True, False):  # columns of a frame cannot be written, and count as another type
            values = np.zeros(4, dtype=kind)
            values.flags.writeable = writable
            code_kernels.mark_present(values, 0, flags)
            code_kernels.fold_in(values, 0, table, 1, codes)
            code_kernels.find_differing(codes, values, np.zeros(1, dtype=kind), flags, flags.copy())
            code_kernels.pack(values, 0, 0, 0, records)
        code_kernels.unpack(records, 0, 0, 1, 0, np.zeros(4, dtype=kind))
        code_kernels.look_up(records, 0, 0, 1, values, np.zeros(4, dtype=kind))
    code_kernels.fetch(records, codes, records.copy())
    code_kernels.renumber(codes, table)
    code_kernels.count_codes(codes, np.zeros(1, dtype=np.int64))
    code_kernels.count_codes(codes, np.zeros(1, dtype=np.uint32))
    code_kernels.list_rows(codes, np.zeros(1, dtype=np.uint32), np.zeros(4, dtype=np.uint32))


if __name__ == "__main__":
    compile_kernels()
