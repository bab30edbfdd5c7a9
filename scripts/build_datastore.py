"""Build the datastore that REST and SAM-Decoding's static automaton draft from.

  python -m scripts.build_datastore                                   the embedded model's (make build-datastore)
  python -m scripts.build_datastore SOURCE --tokenizer NAME           from a file
  python -m scripts.build_datastore --dataset NAME --tokenizer NAME   from a data set of the hub, or its local copy

Without SOURCE: reference answers of the embedded model's training text, 300,000 tokens; no held-out subject is in it.
SOURCE is one of
- recorded answers (a live run's traces.jsonl, or others' recordings): each answer a document;
- JSON lines: each line a document, or each turn of its conversation;
- any other text file: paragraphs between empty lines are the documents.
--dataset takes a hub id, or a file or folder of the same layout, and streams it:
  ShareGPT        --dataset Aeala/ShareGPT_Vicuna_unfiltered     conversations: [{from, value}, ...]
  UltraChat       --dataset stingning/ultrachat                  data: [text, ...]
  UltraChat 200k  --dataset HuggingFaceH4/ultrachat_200k --split train_sft      messages: [{role, content}, ...]

What a datastore is tested on must not be in it: leave those recorded answers out of SOURCE.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from tqdm import tqdm

from ngram_trie.baselines.datastore import build_datastore
from ngram_trie.cli.shell import Parser, positive
from ngram_trie.data import world
from ngram_trie.data.prompts import model_tokenizer
from ngram_trie.engines.traces import parse_trace
from ngram_trie.files import CONFIGS, PROJECT
from ngram_trie.targets.load import load_tokenizer as load_pretrained

FOLDER = PROJECT / "results" / "local" / "datastore"
MODEL = PROJECT / "data" / "embedded" / "model"
EMBEDDED_TOKENS = 300_000
#: Looked for in this order where --field names none.
FIELDS = ("text", "conversations", "messages", "data")
BATCH = 256
Tokenizer = Callable[[list[str]], list[list[int]]]


def load_tokenizer(name: str) -> Tokenizer:
    """Texts to token ids, no special tokens added.

    Raises:
        FileNotFoundError: no such tokenizer.
    """
    named = CONFIGS / "model" / f"{name}.yaml"
    tokenizer = model_tokenizer(OmegaConf.load(named)) if named.exists() else load_pretrained(name)
    # Nothing is fed to the model, so a text may be longer than it reads.
    return lambda texts: tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]


def embedded_answers(seed: int) -> Iterator[str]:
    """Endless reference answers of the embedded model's training text, with the token that ends them."""
    rng = random.Random(seed)
    while True:
        for turn in world.training_sample(rng, 1.0, 3).turns:
            yield turn.answer + "</s>"


def texts_of(row: Any, field: str | None) -> list[str]:
    """The texts of one row: of `field`, or of the first of FIELDS that there is. A text, or a conversation as a list of
    texts or of turns with their text in `value` or `content`; every turn is a text of its own.

    Raises:
        ValueError: what is wrong.
    """
    names = FIELDS if field is None else (field,)
    name = next((name for name in names if isinstance(row, dict) and row.get(name) is not None), None)
    if name is None:
        raise ValueError(f"no field {' or '.join(map(repr, names))} (--field)")
    turns = row[name] if isinstance(row[name], list) else [row[name]]
    texts: list[Any] = [turn.get("value", turn.get("content")) if isinstance(turn, dict) else turn for turn in turns]
    texts = [text for text in texts if text is not None]  # turns that were left empty
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(f"the field {name!r} holds neither a text nor a list of texts or of turns (--field)")
    return texts


def encode(texts: Iterable[str], tokenizer: Tokenizer | None) -> Iterator[list[int]]:
    """The token ids of each text, a batch at a time.

    Raises:
        ValueError: there are texts and no tokenizer.
    """
    remaining = iter(texts)
    while batch := list(islice(remaining, BATCH)):
        if tokenizer is None:
            raise ValueError("a text needs --tokenizer")
        yield from tokenizer(batch)


def file_documents(source: Path, tokenizer: Tokenizer | None, field: str | None) -> Iterator[list[int]]:
    """The token ids of each document of a file.

    Raises:
        ValueError: a line is not what it should be, or a tokenizer is needed; the message names file and line.
    """
    with source.open(encoding="utf-8") as lines:
        if source.suffix != ".jsonl":
            yield from encode(paragraphs(lines), tokenizer)
            return
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                if isinstance(row, dict) and "output_token_ids" in row:
                    trace = parse_trace(line)
                    if trace:
                        yield trace.output_ids
                else:
                    yield from encode(texts_of(row, field), tokenizer)
            except ValueError as error:
                raise ValueError(f"{source}:{number}: {error}") from None


