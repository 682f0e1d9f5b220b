from __future__ import annotations

import copy
import hashlib
import hmac
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from stirred.randomness import Entropy, Keystream
from stirred.randomness.entropy import BUFFER_WORDS, EntropyError, WordReader


def words_by_hand(key: bytes, chunk: int, count: int) -> list[int]:
    """The documented derivation, done block by block with the bare cipher."""
    cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    counters = (chunk << 64 | block for block in range(count // 4 + 1))
    pad = b"".join(cipher.update(counter.to_bytes(16, "big")) for counter in counters)
    return list(np.frombuffer(pad, dtype="<u4")[:count])


@pytest.mark.parametrize("chunk", [0, 1, 77, 2**32, 2**64 - 1])
def test_words_are_the_documented_aes_counter_mode(chunk: int) -> None:
    root = hashlib.sha256(b"stirred/1/seed/str:known answer").digest()
    key = hmac.digest(root, b"stirred/1/stream/select", "sha256")
    words = Entropy.from_seed("known answer").words("select", chunk=chunk, count=1001)
    assert words.tolist() == words_by_hand(key, chunk, 1001)


KNOWN_WORDS = [3352224624, 717297577, 3616454299, 2538408651]
KNOWN_CHILD_WORDS = [3985988091, 341611432]


def test_the_derivation_of_seeded_words_never_changes() -> None:
    entropy = Entropy.from_seed(2020)
    assert entropy.words("select", chunk=3, count=4).tolist() == KNOWN_WORDS
    assert entropy.child("households").words("select", chunk=3, count=2).tolist() == KNOWN_CHILD_WORDS


def test_a_seed_reproduces_and_the_operating_system_does_not() -> None:
    def first(entropy: Entropy) -> list[int]:
        return list(entropy.words("x", chunk=0, count=8))

    assert first(Entropy.from_seed(7)) == first(Entropy.from_seed(7))
    assert first(Entropy.from_os()) != first(Entropy.from_os())


def test_seeds_purposes_children_and_chunks_all_give_different_words() -> None:
    entropy = Entropy.from_seed(7)
    streams = [
        entropy.words("x", chunk=0, count=8),
        entropy.words("x", chunk=1, count=8),
        entropy.words("y", chunk=0, count=8),
        entropy.child("x").words("x", chunk=0, count=8),
        entropy.child("y").words("x", chunk=0, count=8),
        entropy.child("x").child("x").words("x", chunk=0, count=8),
        Entropy.from_seed("7").words("x", chunk=0, count=8),
        Entropy.from_seed(8).words("x", chunk=0, count=8),
    ]
    assert len({tuple(words.tolist()) for words in streams}) == len(streams)


def test_only_seeded_entropy_and_its_children_say_seeded() -> None:
    assert Entropy.from_seed(1).seeded
    assert Entropy.from_seed(1).child("x").seeded
    assert not Entropy.from_os().seeded
    assert not Entropy.from_os().child("x").seeded


def test_the_key_is_never_shown() -> None:
    entropy = Entropy.from_seed(1)
    key = entropy._key
    for shown in (repr(entropy), str(entropy), f"{entropy}", repr(entropy.keystream("x"))):
        assert key.hex() not in shown
        assert repr(key) not in shown


def test_entropy_is_immutable_and_refuses_to_be_pickled_or_copied() -> None:
    entropy = Entropy.from_os()
    with pytest.raises(AttributeError):
        entropy.seeded = True  # type: ignore[misc]
    for carry in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be pickled or copied"):
            carry(entropy)


@pytest.mark.parametrize("buffer_words", [1, 3, 4, 1000, BUFFER_WORDS])
def test_a_reader_gives_the_same_words_whatever_its_buffer(buffer_words: int) -> None:
    keystream = Entropy.from_seed(1).keystream("x")
    reader = keystream.reader(5, buffer=np.empty(buffer_words, dtype=np.uint32))
    assert [next(reader) for _ in range(2500)] == keystream.words(5, count=2500).tolist()


def test_a_long_fill_equals_a_long_read() -> None:
    keystream = Entropy.from_seed(1).keystream("x")
    count = 2 * BUFFER_WORDS + 5
    reader = keystream.reader(0)
    assert [next(reader) for _ in range(count)] == keystream.words(0, count=count).tolist()


def test_a_64_bit_word_is_two_32_bit_words_low_first() -> None:
    keystream = Entropy.from_seed(1).keystream("x")
    low, high = keystream.words(0, count=2).tolist()
    assert keystream.words(0, count=1, dtype=np.uint64).tolist() == [high << 32 | low]


def test_a_refill_that_would_skip_words_is_refused() -> None:
    reader = Entropy.from_seed(1).keystream("x").reader(0)
    next(reader)
    with pytest.raises(RuntimeError, match="would skip"):
        reader.refill()


def test_misuse_is_loud() -> None:
    entropy = Entropy.from_seed(1)
    with pytest.raises(ValueError, match="needs a purpose"):
        entropy.child("")
    with pytest.raises(ValueError, match="has no address"):
        entropy.words("x", chunk=-1, count=1)
    with pytest.raises(ValueError, match="has no address"):
        entropy.words("x", chunk=2**64, count=1)
    with pytest.raises(TypeError, match="uint32 or uint64"):
        entropy.words("x", chunk=0, count=1, dtype=np.float64)
    with pytest.raises(TypeError, match="int or a str"):
        Entropy.from_seed(0.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="int or a str"):
        Entropy.from_seed(True)
    with pytest.raises(ValueError, match="32 bytes"):
        Entropy(b"short", seeded=False)
    with pytest.raises(TypeError, match="contiguous array of uint32"):
        Keystream(bytes(32)).reader(0, buffer=np.empty(8, dtype=np.int64))


def test_importing_the_packages_does_not_load_numba() -> None:
    script = "import sys, stirred.randomness, stirred.mechanisms.records; print('numba' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


# ---- one release, one process -----------------------------------------------------------------------


def test_one_entropy_makes_one_release_and_a_second_is_refused() -> None:
    entropy = Entropy.from_os()
    assert entropy.for_release() is entropy
    with pytest.raises(EntropyError, match=r"has been used for a release.*Entropy\.from_os\(\)"):
        entropy.for_release()


def test_a_child_made_twice_makes_one_release() -> None:
    entropy = Entropy.from_seed(3)
    entropy.child("run 1").for_release()
    entropy.child("run 2").for_release()
    with pytest.raises(EntropyError, match="has been used for a release"):
        entropy.child("run 1").for_release()


def test_a_seed_makes_the_same_release_as_often_as_it_is_given() -> None:
    for _ in range(2):
        Entropy.from_seed(7).for_release()


def test_of_many_threads_one_gets_the_entropy() -> None:
    entropy = Entropy.from_os()

    def taken(_: int) -> bool:
        try:
            entropy.for_release()
        except EntropyError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(taken, range(64))) == 1


@pytest.mark.parametrize(
    "use",
    [
        lambda entropy, stream: entropy.words("x", chunk=0, count=1),
        lambda entropy, stream: entropy.child("x"),
        lambda entropy, stream: entropy.for_release(),
        lambda entropy, stream: stream.reader(0),
    ],
    ids=["words", "child", "release", "a stream made before"],
)
def test_a_forked_process_cannot_draw_the_words_of_its_parent(use: Callable[[Entropy, Keystream], object]) -> None:
    entropy = Entropy.from_os()
    stream = entropy.keystream("x")
    child = os.fork()
    if not child:  # pragma: no cover - it runs in the other process
        try:
            use(entropy, stream)
        except EntropyError as error:
            os._exit(9 if "process" in str(error) else 1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    use(entropy, stream)


@pytest.mark.parametrize(
    "read",
    [next, lambda reader: reader.take(1), lambda reader: reader.take(5_000), lambda reader: reader.refill()],
    ids=["a word", "words left in the buffer", "more words", "a buffer"],
)
def test_a_forked_process_cannot_go_on_with_a_reader_of_its_parent(read: Callable[[WordReader], object]) -> None:
    reader = Entropy.from_os().keystream("x").reader(0)
    reader.take(3)
    child = os.fork()
    if not child:  # pragma: no cover - it runs in the other process
        try:
            read(reader)
        except EntropyError as error:
            os._exit(9 if "process" in str(error) else 1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


def test_a_kept_key_that_made_a_release_makes_no_other_one() -> None:
    entropy = Entropy.from_os().child("entry")
    Entropy.from_kept(entropy.kept).check_unused()
    entropy.for_release()
    with pytest.raises(EntropyError, match="has been used for a release"):
        Entropy.from_kept(entropy.kept).for_release()
    again = Entropy.from_kept(entropy.kept, same_release=True).for_release()
    assert again.words("x", chunk=0, count=3).tolist() == entropy.words("x", chunk=0, count=3).tolist()


def test_a_forked_process_may_read_a_seed() -> None:
    entropy = Entropy.from_seed(1)
    child = os.fork()
    if not child:  # pragma: no cover - it runs in the other process
        entropy.child("x").words("y", chunk=0, count=1)
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_a_kept_key_repeats_the_words() -> None:
    entropy = Entropy.from_os().child("entry")
    again = Entropy.from_kept(entropy.kept)
    assert again.words("x", chunk=5, count=9).tolist() == entropy.words("x", chunk=5, count=9).tolist()
