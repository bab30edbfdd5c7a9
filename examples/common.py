"""What the examples share: their options, a model with and without drafts, and the comparison of both."""

from __future__ import annotations

from typing import Annotated, Any

import torch
import typer

from ngram_trie import Answer, Speculator
from ngram_trie.cli.app import name_in
from ngram_trie.methods import choices, settings_of
from ngram_trie.store.files import PROJECT
from ngram_trie.targets.load import load_model, load_tokenizer

TINY_MODEL = PROJECT / "data" / "tiny"

Model = Annotated[str, typer.Option(help="a hub id or a folder", show_default="a tiny one")]
Drafter = Annotated[str, typer.Option(help="a name of configs/method", callback=name_in("method"))]
NumDraft = Annotated[
    int | None, typer.Option(min=1, help="most drafted tokens per step", show_default="8 on a CPU, 32 on a GPU")
]
MaxNewTokens = Annotated[int, typer.Option(min=1, help="longest answer")]


class Comparison:
    """A model that answers twice, with drafts and without, on the GPU if there is one.

    Args:
        name: a hub id or a folder.
        drafter: a name of configs/method.
        num_draft: most drafted tokens per step; by default few on a CPU, where each costs time.
    """

    def __init__(self, name: str, drafter: str, num_draft: int | None) -> None:
        on_gpu = torch.cuda.is_available()
        self.model = load_model(name, "bfloat16" if on_gpu else "float32", "cuda" if on_gpu else "cpu")
        self.tokenizer = load_tokenizer(name)
        if num_draft is None and "num_draft" in settings_of(choices()["method"][drafter]):  # not all have it
            num_draft = 32 if on_gpu else 8
        self.with_drafts = Speculator(self.model, drafter, self.tokenizer, num_draft=num_draft)
        self.without = Speculator(self.model, "vanilla", self.tokenizer)
        for speculator in (self.with_drafts, self.without):  # compiling and allocating are not part of the comparison
            speculator([{"role": "user", "content": "Say something."}], max_new_tokens=8)

    def __call__(self, chat: list[dict[str, str]], max_new_tokens: int, streamer: Any = None) -> str:
        """The greedy answer; prints it unless a streamer does, and what the drafts were worth."""
        _, answer = self.with_drafts(chat, max_new_tokens=max_new_tokens, do_sample=False, streamer=streamer)
        _, plain = self.without(chat, max_new_tokens=max_new_tokens, do_sample=False)
        if streamer is None:
            print(answer.text)
        print(self.verdict(answer, plain))
        return answer.text

    def verdict(self, answer: Answer, plain: Answer) -> str:
        """One line: accept length, speed, and whether the tokens are those of plain greedy decoding."""
        if answer.output_ids == plain.output_ids:
            same = "the same tokens"
        elif self.model.dtype == torch.float32:
            same = "OTHER TOKENS"
        else:
            same = "other tokens, possible by rounding in half precision: see docs/library.md"
        return (
            f"[{len(answer.output_ids)} tokens; accept length {answer.accept_length:.2f}; "
            f"{plain.seconds.total / answer.seconds.total:.2f}x plain greedy decoding, {same}]"
        )
