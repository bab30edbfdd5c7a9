"""Step through one recorded answer, with the draft tree of each step (make explore TRACES=FILE).

  python -m scripts.explore TRACES --method ngram_trie num_draft=8 --method blend num_draft=8 --question ID

TRACES is the traces.jsonl of a live run, or any other file that engine=replay reads. Up to three drafters that read
tokens only stand side by side. Unless a question is named, the one whose accept length under the first drafter is the
median of its data set is shown. Writes one page that needs nothing else.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir

from ngram_trie import config as configuration
from ngram_trie.config import CONFIGS, PROJECT, ConfigError
from ngram_trie.drafter import Drafter
from ngram_trie.explorer import Decode, explore
from ngram_trie.page.render import explorer_page
from ngram_trie.replay import check_replayable
from ngram_trie.target import load_tokenizer
from ngram_trie.traces import read_traces
from scripts.case_study import EMBEDDED, choose

DEFAULT = [["ngram_trie", "num_draft=8"], ["blend", "num_draft=8"]]
MOST = 3


def drafter(name: str, fields: Sequence[str]) -> Drafter:
    """The drafter of configs/method/NAME with some of its fields changed.

    Raises:
        ConfigError: an unknown name or field, a wrong value, or a drafter that cannot be replayed.
    """
    configuration.check_names([f"method={name}"])
    if wrong := [each for each in fields if "=" not in each]:
        raise ConfigError(f"--method {name} {wrong[0]}: give fields as FIELD=VALUE")
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        config = compose("config", [f"method={name}"])
    for each in fields:
        field, _, value = each.partition("=")
        if field not in config.method or field in ("name", "_target_"):
            known = [str(key) for key in config.method if key not in ("name", "_target_")]
            raise ConfigError(f"{name}.{field}: {configuration.near(field, known)}")
        config.merge_with_dotlist([f"method.{field}={value}"])
    built: Any = configuration.build(config.method, f"method {name}")
    check_replayable({name: built})
    return built


def drafters(methods: Sequence[Sequence[str]]) -> dict[str, Drafter]:
    """The drafters by the words that name them, "blend num_draft=8"."""
    if len(methods) > MOST:
        raise ConfigError(f"{len(methods)} methods: at most {MOST} can stand side by side")
    return {" ".join(words): drafter(words[0], words[1:]) for words in methods}


def decoder(tokenizer: str | None) -> Decode | None:
    """Ids to text by the tokenizer of a folder or hub id; None to show ids."""
    if tokenizer is None:
        return None
    loaded = load_tokenizer(tokenizer)
    return lambda ids: str(loaded.decode(ids, skip_special_tokens=False))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=Path, help="a file of recorded answers")
    parser.add_argument(
        "--method", action="append", nargs="+", metavar=("NAME", "FIELD=VALUE"),
        help="a name of configs/method, and fields of it to change; once for each drafter",
    )  # fmt: skip
    parser.add_argument("--dataset", help="of the question; summarization, if there is any")
    parser.add_argument("--question", metavar="ID")
    parser.add_argument(
        "--tokenizer", help="folder or hub id (default: the embedded model's for its answers; else ids are shown)"
    )
    parser.add_argument("--output", type=Path, default=PROJECT / "results" / "local" / "explorer.html")
    options = parser.parse_args(arguments)
    try:
        chosen = drafters(options.method or DEFAULT)
        trace = choose(read_traces(options.traces), next(iter(chosen.values())), options.dataset, options.question)
        tokenizer = options.tokenizer or (str(EMBEDDED) if trace.model == "embedded" else None)
        page = explorer_page(explore(trace, chosen, decoder(tokenizer)))
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(page, encoding="utf-8")
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    print(f"written: {options.output} ({len(page) / 1e6:.1f} MB)")


if __name__ == "__main__":
    main()
