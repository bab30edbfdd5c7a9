"""Noise in what tries read (the paper's Table 4), for recorded answers; for live prompts: data/noise.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ngram_trie.bench.traces import Trace
from ngram_trie.data.noise import NoiseSettings
from ngram_trie.prompt import Prompt, column_name
from ngram_trie.tree import IntArray

#: Tokens of the fixed noise that `with_noise` puts behind every prompt of a category.
PARAGRAPH_TOKENS = 128


def with_noise(categories: Mapping[str, list[Trace]], noise: NoiseSettings) -> dict[str, list[Trace]]:
    """Each category, and after it the same answers with each kind of noise in the text that tries are built from:
    "paragraph", the beginning of one unrelated prompt, the same for all; "passages", pieces of the category's other
    prompts. The model answered the clean prompts, so nothing changes for a drafter that reads the
    prompt itself.

    Raises:
        ValueError: there is no second category to take the paragraph from.
    """
    noisy: dict[str, list[Trace]] = {}
    for name, traces in categories.items():
        others = [t.prompt for other, part in categories.items() if other != name for t in part]
        if not others:
            raise ValueError(f"noise: that for {name} comes from another category, and there is none")
        noisy[name] = traces
        for kind in noise.kinds:
            disturbed = []
            for place, trace in enumerate(traces):
                if kind == "paragraph":
                    tokens = _user_part(others[0])[:PARAGRAPH_TOKENS]
                else:
                    pool = [t.prompt for t in traces if t.prompt.question_id != trace.prompt.question_id] or others
                    rng = np.random.default_rng([noise.seed, place])
                    wanted = round(len(_user_part(trace.prompt)) * noise.share / (1 - noise.share))
                    tokens = _pieces(pool, wanted, rng)
                prompt = replace(trace.prompt, noise=tokens, noise_kind=kind)
                disturbed.append(replace(trace, prompt=prompt))
            noisy[column_name(name, kind)] = disturbed
    return noisy


def _pieces(pool: Sequence[Prompt], wanted: int, rng: np.random.Generator) -> IntArray:
    """`wanted` tokens, in pieces of at most PARAGRAPH_TOKENS, from prompts and places drawn at random."""
    pieces = [np.empty(0, np.int64)]
    while wanted > 0:
        part = _user_part(pool[int(rng.integers(len(pool)))])
        start = int(rng.integers(max(1, len(part) - PARAGRAPH_TOKENS)))
        pieces.append(part[start : start + min(PARAGRAPH_TOKENS, wanted)])
        wanted -= max(1, len(pieces[-1]))
    return np.concatenate(pieces)


def _user_part(prompt: Prompt) -> IntArray:
    return prompt.part("user" if "user" in prompt.spans else "prompt")
