"""What NVIDIA's harness asks of an engine: chunks of token ids, a time for each, the end token left out."""

from __future__ import annotations

import asyncio
import importlib
from typing import Any

import pytest

from ngram_trie import Speculator, load_pretrained
from ngram_trie.store.files import PROJECT

FOLDER = str(PROJECT / "data/tiny/model")
#: As its run.py calls every engine.
GIVEN: dict[str, Any] = {
    "max_concurrent_requests": 1,
    "sampling_kwargs": {"temperature": 0},
    "speculative_algorithm": "NGRAM",
    "draft_model_dir": None,
    "speculative_num_steps": 8,
    "speculative_num_draft_tokens": None,
    "tensor_parallel_size": 1,
    "moe_expert_parallel_size": 1,
    "trust_remote_code": False,
    "tokenizer_path": FOLDER,
}


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The class, imported as beside the harness's run.py."""
    monkeypatch.syspath_prepend(PROJECT / "examples")
    return importlib.import_module("specdec_engine").Model


def ask(
    engine: Any, length: int, end: int | None = None, **options: Any
) -> tuple[list[list[int]], list[float], list[int], int]:
    """Chunks and times, the plain greedy answer, and the end token of the model."""
    model, tokenizer = load_pretrained(FOLDER, device="cpu")
    said = "Webb Gardens was given in 1941. When was Webb Gardens given?"
    ids = tokenizer.apply_chat_template([{"role": "user", "content": said}], add_generation_prompt=True)["input_ids"]
    eos = tokenizer.eos_token_id
    options = {"device": "cpu", **GIVEN, **options}
    output = asyncio.run(
        engine(FOLDER, **options).run(ids, length, eos if end is None else end, request_id=0, turn_id=0)
    )
    (chunks,) = output["output_ids"]
    expected, _ = Speculator(model, "vanilla")(ids, max_new_tokens=length, eos_token_id=eos if end is None else end)
    return chunks, output["token_times"], expected, eos


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"drafter": "lookahead"},
        {"drafter": "suffix_warm"},  # a variant, whose size stands in another file
        {"drafter": "ngrammys_context", "shape": "chain"},
        {"drafter": "vanilla"},
        {"speculative_algorithm": "NONE"},
    ],
)
@pytest.mark.parametrize(("length", "end"), [(1, None), (200, None), (20, -1)])
def test_an_answer_comes_in_chunks_with_their_times(
    engine: Any, options: dict[str, Any], length: int, end: int | None
) -> None:
    chunks, times, expected, eos = ask(engine, length, end, **options)
    joined = [token for chunk in chunks for token in chunk]
    assert joined == (expected[:-1] if expected[-1] == eos and end is None else expected)
    assert all(chunks) and len(chunks[0]) == 1
    assert len(times) == len(chunks) + 1 and times == sorted(times)
    if length > 1:
        plain = "vanilla" in options.values() or "NONE" in options.values()
        assert (max(map(len, chunks)) == 1) == plain


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_concurrent_requests": 4}, "--concurrency 4: one request"),
        ({"draftr": "pld"}, "engine_args.draftr: did you mean drafter"),
        ({"drafter": "blnd"}, "engine_args.drafter=blnd: did you mean blend"),
    ],
)
def test_what_does_not_fit_is_one_line(engine: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        engine(FOLDER, **GIVEN | options)
