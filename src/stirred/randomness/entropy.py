"""Entropy: the one place where the randomness of a release comes from.

Every random decision is *addressed*: a purpose (why), a chunk number (for which rows or strata) and
a position (which word). The words at an address are AES-256 in counter mode, so an address always
holds the same words, however many threads read them and in whatever order. A retry therefore
repeats its decisions instead of drawing new noise.

    key of the release  --HMAC-SHA-256-->  key of a purpose  --AES-256-CTR-->  words of a chunk

The counter block is the chunk number (64 bits) followed by the block number inside the chunk
(64 bits), both big-endian: two chunks never share a block. Words are read little-endian on every
machine. Seeded entropy, for tests, differs in nothing but where the first key comes from.

A 256-bit key matters: a 64-bit seed cannot reach all permutations of even 21 records
(docs/theory/conditions.md, condition 7).

An address holds the same words for ever, so one entropy may decide one release: a second one would repeat the
decisions of the first. A mechanism asks for its words with ``for_release``, which refuses the second time. A forked
process inherits the key and would draw the same words as its parent: only the process that made a key may use it.
Seeded entropy is exempt from the latter, since to repeat words is what it is for.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, Self

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

Words = npt.NDArray[np.uint32]

KEY_BYTES: Final = 32
WORD_BITS: Final = 32
BUFFER_WORDS: Final = 1 << 16
_BLOCK_WORDS: Final = 4

# Version 1 of the derivation. A change of any tag changes every seeded result.
_SEED_TAG: Final = b"stirred/1/seed/"
_CHILD_TAG: Final = b"stirred/1/child/"
_STREAM_TAG: Final = b"stirred/1/stream/"
_USED_TAG: Final = b"stirred/1/used/"
_MOST_CHUNKS: Final = 1 << 64
_ZEROS: Final = bytes(4 * BUFFER_WORDS)
_MARKING: Final = threading.Lock()
_USED: Final[set[bytes]] = set()  # hashes of the keys, never the keys themselves, that made a release in this process


class EntropyError(RuntimeError):
    """Entropy that would repeat decisions which were made already."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Entropy:
    """A source of independent random streams, one for each purpose.

    ``Entropy.from_os()`` is for releases. ``Entropy.from_seed(...)`` is for tests only: whoever knows
    the seed can undo the protection, so ``seeded`` is true and every artefact must say so.

    Without position: reading the same address twice gives the same words. Give every act its own ``child``; two
    acts that share an entropy would share their outcomes. One entropy makes one release.

    >>> entropy = Entropy.from_seed("an example")
    >>> entropy
    Entropy(seeded=True, key hidden)
    >>> first = entropy.words("noise", chunk=0, count=5)
    >>> bool((first == entropy.words("noise", chunk=0, count=5)).all())
    True
    >>> bool((first == entropy.child("table 2").words("noise", chunk=0, count=5)).all())
    False
    """

    _key: bytes = field(default=b"", repr=False)
    seeded: bool = False
    # The keys that have made a release, of this entropy and all its children; and the process that may use them.
    _spent: set[bytes] = field(default_factory=set, repr=False)
    _process: int = field(default_factory=os.getpid, repr=False)

    def __post_init__(self) -> None:
        if len(self._key) != KEY_BYTES:
            raise ValueError(
                f"an entropy key has {KEY_BYTES} bytes. Write Entropy.from_os() or, in tests, Entropy.from_seed(...)"
            )

    @classmethod
    def from_kept(cls, key: bytes, *, same_release: bool = False) -> Self:
        """Return the entropy of a release that was not finished, from the key that was ``kept`` for it.

        A key that has made a release in this process stays used. Only whoever has compared that everything else is
        the same may make the ``same_release`` with it again.
        """
        used = not same_release and _print_of(key) in _USED
        return cls(key, False, {key} if used else set())

    @property
    def kept(self) -> bytes:
        """Return the key, to be kept where only its owner can read it, and no longer than the release takes."""
        return self._key

    @staticmethod
    def expected(given: object) -> None:
        """Refuse what can make no release: a seed, or an entropy that made one or belongs to another process.

        A mechanism asks this before anything else. A forked child that first worked on the data could wait for ever
        for threads that its parent had and it has not.
        """
        if not isinstance(given, Entropy):
            raise TypeError(
                f"randomness is an Entropy, not {given!r:.60}. Write Entropy.from_os(), or in tests "
                "Entropy.from_seed(...)"
            )
        given.check_unused()

    def for_release(self) -> Self:
        """Return this entropy for the one release that it may make; the second time is refused.

        >>> entropy = Entropy.from_seed("an example")
        >>> entropy.for_release() is entropy
        True
        >>> entropy.for_release()
        Traceback (most recent call last):
        stirred.randomness.entropy.EntropyError: this entropy has been used for a release, and a second one would ...
        """
        with _MARKING:
            self.check_unused()
            self._spent.add(self._key)
            if not self.seeded:
                _USED.add(_print_of(self._key))
        return self

    def check_unused(self) -> None:
        """Refuse an entropy that has made a release, or that belongs to another process."""
        self._check_process()
        if self._key in self._spent:
            raise EntropyError(
                "this entropy has been used for a release, and a second one would repeat its decisions. "
                "Make a new one with Entropy.from_os()"
            )

    def _check_process(self) -> None:
        if not self.seeded and os.getpid() != self._process:
            raise EntropyError(
                f"this entropy was made in another process ({self._process}), which would draw the same words. "
                "Make a new one with Entropy.from_os() in every process"
            )

    @classmethod
    def from_os(cls) -> Self:
        """Return entropy with a fresh 256-bit key from the operating system's generator."""
        return cls(os.urandom(KEY_BYTES), seeded=False)

    @classmethod
    def from_seed(cls, seed: int | str) -> Self:
        """Return reproducible entropy, for tests only."""
        if isinstance(seed, bool) or not isinstance(seed, int | str):
            raise TypeError(f"a seed is an int or a str, not {type(seed).__name__}")
        # The type is part of the seed: 7 and "7" are different seeds.
        text = f"{type(seed).__name__}:{seed}"
        return cls(hashlib.sha256(_SEED_TAG + text.encode()).digest(), seeded=True)

    def child(self, purpose: str) -> Self:
        """Return entropy whose streams are independent of this one's and of every other child's."""
        self._check_process()
        return type(self)(_derive(self._key, _CHILD_TAG, purpose), self.seeded, self._spent, self._process)

    def keystream(self, purpose: str) -> Keystream:
        """Return the words of one purpose, addressed by chunk."""
        self._check_process()
        return Keystream(_derive(self._key, _STREAM_TAG, purpose), process=None if self.seeded else self._process)

    def words(self, purpose: str, *, chunk: int, count: int, dtype: npt.DTypeLike = np.uint32) -> npt.NDArray[Any]:
        """Return the first ``count`` words at an address, as ``uint32`` or ``uint64``."""
        return self.keystream(purpose).words(chunk, count=count, dtype=dtype)

    def __repr__(self) -> str:
        return f"Entropy(seeded={self.seeded}, key hidden)"

    def __reduce__(self) -> NoReturn:
        # A pickle would carry the key to a file, a queue or another machine. Copying is refused too.
        raise TypeError("entropy cannot be pickled or copied. Pass the object itself, or make a child")


