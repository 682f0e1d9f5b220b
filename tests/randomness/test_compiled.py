from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numba
import pytest
from numba.core.dispatcher import Dispatcher

from stirred.randomness.compiled import compiled

MODULES = [
    "stirred.randomness.kernel",
    "stirred.mechanisms.swapping.kernels.partition",
    "stirred.mechanisms.swapping.kernels.selection",
    "stirred.mechanisms.swapping.kernels.redraw",
    "stirred.mechanisms.swapping.kernels.cells",
    "stirred.mechanisms.swapping.kernels.exchange",
    "stirred.mechanisms.swapping.kernels.selected",
    "stirred.data.code_kernels",
    "stirred.data.synth.census_kernel",
]


@pytest.mark.parametrize("name", MODULES)
def test_compiled_functions_call_only_compiled_functions_of_their_own_file(name: str) -> None:
    """The cache on disk notices changes in one file only; a call across files could run stale code."""
    module = importlib.import_module(name)
    functions = [value for value in vars(module).values() if isinstance(value, Dispatcher)]
    assert functions
    for function in functions:
        for used in function.py_func.__code__.co_names:
            called = vars(module).get(used)
            assert not isinstance(called, Dispatcher) or called.py_func.__module__ == name


def test_a_read_only_installation_compiles_without_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    njit = numba.njit

    def nowhere_to_cache(*, cache: bool = False, **options: Any) -> Callable[..., Any]:
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        result: Callable[..., Any] = njit(**options)
        return result

    def double(number: int) -> int:
        return 2 * number

    with monkeypatch.context() as patch:
        patch.setattr(numba, "njit", nowhere_to_cache)
        doubled = compiled(double)
    assert doubled(21) == 42