def paragraphs(lines: Iterable[str]) -> Iterator[str]:
    """What stands between empty lines."""
    paragraph = ""
    for line in lines:
        if line.strip():
            paragraph += line
        elif paragraph:
            yield paragraph.rstrip("\n")
            paragraph = ""
    if paragraph:
        yield paragraph.rstrip("\n")


def dataset_texts(name: str, split: str, field: str | None) -> Iterator[str]:
    """The texts of a data set of the hub, or of a file or folder, streamed through the `datasets` library.

    Raises:
        ValueError: it cannot be read, or a row is not what it should be; the message names it.
    """
    try:
        import datasets
    except ImportError:
        raise ValueError(f"--dataset={name}: needs the datasets library; `pip install datasets`") from None
    path = Path(name)
    kind = {".json": "json", ".jsonl": "json", ".parquet": "parquet", ".csv": "csv"}.get(path.suffix)
    try:
        if path.is_file() and kind is None:
            raise ValueError("a file must end in .json, .jsonl, .parquet or .csv")
        arguments: dict[str, Any] = {"path": kind, "data_files": name} if path.is_file() else {"path": name}
        rows = iter(datasets.load_dataset(**arguments, split=split, streaming=True))
        for number in range(sys.maxsize):
            row = next(rows, None)
            if row is None:
                return
            try:
                yield from texts_of(row, field)
            except ValueError as error:
                raise ValueError(f"row {number}: {error}") from None
    except Exception as error:  # the library's, pyarrow's and the network's, which have no common ancestor
        hint = "" if path.exists() else " (no such file or folder here; is the hub reachable, and the id right?)"
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ValueError(f"--dataset={name}{hint}: {reason}") from None


def limited(documents: Iterable[Sequence[int]], num_tokens: int | None) -> Iterator[Sequence[int]]:
    """The documents until they hold `num_tokens` tokens, the last one cut there."""
    left = sys.maxsize if num_tokens is None else num_tokens
    with tqdm(total=num_tokens, unit="token", unit_scale=True, disable=None) as progress:
        for document in documents:
            yield document[:left]
            progress.update(min(left, len(document)))
            left -= len(document)
            if left <= 0:
                return


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """What the command line asks for."""
    parser = Parser(__doc__)
    parser.add_argument("source", type=Path, nargs="?", metavar="SOURCE", help="traces.jsonl, other .jsonl, or a text")
    parser.add_argument("--output", type=Path, default=FOLDER, metavar="FOLDER", help="where it is written")
    parser.add_argument(
        "--dataset", metavar="NAME", help="instead of SOURCE: hub id, or a file or folder of its layout"
    )
    parser.add_argument("--split", default="train", metavar="NAME", help="of the data set")
    parser.add_argument("--tokenizer", metavar="NAME", help="the target model's: of configs/model, a folder, a hub id")
    parser.add_argument("--field", metavar="FIELD", help=f"which holds the text; else the first of {', '.join(FIELDS)}")
    parser.add_argument(
        "--tokens", type=positive, metavar="N", help="stop after so many; default: all, embedded 300,000"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the embedded model's text")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    try:
        if options.source and options.dataset:
            raise ValueError("give SOURCE or --dataset, not both")
        if options.source and not options.source.is_file():
            raise ValueError(f"{options.source}: no such file")
        if options.dataset and not options.tokenizer:
            raise ValueError(f"--dataset={options.dataset}: needs --tokenizer")
        embedded = not (options.source or options.dataset)
        name = str(MODEL) if embedded else options.tokenizer
        tokenizer = load_tokenizer(name) if name else None
        documents: Iterator[list[int]]
        if options.source:
            documents = file_documents(options.source, tokenizer, options.field)
        elif options.dataset:
            documents = encode(dataset_texts(options.dataset, options.split, options.field), tokenizer)
        else:
            documents = encode(embedded_answers(options.seed), tokenizer)
        tokens = options.tokens or (EMBEDDED_TOKENS if embedded else None)
        size = build_datastore(limited(documents, tokens), options.output)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{size} tokens in {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
