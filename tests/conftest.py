"""Instruments shared by the tests."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import typer.main
from hypothesis import settings
from scipy.stats import chi2

from stirred.randomness import Entropy, Keystream
from tests.depth import examples

Script = Mapping[tuple[str, int], Sequence[int]]

# Tests start processes by the hundred. Each would compile all modules again where the environment forbids to keep
# them; the compiled kernels stand beside the sources already.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# No test depends on how busy the machine is.
settings.register_profile("suite", max_examples=examples(100), deadline=None)
settings.load_profile("suite")


@pytest.fixture(scope="session", autouse=True)
def commands_assembled_once() -> Iterator[None]:
    """A process assembles its commands when it starts; the many that a test process runs are always the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", cache(typer.main.get_command))
        yield


@pytest.fixture(scope="module", autouse=True)
def small_files_may_be_exposed(request: pytest.FixtureRequest) -> Iterator[None]:
    """Of the few records of a test file nearly all are unique. It is then no doubt in most tests."""
    with pytest.MonkeyPatch.context() as patch:
        own = {"docs", "golden", "test_exposed.py", "test_census_demo.py"}  # these have the default
        if not own & {*request.path.parts}:
            patch.setattr("stirred.data.uniqueness.MOST_EXPOSED", Fraction(1))
        yield


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
        self._process = plain._process
        self.script = script
        self._process = plain._process

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
