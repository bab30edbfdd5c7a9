"""What tests of methods with weights share: prompts, an answer of the loop, files as PyTorch writes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from ngram_trie.decoding import GenerationResult, SpeculativeDecoder, Stop
from ngram_trie.drafter import Drafter
from ngram_trie.prompt import Prompt
from ngram_trie.targets.model import TargetModel
from support.tiny import VOCABULARY

PROMPTS = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=24)


class Trap:
    """Something to pickle that fails the test where it is read."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (pytest.fail, ("a pickle was run",))


def decode(target: TargetModel, drafter: Drafter, prompt: list[int], length: int) -> GenerationResult:
    return SpeculativeDecoder(target, drafter).generate(Prompt(np.array(prompt, np.int64)), Stop(length))


def save_tensors(tensors: dict[str, torch.Tensor], file: Path) -> Path:
    """Write `tensors` the way PyTorch does; returns the folder."""
    torch.save(tensors, file)
    return file.parent
