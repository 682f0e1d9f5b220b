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
"""

from __future__ import annotations

import hashlib
import hmac
import os
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

# Version 1 of the derivation. A change of any tag changes every seeded result.
_SEED_TAG: Final = b"stirred/1/seed/"
_CHILD_TAG: Final = b"stirred/1/child/"
_STREAM_TAG: Final = b"stirred/1/stream/"
_MOST_CHUNKS: Final = 1 << 64
_ZEROS: Final = bytes(4 * BUFFER_WORDS)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Entropy:
    """A source of independent random streams, one for each purpose.

    ``Entropy.from_os()`` is for releases. ``Entropy.from_seed(...)`` is for tests only: whoever knows
    the seed can undo the protection, so ``seeded`` is true and every artefact must say so.

    Immutable and without position: reading the same address twice gives the same words. Give every
    act its own ``child``; two acts that share an entropy would share their outcomes.

    >>> entropy = Entropy.from_seed("an example")
    >>> entropy
    Entropy(seeded=True, key hidden)
    >>> first = entropy.words("noise", chunk=0, count=5)
    >>> bool((first == entropy.words("noise", chunk=0, count=5)).all())
    True
    >>> bool((first == entropy.child("table 2").words("noise", chunk=0, count=5)).all())
    False
    """

    _key: bytes = field(repr=False)
    seeded: bool

    def __post_init__(self) -> None:
        if len(self._key) != KEY_BYTES:
            raise ValueError(f"an entropy key has {KEY_BYTES} bytes. Use from_os() or, in tests, from_seed()")

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
        return type(self)(_derive(self._key, _CHILD_TAG, purpose), seeded=self.seeded)

    def keystream(self, purpose: str) -> Keystream:
        """Return the words of one purpose, addressed by chunk."""
        return Keystream(_derive(self._key, _STREAM_TAG, purpose))

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

    __slots__ = ("_aes",)

    def __init__(self, key: bytes) -> None:
        self._aes = algorithms.AES(key)

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

    def reader(self, chunk: int, *, buffer: Words | None = None) -> WordReader:
        """Return a reader placed at the first word of a chunk, filling ``buffer`` if one is lent."""
        return WordReader(self._encryptor(chunk), np.empty(1024, np.uint32) if buffer is None else buffer)

    def _encryptor(self, chunk: int) -> Any:
        if not 0 <= chunk < _MOST_CHUNKS:
            raise ValueError(f"chunk {chunk} has no address. Chunk numbers lie in [0, 2**64)")
        counter = chunk.to_bytes(8, "big") + bytes(8)
        return Cipher(self._aes, modes.CTR(counter)).encryptor()


class WordReader(Iterator[int]):
    """The words of one chunk in order, for Python one by one and for compiled code by the buffer.

    Compiled code reads ``words[cursor[0]:]``, moves ``cursor[0]`` past what it used and asks for
    ``refill`` only when nothing is left. Refilling never skips or repeats a word, so results do not
    depend on the buffer size. One reader belongs to one thread.
    """

    __slots__ = ("_buffer", "_encryptor", "cursor", "words")

    def __init__(self, encryptor: Any, buffer: Words) -> None:
        if buffer.dtype != np.uint32 or not buffer.flags.c_contiguous:
            raise TypeError("a word buffer is a contiguous array of uint32")
        self._encryptor = encryptor
        self._buffer = buffer
        self.words: Words = buffer[:0]
        self.cursor = np.zeros(1, dtype=np.int64)

    def refill(self, expected: int | None = None) -> None:
        """Fetch the next words: as many as the buffer holds, or ``expected`` if that is fewer."""
        if self.cursor[0] != self.words.size:
            raise RuntimeError("words are left in the buffer; refilling would skip them")
        count = self._buffer.size if expected is None else min(expected, self._buffer.size)
        self.words = self._buffer[:count]
        _encrypt_zeros(self._encryptor, self.words)
        self.cursor[0] = 0

    def take(self, count: int) -> Words:
        """Return the next ``count`` words at once, the same as one by one."""
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
        if self.cursor[0] == self.words.size:
            self.refill()
        word = int(self.words[self.cursor[0]])
        self.cursor[0] += 1
        return word


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
