"""N-gram trie speculative decoding. `from ngram_trie import speculative_generate` is the library (docs/library.md)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ngram_trie.generate import Answer, Speculator, custom_generate, speculative_generate

__all__ = ["Answer", "Speculator", "custom_generate", "speculative_generate"]


def __getattr__(name: str) -> Any:
    """The front door is imported when it is asked for: drafting needs no torch."""
    if name in __all__:
        return getattr(import_module("ngram_trie.generate"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
