"""A chat whose answers are printed as they come."""

from __future__ import annotations

from typing import Annotated

import typer
from common import TINY_MODEL, Comparison, Drafter, MaxNewTokens, Model, NumDraft
from transformers import TextStreamer

from ngram_trie.cli.app import run

MESSAGES = ["What should children know about repairing a bicycle?", "Write the same for newcomers in Winstead."]


def main(
    messages: Annotated[list[str] | None, typer.Argument(help="one per turn", show_default="two")] = None,
    model: Model = str(TINY_MODEL / "general_model"),
    drafter: Drafter = "blend_logits",
    num_draft: NumDraft = None,
    max_new_tokens: MaxNewTokens = 160,
) -> None:
    """Answer messages in turn, with drafts from everything said before, and without drafts.

    python examples/chat.py "How does one repair a bicycle?" "And a lamp?"
    """
    answer = Comparison(model, drafter, num_draft)
    streamer = TextStreamer(answer.tokenizer, skip_prompt=True, skip_special_tokens=True)
    chat: list[dict[str, str]] = []
    for message in messages or MESSAGES:
        print(f"> {message}")
        chat.append({"role": "user", "content": message})
        chat.append({"role": "assistant", "content": answer(chat, max_new_tokens, streamer)})


if __name__ == "__main__":
    run(main, "nothing is kept")
