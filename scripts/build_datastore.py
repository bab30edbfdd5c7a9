"""Build REST's datastore: python -m scripts.build_datastore SOURCE [FOLDER] [--tokenizer NAME]

SOURCE is one of
- recorded answers (`ngram_trie.traces`: a live run's traces.jsonl, or others' recordings): each answer a document;
- JSON lines with a text each, in the field that --field names: each line a document; needs --tokenizer;
- any other text file: paragraphs between empty lines are the documents; needs --tokenizer.

What a datastore is tested on must not be in it: leave those recorded answers out of SOURCE.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tqdm import tqdm

from baselines.rest import build_datastore
from ngram_trie.config import PROJECT
from ngram_trie.traces import parse_trace

FOLDER = PROJECT / "results" / "local" / "datastore"
Encode = Callable[[str], list[int]]


def load_encode(name: str) -> Encode:
    """Text to token ids, no special tokens added.

    Raises:
        ValueError: no such tokenizer.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise ValueError(f"--tokenizer={name}: {str(error).splitlines()[0]}") from None
    return lambda text: tokenizer(text, add_special_tokens=False)["input_ids"]


def documents(source: Path, encode: Encode | None, field: str) -> Iterator[Sequence[int]]:
    """The token ids of each document of `source`.

    Raises:
        ValueError: a line is not what it should be, or a tokenizer is needed; the message names file and line.
    """
    with source.open(encoding="utf-8") as lines:
        if source.suffix != ".jsonl":
            if encode is None:
                raise ValueError(f"{source}: a text needs --tokenizer")
            for text in tqdm(lines.read().split("\n\n"), unit="document", disable=None):
                yield encode(text)
            return
        for number, line in enumerate(tqdm(lines, unit="document", disable=None), 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                if isinstance(row, dict) and "output_token_ids" in row:
                    trace = parse_trace(line)
                    if trace:
                        yield trace.output_ids
                elif not isinstance(row, dict) or not isinstance(row.get(field), str):
                    raise ValueError(f"neither output_token_ids nor a text in the field {field!r} (--field)")
                elif encode is None:
                    raise ValueError("a text needs --tokenizer")
                else:
                    yield encode(row[field])
            except ValueError as error:
                raise ValueError(f"{source}:{number}: {error}") from None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, metavar="SOURCE", help="traces.jsonl, other .jsonl, or a text file")
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER, metavar="FOLDER", help="default: %(default)s")
    parser.add_argument("--tokenizer", metavar="NAME", help="folder or hub name of the target model's tokenizer")
    parser.add_argument("--field", default="text", metavar="FIELD", help="of JSON lines: which holds the text")
    options = parser.parse_args(arguments)
    try:
        if not options.source.is_file():
            raise ValueError(f"{options.source}: no such file")
        encode = load_encode(options.tokenizer) if options.tokenizer else None
        size = build_datastore(documents(options.source, encode, options.field), options.folder)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{size} tokens in {options.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
