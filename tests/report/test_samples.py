"""Answers to be read."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
from support.records import record

from ngram_trie.prompt import Prompt
from ngram_trie.report import samples


def test_equal_answers_stand_once_and_another_one_is_marked(tmp_path: Path) -> None:
    made = [
        record("vanilla"),
        record("pld", accept=(3,)),
        record("blend", accept=(2, 1)),
        record("broken", failed=True),
    ]
    made[2] = dataclasses.replace(made[2], output_ids=[7, 7, 7, 8])
    path = tmp_path / "samples.md"
    samples.write(
        path,
        dict(enumerate(made)).values(),
        lambda item: Prompt(np.arange(400), {}, *item),
        lambda ids: " ".join(map(str, ids)),
    )
    text = path.read_text()
    assert text.startswith("# Answers of toy\n\n## qa, 1\n\n~~~~text\n... ")
    assert "398 399\n~~~~" in text and " 100 " not in text
    assert "**vanilla (3 passes), pld (1 passes)**, 4 tokens\n\n~~~~text\n7 7 7 7\n~~~~" in text
    assert "**blend (2 passes)**: **not the first answer**, 4 tokens\n\n~~~~text\n7 7 7 8\n~~~~" in text
    assert "**broken**: no answer, no room" in text
