"""The likeliest next tokens along recorded answers, in a file of their own beside the traces.

FILE.likely stands beside FILE.jsonl. Its first line is JSON: how many tokens a row has and how they are stored. Then
comes a block for each answer: its fingerprint, its number of rows, their checksum, and the rows. Row p holds the k
likeliest tokens behind token p of prompt and answer, the likeliest first, and their log-probabilities in half
precision. The last token of an answer has none: nothing was asked behind it. So an answer of n tokens to a prompt of l
has l + n - 1 rows.

Blocks are found by their answer's tokens, so a part of the traces is read with the whole file beside it.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from ngram_trie.drafter import Likely
from ngram_trie.tree import IntArray

VERSION = 2
_HEAD = np.dtype([("fingerprint", "S16"), ("num_rows", "<i8"), ("crc32", "<u4")])


def companion(traces: Path) -> Path:
    """Where the likely tokens of a file of traces are, if they were recorded."""
    return traces.with_suffix(".likely")


def fingerprint(prompt_ids: IntArray, output_ids: Sequence[int]) -> bytes:
    """What an answer is known by: its tokens and the prompt's, hashed."""
    parts = [np.array([len(prompt_ids)]), prompt_ids, np.array(output_ids)]
    return hashlib.blake2b(np.concatenate(parts).astype("<i8").tobytes(), digest_size=8).hexdigest().encode()


def _row(k: int, token: str) -> np.dtype[Any]:
    return np.dtype([("tokens", token, (k,)), ("logprobs", "<f2", (k,))])


@dataclass(frozen=True)
class LikelyRows:
    """One answer's rows, which stay in the file: another process maps them itself.

    Attributes:
        path, offset: where they begin, in bytes.
        num_rows, k: how many rows, and how many tokens each holds.
        token: how a token is stored, as numpy names it.
    """

    path: Path
    offset: int
    num_rows: int
    k: int
    token: str

    @property
    def end(self) -> int:
        return self.offset + self.num_rows * _row(self.k, self.token).itemsize

    def map(self) -> np.ndarray:
        """(num_rows,) with the fields `tokens` and `logprobs`, (k,) each."""
        return np.memmap(self.path, _row(self.k, self.token), "r", self.offset, (self.num_rows,))


@dataclass(frozen=True)
class LikelyFile:
    """What lies where in a file.

    Attributes:
        k, token: as in `LikelyRows`.
        start: where the first block begins.
        rows: the complete ones, by fingerprint; what a kill left of another is none.
    """

    path: Path
    k: int
    token: str
    start: int
    rows: dict[bytes, LikelyRows]

    @classmethod
    def open(cls, path: Path) -> Self:
        """
        Raises:
            ValueError: it is no such file, or rows were changed.
        """
        with path.open("rb") as file:
            try:
                header = json.loads(file.readline())
                version, k, token = header["version"], int(header["k"]), str(header["token"])
                _row(k, token)
            except (ValueError, TypeError, KeyError):
                raise ValueError(f"{path}: not a file of likely tokens: its first line is none of theirs") from None
            if version != VERSION:
                raise ValueError(f"{path}: version {version} of files of likely tokens, expected {VERSION}")
            found = cls(path, k, token, file.tell(), {})
            end, size = found.start, path.stat().st_size
            while end + _HEAD.itemsize <= size:
                file.seek(end)
                head = np.frombuffer(file.read(_HEAD.itemsize), _HEAD)[0]
                rows = LikelyRows(path, end + _HEAD.itemsize, int(head["num_rows"]), k, token)
                if rows.end > size:
                    break
                if zlib.crc32(file.read(rows.end - rows.offset)) != head["crc32"]:
                    raise ValueError(
                        f"{path}: the rows of its answer {len(found.rows) + 1} were changed, their checksum is of "
                        "others: record them again"
                    )
                found.rows[head["fingerprint"]] = rows
                end = rows.end
        return found


class LikelyWriter:
    """Appends the rows of answers to a file, which begins with this or is gone on with.

    Args:
        path: the file.
        k: tokens of a row.
        num_tokens: size of the vocabulary, which decides how tokens are stored.
        known: rows of the answers that are kept; what stands behind them is of an answer that was interrupted. Without
            any the file is begun anew.
    """

    def __init__(self, path: Path, k: int, num_tokens: int, known: Sequence[LikelyRows] = ()) -> None:
        token = known[0].token if known else "<u2" if num_tokens <= 2**16 else "<i4"
        self._row = _row(k, token)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("rb+" if known else "wb")
        if known:
            self._file.truncate(max(rows.end for rows in known))
            self._file.seek(0, os.SEEK_END)
        else:
            self._file.write(json.dumps({"version": VERSION, "k": k, "token": token}).encode() + b"\n")
            self._file.flush()

    def add(self, prompt_ids: IntArray, output_ids: Sequence[int], parts: Iterable[Likely]) -> None:
        """Append an answer's rows, given in the order of the text."""
        tokens, probs = (np.concatenate(arrays) for arrays in zip(*((p.tokens, p.probs) for p in parts), strict=True))
        rows = np.empty(len(tokens), self._row)
        rows["tokens"] = tokens
        with np.errstate(divide="ignore"):  # a probability of 0 is one, too
            rows["logprobs"] = np.log(probs)
        content = rows.tobytes()
        head = np.array((fingerprint(prompt_ids, output_ids), len(rows), zlib.crc32(content)), _HEAD)
        self._file.write(head.tobytes() + content)
        self._file.flush()

    def close(self) -> None:
        self._file.close()
