"""Instruments shared by the tests of randomness and of the mechanisms."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import chi2

from stirred.randomness import Entropy, Keystream

Script = Mapping[tuple[str, int], Sequence[int]]


class ScriptedEntropy(Entropy):
    """Entropy whose streams begin with words that a test dictates and go on with ordinary ones."""

    __slots__ = ("script",)

    @classmethod
    def of(cls, script: Script) -> ScriptedEntropy:
        entropy = cls.from_seed("scripted")
        object.__setattr__(entropy, "script", script)
        return entropy

    def keystream(self, purpose: str) -> Keystream:
        plain = Entropy.keystream(self, purpose)
        script: Script = self.script  # type: ignore[attr-defined]
        return ScriptedKeystream(plain, {chunk: w for (p, chunk), w in script.items() if p == purpose})


class ScriptedKeystream(Keystream):
    __slots__ = ("plain", "script")

    def __init__(self, plain: Keystream, script: Mapping[int, Sequence[int]]) -> None:
        self.plain = plain
        self.script = script

    def _encryptor(self, chunk: int) -> Any:
        return _ScriptedEncryptor(self.plain._encryptor(chunk), self.script.get(chunk, []))


class _ScriptedEncryptor:
    def __init__(self, encryptor: Any, words: Sequence[int]) -> None:
        self.encryptor = encryptor
        self.pending = np.array(words, dtype="<u4").tobytes()

    def update_into(self, zeros: memoryview, target: memoryview) -> None:
        self.encryptor.update_into(zeros, target)
        dictated = self.pending[: len(target)]
        target[: len(dictated)] = dictated
        self.pending = self.pending[len(dictated) :]


@pytest.fixture
def scripted_entropy() -> Callable[[Script], Entropy]:
    """Makes entropy from ``{(purpose, chunk): words}``."""
    return ScriptedEntropy.of


def chi_squared_p_value(observed: npt.NDArray[np.int64], probabilities: Sequence[Any]) -> float:
    """Return the p-value of Pearson's test; cells expecting fewer than 10 are pooled."""
    expected = np.array([float(p) for p in probabilities]) * observed.sum()
    assert abs(expected.sum() - observed.sum()) < 1e-6 * observed.sum()
    if observed[expected == 0].any():
        return 0.0
    rare = expected < 10
    seen = np.append(observed[~rare], observed[rare].sum())
    hoped = np.append(expected[~rare], expected[rare].sum())
    seen, hoped = seen[hoped > 0], hoped[hoped > 0]
    if seen.size == 1:
        return 1.0
    return float(chi2.sf(((seen - hoped) ** 2 / hoped).sum(), df=seen.size - 1))


@pytest.fixture
def p_value() -> Callable[[npt.NDArray[np.int64], Sequence[Any]], float]:
    """Pearson's chi-squared test. With a limit of 1e-6 a right sampler fails once in a million seeds."""
    return chi_squared_p_value
