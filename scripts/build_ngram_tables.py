"""The command line that builds a model's n-gram tables."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from ngram_trie.bench.models import identity
from ngram_trie.cli.app import name_in, run
from ngram_trie.data.prompts import model_tokenizer
from ngram_trie.methods import choices, settings_of
from ngram_trie.store.files import PROJECT
from ngram_trie.targets.load import choose_device, load_model
from ngram_trie.targets.model_ngrams import build_tables, leading_bos

FOLDER = PROJECT / "results" / "local" / "ngram_tables"


def main(
    model: Annotated[str, Argument(callback=name_in("model"), metavar="MODEL")],
    output: Annotated[Path | None, Option(help="Default: results/local/ngram_tables/NAME.")] = None,
    k: Annotated[int, Option(min=1, help="Successors of each token.")] = 25,
    w: Annotated[int, Option(min=1, help="Tokens of each row.")] = 15,
    rows: Annotated[int, Option(min=1, help="Rows of a batch.")] = 1024,
    bos: Annotated[bool, Option(help="Put the BOS before each token, where the chat template writes one.")] = True,
    device: Annotated[str | None, Option(help="cpu or cuda; default: the model's own setting.")] = None,
) -> None:
    """Build the tables of a model's own n-grams that N-Grammys drafts from; the same command resumes a build.

    MODEL is a name in configs/model. It reads 1 + k (w - 1) tokens for each token of its vocabulary: a minute or two
    for the tiny models. --w 1 builds the bigram alone, which extend=bigram applies repeatedly.

      python -m scripts.build_ngram_tables tiny
      python -m scripts.build_ngram_tables smollm2_135m --k 10 --w 1
      python -m scripts.build_ngram_tables vicuna_7b --output FOLDER --device cuda
    """
    about = settings_of(choices()["model"][model])
    folder = output or FOLDER / about.name
    settings = {name: about[name] for name in ("path", "dtype", "device", "revision", "attention")}
    settings["device"] = str(choose_device(device or about.device))
    first = leading_bos(model_tokenizer(about)) if bos else None
    loaded = load_model(**settings)
    started, size = time.perf_counter(), loaded.config.get_text_config().vocab_size
    print(f"{size * (1 + k * (w - 1)):,} tokens to read; with --w 1, the bigram alone, {size:,}", flush=True)
    kept = folder / "unfinished"
    tables = build_tables(loaded, identity(about), k, w, first, rows, kept)
    tables.write(folder)
    shutil.rmtree(kept)
    stored = sum(file.stat().st_size for file in folder.iterdir())
    print(f"{len(tables.bigram)} tokens, {k} rows of {w}, {'with' if tables.bos else 'without'} BOS")
    print(f"{stored / 1e6:.1f} MB in {folder}, {time.perf_counter() - started:.0f} s on {loaded.device}")


if __name__ == "__main__":
    run(main)
