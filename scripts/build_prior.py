"""The command line that builds a prior for the blend."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

from omegaconf import OmegaConf
from typer import Argument, Option

from ngram_trie.bench.models import identity
from ngram_trie.blend.background import read_answers
from ngram_trie.blend.count_tables import CountTables
from ngram_trie.cli.app import name_in, one_of, run
from ngram_trie.data import documents
from ngram_trie.prompt import question_number
from ngram_trie.store.files import CONFIGS, PROJECT

FOLDER = PROJECT / "results" / "local" / "prior"


def main(
    source: Annotated[Path | None, Argument(help="A file or folder of texts, or a file of recorded answers.")] = None,
    model: Annotated[str | None, Option(callback=name_in("model"), help="Whose tokens: in configs/model.")] = None,
    output: Annotated[Path | None, Option(help="Default: results/local/prior/NAME.")] = None,
    answers: Annotated[bool, Option(help="SOURCE holds recorded answers.")] = False,
    parity: Annotated[str | None, Option(callback=one_of(["odd", "even"]), help="Only answers with these ids.")] = None,
    dataset: Annotated[str | None, Option(help="Hub id, or a file or folder of the same layout.")] = None,
    split: Annotated[str, Option(help="Of the data set.")] = "train",
    field: Annotated[str | None, Option(help=f"With the text; default: {', '.join(documents.FIELDS)}.")] = None,
    tokens: Annotated[int | None, Option(min=1, help="Stop after this many; default: all.")] = None,
    max_context: Annotated[int, Option(min=1, help="Most tokens of a context.")] = 3,
    k: Annotated[int, Option(min=1, help="Successors of each context.")] = 8,
    escape: Annotated[float, Option(help="b: the larger, the more weight shorter contexts have.")] = 3.5,
    min_count: Annotated[int, Option(min=1, help="Leave out contexts that occur less often.")] = 2,
    min_change: Annotated[float, Option(help="Leave out contexts that move less probability than this.")] = 0.1,
) -> None:
    """Build the tables that method=blend_prior, and any blend with +method.prior=FOLDER, backs off to.

    SOURCE is a file of JSON lines or of paragraphs between empty lines, or a folder of such files; with --answers, a
    recording (traces.jsonl). Tables of answers refuse to draft the questions that they hold. With --parity odd they
    hold the answers to questions with odd ids, and a replay with engine.parity=even drafts the others.

      python -m scripts.build_prior FILE --model smollm2_135m
      python -m scripts.build_prior traces.jsonl --answers --parity odd --model smollm2_135m
      python -m scripts.build_prior --dataset HuggingFaceH4/ultrachat_200k --split train_sft --model vicuna_7b
    """
    if (source is None) == (dataset is None):
        raise ValueError("give SOURCE or --dataset, one of them")
    if answers and not source:
        raise ValueError("--answers: give SOURCE, a file of recorded answers")
    if source and not source.exists():
        raise ValueError(f"{source}: no such file or folder")
    if parity and not answers:
        raise ValueError(f"--parity={parity}: only with --answers, texts have no question ids")
    if not answers and not model:
        raise ValueError("a text needs --model, a name in configs/model")
    about: Any = OmegaConf.load(CONFIGS / "model" / f"{model}.yaml") if model else None
    made: dict[str, Any] = {"model": identity(about) if about else "", "parity": parity}
    made["source"] = dataset or Path(str(source)).name
    found: Iterable[Sequence[int]]
    if answers:
        rows = [row for row in read_answers(Path(str(source))) if not parity or parity_of(row["question_id"]) == parity]
        made["questions"] = sorted({(row["dataset"], row["question_id"]) for row in rows if row["question_id"]})
        found = (row["output_token_ids"] for row in rows)
    else:
        found = documents.documents(source, dataset, split, documents.load_tokenizer(model) if model else None, field)
    tables = CountTables.of_texts(
        documents.limited(found, tokens), k=k, escape=escape, max_context=max_context, min_count=min_count,
        min_change=min_change, **made,
    )  # fmt: skip
    folder = output or FOLDER / (about.name if about else "answers")
    size = tables.write(folder)
    contexts = ", ".join(f"{number:,} of {length}" for length, number in enumerate(tables.about["contexts"], 1))
    print(f"{tables.about['tokens']:,} tokens; contexts by their length: {contexts}; {k} successors")
    print(f"{size / 1e6:.1f} MB in {folder}")


def parity_of(question_id: str) -> str:
    return "odd" if question_number(question_id) % 2 else "even"


if __name__ == "__main__":
    run(main, "nothing was written")