class Keystream:
    """The words of one purpose: an endless sequence of 32-bit words for every chunk number.

    Safe to share between threads. ``fill`` is the bulk path, ``reader`` the sequential one.

    >>> keystream = Entropy.from_seed(1).keystream("example")
    >>> reader = keystream.reader(9)
    >>> [next(reader) for _ in range(3)] == keystream.words(9, count=3).tolist()
    True
    """

    __slots__ = ("_aes", "_process")

    def __init__(self, key: bytes, *, process: int | None = None) -> None:
        self._aes = algorithms.AES(key)
        self._process = process

    def fill(self, chunk: int, out: Words) -> None:
        """Overwrite ``out`` with the first words of a chunk."""
        self.reader(chunk, buffer=out).refill(out.size)

    def words(self, chunk: int, *, count: int, dtype: npt.DTypeLike = np.uint32) -> npt.NDArray[Any]:
        """Return the first ``count`` words of a chunk; a ``uint64`` word is two 32-bit words, low first."""
        kind = np.dtype(dtype)
        if kind not in (np.dtype(np.uint32), np.dtype(np.uint64)):
            raise TypeError(f"words are uint32 or uint64, not {kind}")
        out: Words = np.empty(count * (kind.itemsize // 4), dtype=np.uint32)
        self.fill(chunk, out)
        return out.view(kind)

    def rows(self, chunks: npt.NDArray[np.uint64], *, count: int) -> Words:
        """Return the first words of many chunks, a row for each: ``count`` of them or, to a whole block, a few more.

        The cipher of a counter is the pad itself, so one call encrypts the counters of all chunks.

        >>> keystream = Entropy.from_seed(1).keystream("example")
        >>> rows = keystream.rows(np.array([9, 4], dtype=np.uint64), count=3)
        >>> rows[1, :3].tolist() == keystream.words(4, count=3).tolist()
        True
        """
        _check_own(self._process)
        blocks = -(-count // _BLOCK_WORDS)
        counters = np.empty((chunks.size, blocks, 2), dtype=">u8")
        counters[:, :, 0], counters[:, :, 1] = chunks[:, None], np.arange(blocks)
        encryptor = Cipher(self._aes, modes.ECB()).encryptor()
        pad = np.frombuffer(encryptor.update(counters.view(np.uint8).reshape(-1).data), dtype="<u4")
        return pad.astype(np.uint32, copy=False).reshape(chunks.size, blocks * _BLOCK_WORDS)

    def reader(self, chunk: int, *, buffer: Words | None = None) -> WordReader:
        """Return a reader placed at the first word of a chunk, filling ``buffer`` if one is lent."""
        words = np.empty(1024, np.uint32) if buffer is None else buffer
        return WordReader(self._encryptor(chunk), words, process=self._process)

    def _encryptor(self, chunk: int) -> Any:
        if not 0 <= chunk < _MOST_CHUNKS:
            raise ValueError(f"chunk {chunk} has no address. Chunk numbers lie in [0, 2**64)")
        _check_own(self._process)
        counter = chunk.to_bytes(8, "big") + bytes(8)
        return Cipher(self._aes, modes.CTR(counter)).encryptor()


class WordReader(Iterator[int]):
    """The words of one chunk in order, for Python one by one and for compiled code by the buffer.

    Compiled code reads ``words[cursor[0]:]``, moves ``cursor[0]`` past what it used and asks for
    ``refill`` only when nothing is left. Refilling never skips or repeats a word, so results do not
    depend on the buffer size. One reader belongs to one thread, and to the process of its entropy.
    """

    __slots__ = ("_buffer", "_encryptor", "_process", "cursor", "words")

    def __init__(self, encryptor: Any, buffer: Words, *, process: int | None = None) -> None:
        if buffer.dtype != np.uint32 or not buffer.flags.c_contiguous:
            raise TypeError("a word buffer is a contiguous array of uint32")
        self._encryptor = encryptor
        self._buffer = buffer
        self._process = process
        self.words: Words = buffer[:0]
        self.cursor = np.zeros(1, dtype=np.int64)

    def refill(self, expected: int | None = None) -> None:
        """Fetch the next words: as many as the buffer holds, or ``expected`` if that is fewer."""
        _check_own(self._process)
        if self.cursor[0] != self.words.size:
            raise RuntimeError("words are left in the buffer; refilling would skip them")
        count = self._buffer.size if expected is None else min(expected, self._buffer.size)
        self.words = self._buffer[:count]
        _encrypt_zeros(self._encryptor, self.words)
        self.cursor[0] = 0

    def take(self, count: int) -> Words:
        """Return the next ``count`` words at once, the same as one by one."""
        _check_own(self._process)  # a fork inherits what is left in the buffer too
        taken: Words = np.empty(count, dtype=np.uint32)
        done = 0
        while done < count:
            if self.cursor[0] == self.words.size:
                self.refill()
            part = self.words[self.cursor[0] : self.cursor[0] + count - done]
            taken[done : done + part.size] = part
            self.cursor[0] += part.size
            done += part.size
        return taken

    def __next__(self) -> int:
        _check_own(self._process)
        if self.cursor[0] == self.words.size:
            self.refill()
        word = int(self.words[self.cursor[0]])
        self.cursor[0] += 1
        return word


def _print_of(key: bytes) -> bytes:
    return hashlib.sha256(_USED_TAG + key).digest()


def _check_own(process: int | None) -> None:
    """Refuse words of another process; seeded ones belong to none."""
    if process is not None and os.getpid() != process:
        raise EntropyError("these words belong to another process. Make an entropy with Entropy.from_os() in every one")


def _derive(key: bytes, tag: bytes, purpose: str) -> bytes:
    if not purpose:
        raise ValueError("a stream needs a purpose. Name what the randomness decides, such as 'select'")
    return hmac.digest(key, tag + purpose.encode(), "sha256")


def _encrypt_zeros(encryptor: Any, out: Words) -> None:
    """Write the cipher's keystream over ``out``: encrypting zeros shows the pad itself."""
    target = out.data.cast("B")
    for start in range(0, len(target), len(_ZEROS)):
        piece = target[start : start + len(_ZEROS)]
        encryptor.update_into(memoryview(_ZEROS)[: len(piece)], piece)
    if not np.little_endian:  # pragma: no cover
        out.byteswap(inplace=True)
