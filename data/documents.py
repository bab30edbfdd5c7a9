"""Documents for a datastore: texts of a file, of a data set or of the tiny model's world, as token ids.

The layouts of data sets that are read:
  ShareGPT        Aeala/ShareGPT_Vicuna_unfiltered        conversations: [{from, value}, ...]; it holds two editions,
                  of which REST and Spec-Bench take the file of SHAREGPT
  UltraChat       stingning/ultrachat                     data: [text, ...]
  UltraChat 200k  HuggingFaceH4/ultrachat_200k            messages: [{role, content}, ...]
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ngram_trie.data import world
from ngram_trie.data.prompts import named_tokenizer
from ngram_trie.data.sources import KINDS, kind, read_file, where
from ngram_trie.store.files import first_line
from ngram_trie.store.lines import is_token_ids, read_lines

#: The file that REST's datastore for chat is made of (He et al. 2023, section 4.1), and Spec-Bench's.
SHAREGPT = "ShareGPT_V4.3_unfiltered_cleaned_split.json"
#: Fields that hold the text, in the order in which they are looked for.
FIELDS = ("text", "conversations", "messages", "data")
#: How the names of files in a folder end; those that hold no rows hold paragraphs.
ENDINGS = (*KINDS, ".md", ".rst", ".txt")
BATCH = 256
Tokenizer = Callable[[list[str]], list[list[int]]]


def load_tokenizer(name: str, copy: str | None = None) -> Tokenizer:
    """Texts to token ids, no special tokens added.

    Args:
        copy: as in `named_tokenizer`.

    Raises:
        FileNotFoundError: no such tokenizer.
    """
    tokenizer = named_tokenizer(name, copy)
    # Nothing is fed to the model, so a text may be longer than it reads.
    return lambda texts: tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]


def tiny_answers(seed: int) -> Iterator[str]:
    """Endless reference answers of the tiny model's training text, with the token that ends them."""
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
    """The token ids of each document of a file: each recorded answer of a traces.jsonl; each other row, or each turn of
    its conversation; each paragraph of a file that holds no rows.

    Raises:
        ValueError: a line is not what it should be, or a tokenizer is needed; the message names file and line.
    """
    if kind(source) not in KINDS:
        yield from encode(paragraphs(line for _, line in read_lines(source)), tokenizer)
        return
    for row in read_file(source):
        try:
            if "output_token_ids" not in row:
                yield from encode(texts_of(row, field), tokenizer)
            elif row.get("token_count_matches") is not False:
                if not is_token_ids(row["output_token_ids"]):
                    raise ValueError("output_token_ids must be a list of token ids")
                yield row["output_token_ids"]
        except ValueError as error:
            raise ValueError(f"{where(0, row)}: {error}") from None


def folder_documents(source: Path, tokenizer: Tokenizer | None, field: str | None) -> Iterator[list[int]]:
    """The documents of all files in a folder and below it whose names end in one of ENDINGS, in order of names.

    Raises:
        ValueError: as `file_documents`, or there is no such file.
    """
    files = sorted(path for path in source.rglob("*") if kind(path) in ENDINGS)
    if not files:
        raise ValueError(f"{source}: holds no file that ends in {', '.join(ENDINGS)}")
    for file in files:
        yield from file_documents(file, tokenizer, field)


def paragraphs(lines: Iterable[str]) -> Iterator[str]:
    """What stands between empty lines."""
    for is_text, part in groupby(lines, key=lambda line: bool(line.strip())):
        if is_text:
            yield "\n".join(part)


def dataset_texts(
    name: str, split: str, field: str | None, file: str | None = None, revision: str | None = None
) -> Iterator[str]:
    """The texts of a data set of the hub, streamed by the `datasets` library.

    Args:
        file: of the hub's repository the one to read; None for all of the split.
        revision: of the hub's repository.

    Raises:
        ValueError: it cannot be read, or a row is not what it should be; the message names it.
    """
    try:
        import datasets

        rows = datasets.load_dataset(name, data_files=file, revision=revision, split=split, streaming=True)
        for number, row in enumerate(rows, 1):
            try:
                yield from texts_of(row, field)
            except ValueError as error:
                raise ValueError(f"{where(number, row)}: {error}") from None
    except Exception as error:  # the library's, pyarrow's and the network's, which have no common ancestor
        said = f"{first_line(error)}; is the hub reachable, and the id right? A file or folder is given as SOURCE"
        raise ValueError(f"--dataset={name}: {said}") from None


def documents(
    source: Path | None,
    dataset: str | None,
    split: str,
    tokenizer: Tokenizer | None,
    field: str | None,
    file: str | None = None,
    revision: str | None = None,
) -> Iterator[list[int]]:
    """The token ids of each document of a file or folder, or of a data set.

    Raises:
        ValueError: as `file_documents`, `folder_documents` and `dataset_texts`.
    """
    if source:
        return (folder_documents if source.is_dir() else file_documents)(source, tokenizer, field)
    return encode(dataset_texts(str(dataset), split, field, file, revision), tokenizer)


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
