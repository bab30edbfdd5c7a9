"""Which drafters an engine that hands over tokens alone can have."""

from __future__ import annotations

from ngram_trie.drafter import Drafter
from ngram_trie.methods import ConfigError


def check_reads_tokens(drafter: Drafter, name: object, engine: str) -> None:
    """
    Raises:
        ConfigError: a drafter that needs more than tokens, which is all that `engine` hands over.
    """
    needs = drafter.traits.reads if drafter.traits.reads != "tokens" else "a model of its own"
    if not drafter.traits.needs_tokens_alone:
        raise ConfigError(f"method {name} reads {needs}, and {engine} hands over tokens alone: give blend")
