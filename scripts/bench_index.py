"""How an index's time, memory and disk grow with the corpus (make bench-index)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import faiss
from typer import Argument, Option

from ngram_trie.cli.app import run
from ngram_trie.data.retrieval.index import IndexSettings
from ngram_trie.data.retrieval.scaling import Scale, measure


def main(
    output: Annotated[Path, Argument(help="folder for the table and its manifest")],
    scratch: Annotated[Path, Option(metavar="FOLDER", help="for vectors and index; emptied")],
    rows: Annotated[list[int], Option(min=1, help="sizes to measure")] = [100_000, 1_000_000],  # noqa: B006
    threads: Annotated[int, Option(min=1, help="of the processor")] = 2,
    dim: Annotated[int, Option(min=1, help="of the vectors")] = 1024,
    shard_size: Annotated[int, Option(min=1, help="vectors a file")] = 100_000,
    nlist: Annotated[int, Option(min=1, help="lists of the index")] = IndexSettings.nlist,
    m: Annotated[int, Option(min=1, help="bytes a vector")] = IndexSettings.m,
    train_size: Annotated[int, Option(min=1, help="vectors to train on")] = IndexSettings.train_size,
) -> None:
    """Measure how an index's time, memory and disk grow with the corpus.

    Random unit vectors stand for a corpus, so recall is not measured (scripts.retrieve does). Each phase runs in a
    process of its own; its peak resident memory includes pages of mapped files. Processor seconds, summed over threads,
    and wall-clock seconds are given. Writes scaling.csv and scaling_manifest.json to OUTPUT: the measured sizes and, by
    extrapolation, the 21,015,324 passages of psgs_w100. Sizes that OUTPUT has from the same command are not measured
    again. The index is that of configs/retrieval.yaml unless --nlist, --m or --train-size change it.

      python -m scripts.bench_index OUTPUT --scratch FOLDER --rows 100000 --rows 1000000 --threads 2
    """
    # not above: the measured processes import this module, and their memory is measured
    import pandas as pd

    from ngram_trie.engines.provenance import make_manifest
    from ngram_trie.files import content_hash
    from ngram_trie.records import RunManifest

    config = {"rows": rows, "threads": threads, "dim": dim, "shard_size": shard_size, "nlist": nlist, "m": m}
    config["train_size"] = train_size
    settings = IndexSettings(nlist, m, train_size=train_size)
    for num_rows in rows:
        settings.check(num_rows, dim)
    environment = {"faiss": faiss.__version__}
    manifest = make_manifest(config, "random unit vectors", content_hash(config), "cpu", environment)
    table, about, known = output / "scaling.csv", output / "scaling_manifest.json", []
    if about.exists() and RunManifest.read(about).run == manifest.run:
        frame = pd.read_csv(table)
        known = frame[frame.kind == "measured"].to_dict("records")
    else:
        output.mkdir(parents=True, exist_ok=True)
        manifest.write(about)
    print(measure(table, rows, known, Scale(scratch, dim, shard_size, threads, settings)).to_string(index=False))


if __name__ == "__main__":
    run(main)
