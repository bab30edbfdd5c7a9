"""Tokenizers that were published as a SentencePiece file alone (Vicuna), tokenised as SentencePiece does."""

from __future__ import annotations

from tokenizers.models import BPE
from transformers import PreTrainedTokenizerBase

from ngram_trie.targets.internals import file_of, generate_merges


def restore_merges(tokenizer: PreTrainedTokenizerBase, path: str, revision: str | None = None) -> None:
    """Order the merges of a tokenizer that transformers converted from a SentencePiece file by the pieces' scores.

    transformers 5 orders them by place in the vocabulary, where Llama's runs of spaces come first; SentencePiece scores
    them last. So a word behind two spaces falls to pieces: token ids that the model has never seen so, and that no
    recorded answer has. A checkpoint with a tokenizer.json, which lists its merges, is left alone.

    Args:
        path, revision: where `tokenizer` was loaded from.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or not isinstance(backend.model, BPE):
        return
    found = {name: file_of(path, name, revision) for name in ("tokenizer.json", "tokenizer.model")}
    if found["tokenizer.json"] or not found["tokenizer.model"]:
        return
    from sentencepiece import SentencePieceProcessor

    pieces = SentencePieceProcessor(model_file=found["tokenizer.model"])
    names = [pieces.id_to_piece(number) for number in range(pieces.get_piece_size())]
    vocabulary = {name: number for number, name in enumerate(names)}
    scores = {name: pieces.get_score(number) for number, name in enumerate(names)}
    # What SentencePiece never merges (control tokens, bytes, user-defined pieces) has no say.
    fixed = {
        name
        for number, name in enumerate(names)
        if pieces.is_control(number) or pieces.is_unknown(number) or pieces.is_byte(number)
    }
    merges = generate_merges(vocabulary, scores, fixed)
    backend.model = BPE(
        vocab=vocabulary, merges=merges, unk_token=tokenizer.unk_token, fuse_unk=True, byte_fallback=True
    )
