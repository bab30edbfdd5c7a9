"""The Llama tokenizer from its SentencePiece file, without the sentencepiece package: for replays only."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest


def llama_tokenizer(model: Path):
    """A `tokenizers.Tokenizer` that adds no special tokens: BPE whose merges go by the pieces' scores."""
    tokenizers = pytest.importorskip("tokenizers")
    scores = dict(_pieces(model.read_bytes()))
    vocab = {piece: rank for rank, piece in enumerate(scores)}
    merges = [
        (piece[:cut], piece[cut:])
        for piece in sorted(scores, key=lambda piece: -scores[piece])  # best first; the sort is stable
        for cut in range(1, len(piece))
        if piece[:cut] in vocab and piece[cut:] in vocab
    ]
    bpe = tokenizers.models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    tokenizer = tokenizers.Tokenizer(bpe)
    tokenizer.normalizer = tokenizers.normalizers.Sequence(
        [tokenizers.normalizers.Prepend("▁"), tokenizers.normalizers.Replace(" ", "▁")]
    )
    return tokenizer


def _pieces(model: bytes) -> Iterator[tuple[str, float]]:
    """The vocabulary of a SentencePiece model with its scores: field 1 is a piece, in it field 1 text and 2 score."""
    for field, message in _fields(model):
        if field == 1:
            parts = dict(_fields(message))
            yield parts[1].decode(), struct.unpack("<f", parts[2])[0]


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """(number, content) of the fields of a protocol buffer message, numbers of variable length left out."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = varint()
        kind = key & 7
        if kind == 0:
            varint()
            continue
        size = varint() if kind == 2 else 4 if kind == 5 else 8
        yield key >> 3, message[at : at + size]
        at += size
