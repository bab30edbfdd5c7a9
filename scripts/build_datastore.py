"""The command line that builds a datastore."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from ngram_trie.baselines.datastore import build_datastore
from ngram_trie.cli.app import run
from ngram_trie.data import bundled, documents
from ngram_trie.store.files import PROJECT

FOLDER = PROJECT / "results" / "local" / "datastore"
TINY_TOKENS = 300_000


def main(
    source: Annotated[Path | None, typer.Argument(help="A file or folder of texts.")] = None,
    output: Annotated[Path, Option(help="Folder of the datastore.")] = FOLDER,
    dataset: Annotated[str | None, Option(help="Hub id.")] = None,
    split: Annotated[str | None, Option(help="Of the data set; default: train.")] = None,
    file: Annotated[str | None, Option(help="Of the hub's repository the one to read; default: all.")] = None,
    revision: Annotated[str | None, Option(help="Of the hub's repository.")] = None,
    tokenizer: Annotated[str | None, Option(help="The target's: a name in configs/model, a folder, a hub id.")] = None,
    copy: Annotated[str | None, Option(help="A folder with a copy of that model's files.")] = None,
    field: Annotated[str | None, Option(help=f"With the text; default: {', '.join(documents.FIELDS)}.")] = None,
    tokens: Annotated[int | None, Option(min=1, help="Stop after this many; default: all, tiny 300,000.")] = None,
    seed: Annotated[int, Option(help="Of the tiny model's text.")] = 0,
) -> None:
    """Build the datastore that REST and SAM-Decoding's static automaton draft from.

    SOURCE is a file, or a folder of files, of recorded answers, of other rows (.jsonl, .json, .parquet), or of
    paragraphs. Without it and --dataset the texts are reference answers of the tiny model's training text. Leave out
    the texts that the methods will be tested on.

      python -m scripts.build_datastore
      python -m scripts.build_datastore SOURCE --tokenizer NAME
      python -m scripts.build_datastore --dataset Aeala/ShareGPT_Vicuna_unfiltered --file FILE --tokenizer NAME
      python -m scripts.build_datastore --dataset HuggingFaceH4/ultrachat_200k --split train_sft --tokenizer NAME
    """
    if source and not source.exists():
        raise ValueError(f"{source}: no such file or folder")
    if source and dataset:
        raise ValueError("give SOURCE or --dataset, not both")
    of_hub = {"--split": split, "--file": file, "--revision": revision}
    of_any = {"--tokenizer": tokenizer, "--copy": copy, "--field": field}
    for name, value in ({} if dataset else of_hub if source else of_any | of_hub).items():
        if value is not None:
            raise ValueError(f"{name}: needs --dataset" + (" or SOURCE" if name in of_any else ""))
    if source or dataset:
        encoder = documents.load_tokenizer(tokenizer, copy) if tokenizer else None
        found = documents.documents(source, dataset, split or "train", encoder, field, file, revision)
    else:
        tokens = tokens or TINY_TOKENS
        found = documents.encode(documents.tiny_answers(seed), documents.load_tokenizer(str(bundled.MODEL)))
    size = build_datastore(documents.limited(found, tokens), output)
    print(f"{size} tokens in {output}")


if __name__ == "__main__":
    run(main, "nothing was written")
