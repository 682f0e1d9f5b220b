"""Groups in this process: in their order on any number of threads, asked for as there is room, and given up at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from stirred.engines.local import LocalEngine, in_order


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_groups_come_back_in_their_order_on_threads(threads: int) -> None:
    later = threading.Event()

    def kernel(group: int) -> int:
        if group == 0 and threads > 1:
            assert later.wait(30), "the next group is under way before this one is done"
        later.set()
        return -group

    assert [*LocalEngine(threads=threads).map_groups(range(20), kernel)] == [-group for group in range(20)]


def test_no_more_groups_are_asked_for_than_there_is_room() -> None:
    asked: list[int] = []

    def groups() -> Iterator[int]:
        for group in range(100):
            asked.append(group)
            yield group

    found = in_order(groups(), str, at_once=3)
    assert next(found) == "0"
    assert len(asked) <= 4
    found.close()  # type: ignore[attr-defined]


def test_what_is_under_way_is_given_up_and_the_first_error_is_told() -> None:
    given_up = threading.Event()

    def kernel(group: int) -> int:
        if group == 0:
            raise ValueError("the first")
        assert given_up.wait(30)
        return group

    def give_up() -> None:
        given_up.set()
        raise ConnectionError("the cluster is gone")

    with pytest.raises(ValueError, match="the first"):
        [*in_order(range(5), kernel, at_once=2, give_up=give_up)]
    assert given_up.is_set()
