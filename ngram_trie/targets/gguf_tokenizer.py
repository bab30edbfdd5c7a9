"""The tokenizer that a GGUF file describes: vocabulary, merges, special tokens, and what its header says of each.

It is put together here and not by transformers, which reads few names of pre-tokenizers, takes GPT-2's for all others,
and cuts up special tokens with letters outside ASCII.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import generate_merges

from ngram_trie.targets.pre_tokenizers import KNOWN, PreTokenizer, known

#: Lists of a header that make a tokenizer.
LISTS = tuple(f"tokenizer.ggml.{name}" for name in ("tokens", "token_type", "scores", "merges"))
#: Kinds of tokens, as `gguf.TokenType` numbers them.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
#: Phi-3's special tokens swallow the space behind them, but for these; no header says so.
_PHI3_KEEP_SPACE = ("<unk>", "<s>", "<|endoftext|>")


def read_tokenizer(about: Mapping[str, Any]) -> PreTrainedTokenizerFast:
    """The tokenizer of a file: the ids of a text are those that its model was trained with.

    Args:
        about: what the file says of itself, with `LISTS`.

    Raises:
        ValueError: what decides the ids is missing, or is not known here; the message says what to do.
    """
    kind, architecture = about.get("tokenizer.ggml.model"), about.get("general.architecture", "")
    tokens, types, scores, merges = (about.get(name, ()) for name in LISTS)
    is_gemma = kind == "llama" and architecture.startswith("gemma")  # the first three
    if is_gemma:  # its merges are in the order of its vocabulary, where the file has runs of spaces as they are
        tokens = [token if token.strip(" ") else "▁" * len(token) for token in tokens]
        types = [NORMAL if set(token) == {"▁"} else of for token, of in zip(tokens, types, strict=True)]
        scores = [-number for number in range(len(tokens))]
    vocabulary = {token or f"[EMPTY_{number}]": number for number, token in enumerate(tokens)}
    types = dict(zip(vocabulary, types, strict=False))
    if len(vocabulary) < max(1, len(tokens)):
        raise ValueError("its vocabulary (tokenizer.ggml.tokens) is missing, or has a token twice")
    ids = {name: about.get(f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos", "unknown", "padding")}
    special = {name: tokens[number] for name, number in ids.items() if number is not None and number < len(tokens)}
    if kind == "llama":
        rule = PreTokenizer((), add_bos=True, escaped=True)
        fixed = {token for token, of in types.items() if of in (UNKNOWN, CONTROL, USER_DEFINED, BYTE)}
        pairs = generate_merges(vocabulary, dict(zip(vocabulary, scores, strict=True)), fixed)
    elif kind in ("gpt2", "gemma4"):
        rule = known(about.get("tokenizer.ggml.pre")) if kind == "gpt2" else KNOWN["gemma4"]
        # A merge whose left half begins with a space has another between its halves.
        cut = [merge.index(" ", 1) for merge in merges]
        pairs = [(merge[:at], merge[at + 1 :]) for merge, at in zip(merges, cut, strict=True)]
        if not pairs:
            raise ValueError(
                "it has no merges (tokenizer.ggml.merges): give the folder or hub id of the original model"
            )
    else:
        raise ValueError(
            f"its tokenizer is of the kind {kind!r} (tokenizer.ggml.model), and only gpt2, llama and gemma4 are read: "
            "give the folder or hub id of the original model"
        )
    backend = Tokenizer(
        BPE(
            vocabulary,
            pairs,
            ignore_merges=rule.ignore_merges,
            byte_fallback=rule.escaped,
            fuse_unk=rule.escaped,
            unk_token=special.get("unknown") if rule.escaped else None,
        )
    )
    backend.normalizer, backend.pre_tokenizer = rule.normalizer(), rule.pre_tokenizer()
    backend.decoder = decoders.ByteLevel()
    if rule.escaped:
        steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
        if kind == "llama" and not is_gemma and about.get("tokenizer.ggml.add_space_prefix", True):
            steps.append(decoders.Strip(" ", 1, 0))
            if types.get("[INST]") == CONTROL:  # Mistral's since version 3: only before a text's first word
                backend.pre_tokenizer = pre_tokenizers.Metaspace("▁", "first", split=False)
            else:  # before what follows a special token, too
                backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), backend.normalizer])
        backend.decoder = decoders.Sequence(steps)
    is_phi3 = architecture == "phi3" and kind == "llama"
    backend.add_tokens(
        [
            AddedToken(
                token, special=of != USER_DEFINED, normalized=False, rstrip=is_phi3 and token not in _PHI3_KEEP_SPACE
            )
            for token, of in types.items()
            if of in (UNKNOWN, CONTROL, USER_DEFINED)
        ]
    )
    add_bos = about.get("tokenizer.ggml.add_bos_token", rule.add_bos) and kind != "gemma4"
    add_eos = about.get("tokenizer.ggml.add_eos_token", False)
    for name, is_added in (("bos", add_bos), ("eos", add_eos)):
        if is_added and name not in special:
            raise ValueError(f"every text has a token added that it does not name (tokenizer.ggml.{name}_token_id)")
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        add_bos_token=add_bos,
        add_eos_token=add_eos,
        chat_template=about.get("tokenizer.chat_template"),
        bos_token=special.get("bos"),
        eos_token=special.get("eos"),
        unk_token=special.get("unknown"),
        pad_token=special.get("padding"),
        clean_up_tokenization_spaces=False,
    )
