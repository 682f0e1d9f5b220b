"""A new member of the swapping family costs one file and one line of the registry: everything else is the engine's."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stirred import Entropy
from stirred.audit.exhaustive import audit
from stirred.cli.main import run
from stirred.mechanisms import registry
from tests.mechanisms.records.laws.coin_swap import CoinLaw, CoinSwap
from tests.mechanisms.records.laws.test_frame_law import copies, fit
from tests.mechanisms.records.sampling import swapped
from tests.world import households


@pytest.fixture(autouse=True)
def one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.BUILT_IN, "coin-swap", (CoinSwap.__module__, "CoinSwap"))


@pytest.mark.parametrize("rate", ["1/3", "9/10"])
def test_its_promise_holds_on_all_small_files(rate: str) -> None:
    result = audit(CoinSwap(match=[], swap=["swap"], rate=rate))
    assert result.passed
    assert result.loss.low > 0


def test_it_is_advised_and_compared_with_the_family_wherever_its_module_stands() -> None:
    assert not CoinSwap.__module__.startswith("stirred")
    assert "coin-swap" in registry.family()


def test_its_release_follows_its_law(p_value: Callable[..., float]) -> None:
    records = list(zip("aab", "xyz", strict=True))
    swap = CoinSwap(match=["stratum"], swap=["swap"], rate="1/2")
    frame = swapped(swap, copies(records, strata=2_000), Entropy.from_seed("coin")).public["data"]
    assert fit(frame, records, swap.law(records), p_value) > 1e-6
    other = CoinSwap(match=["stratum"], swap=["swap"], rate="2/3")
    assert fit(frame, records, other.law(records), p_value) < 1e-6


def test_it_is_planned_released_published_and_audited_like_any_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    households(60).write_parquet(tmp_path / "homes.parquet")
    given = ["swap", str(tmp_path / "homes.parquet"), "--mechanism", "coin", "--match", "size", "--swap", "county"]
    out = tmp_path / "out"
    assert run([*given, "--rate", "1/2", "--id", "hid", "--out", str(out), "--quiet"]) == 0
    stated = json.loads((out / "public" / "specification.json").read_text(encoding="utf-8"))
    assert stated["mechanism"]["name"] == "coin-swap"
    assert run(["check", str(out)]) == 0
    margins = ["--hold-margin", "2,1", "--swap-margin", "2,1"]
    assert run(["audit", "swap", "--mechanism", "coin", "--rate", "1/2", *margins]) == 0
    assert "a factor of 4" in " ".join(capsys.readouterr().out.split())


def test_a_law_gets_no_promise_of_noise_after_it_that_it_does_not_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    """By default a law was believed to draw by sizes alone: noise after one that did not promised 1, and lost 1.5."""
    settings = {"match": ["size"], "swap": ["county"]}

    def claims(name: str, **loss: str) -> bool:
        member: Any = registry.build(name, {**settings, **loss})
        return member.exchange is not None

    assert not claims("coin-swap", rate="1/2")
    monkeypatch.setattr(CoinLaw, "by_sizes", True)
    assert claims("coin-swap", rate="1/2")
    assert claims("permutation-swap", rate="1/2")
    assert claims("shuffle-swap", rate="1/2")
    assert claims("mallows-swap", epsilon="1")
