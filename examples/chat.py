"""A chat whose answers are printed as they come: python examples/chat.py [--model MODEL] [MESSAGE ...]

Each message is a turn, answered with drafts from all that was said before; without messages it asks two of its own.
"""

from __future__ import annotations

from common import arguments, load, report, run, speculators
from transformers import TextStreamer

MESSAGES = ["What should children know about repairing a bicycle?", "Write the same for newcomers in Winstead."]


def main() -> None:
    parser = arguments(__doc__, "general_model")
    parser.add_argument("messages", nargs="*", metavar="MESSAGE", default=MESSAGES)
    args = parser.parse_args()
    model, tokenizer = load(args)
    with_drafts, without = speculators(args, model, tokenizer)

    streamer = TextStreamer(tokenizer, skip_prompt=True, skip_special_tokens=True)
    chat: list[dict[str, str]] = []
    for message in args.messages:
        print(f"> {message}")
        chat.append({"role": "user", "content": message})
        _, answer = with_drafts(chat, max_new_tokens=args.max_new_tokens, do_sample=False, streamer=streamer)
        _, plain = without(chat, max_new_tokens=args.max_new_tokens, do_sample=False)
        report(answer, plain, model)
        chat.append({"role": "assistant", "content": answer.text})


if __name__ == "__main__":
    run(main)
