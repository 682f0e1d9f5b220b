"""Linear algebra on one thread, and as before afterwards, whoever leaves last."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from stirred.engines.blas import _threads, one_blas_thread


def test_blas_has_one_thread_inside_and_as_many_as_before_outside() -> None:
    threads = _threads()
    if threads is None:
        pytest.skip("this numpy has a linear algebra of another kind")
    number, _ = threads
    before = number()
    entered, leave = threading.Event(), threading.Event()

    def stay() -> None:
        with one_blas_thread():
            entered.set()
            leave.wait(10)

    other = threading.Thread(target=stay)
    with one_blas_thread():
        assert number() == 1
        other.start()
        assert entered.wait(10)
    assert number() == 1, "the other one is still inside"
    leave.set()
    other.join()
    assert number() == before


def test_an_error_inside_leaves_it_as_it_was() -> None:
    threads = _threads()
    before = None if threads is None else threads[0]()

    @one_blas_thread()
    def fails() -> None:
        np.linalg.inv(np.zeros((2, 2)))

    for _ in range(2):
        with pytest.raises(np.linalg.LinAlgError):
            fails()
    assert before == (None if threads is None else threads[0]())
