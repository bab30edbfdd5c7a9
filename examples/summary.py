"""An article summarised, with drafts and without: python examples/summary.py [--model MODEL] [--article FILE]"""

from __future__ import annotations

from pathlib import Path

from common import arguments, load, report, run, speculators

ARTICLE = """\
Brenford Library opened its reading room in 1911. In May the school of Brenby sends four classes for a visit. A \
storm in September broke 134 windows, but nobody was hurt. From the hill above one can see as far as Brenby. \
Brenford Library lets nobody enter on Friday. A small shop nearby sells paper and postcards. Brenford Library \
became possible through a gift from Clara Ross. Brenford Library holds 63,000 books in fifteen languages. Brenford \
Library lets scholars read a book of coins that was lost for long."""
TASK = "Give the main points of the following article, among them the number of books, the donor and its treasure."


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--article", type=Path, help="a text file; a short article about a library if not given")
    parser.add_argument("--task", default=TASK)
    args = parser.parse_args()
    model, tokenizer = load(args)
    article = args.article.read_text(encoding="utf-8").strip() if args.article else ARTICLE
    chat = [{"role": "user", "content": f"{args.task}\n\n{article}"}]

    with_drafts, without = speculators(args, model, tokenizer)

    _, summary = with_drafts(chat, max_new_tokens=args.max_new_tokens, do_sample=False)
    _, plain = without(chat, max_new_tokens=args.max_new_tokens, do_sample=False)
    print(summary.text)
    report(summary, plain, model)


if __name__ == "__main__":
    run(main)
