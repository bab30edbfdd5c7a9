"""An answer from retrieved passages, with drafts and without: python examples/rag_answer.py [--model MODEL]"""

from __future__ import annotations

from common import arguments, load, report, run, speculators

PASSAGES = """\
Hobbs Gardens (passage 1): Hobbs Gardens was given in 1912 to the people of Garhaven. Hobbs Gardens invites painters \
to sit among its cherry trees each spring. Hobbs Gardens is cared for by Helen Howe and thirteen gardeners.
Webb Gardens (passage 2): Webb Gardens invites painters to sit among its cedars each autumn. Webb Gardens was given in \
1941 to the people of Keswick. Webb Gardens is cared for by Kate Dale and nine gardeners. Guides wear green coats and \
speak eight languages."""
QUESTION = "Among which trees of Webb Gardens do painters sit, and when was the garden given to the people?"


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--question", default=QUESTION)
    args = parser.parse_args()
    model, tokenizer = load(args)
    message = f"{PASSAGES}\n\nAnswer the question with the help of these passages.\nQuestion: {args.question}"
    chat = [{"role": "user", "content": message}]

    with_drafts, without = speculators(args, model, tokenizer)

    _, answer = with_drafts(chat, max_new_tokens=args.max_new_tokens, do_sample=False)
    _, plain = without(chat, max_new_tokens=args.max_new_tokens, do_sample=False)
    print(answer.text)
    report(answer, plain, model)


if __name__ == "__main__":
    run(main)
