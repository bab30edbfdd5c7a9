"""N-gram trie speculative decoding. `from ngram_trie import speculative_generate` is the library (docs/library.md)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ngram_trie.generate import Answer, Speculator, custom_generate, speculative_generate
    from ngram_trie.targets.load import load_pretrained

__all__ = ["Answer", "Speculator", "__version__", "custom_generate", "load_pretrained", "speculative_generate"]


def __getattr__(name: str) -> Any:
    """The front door is imported when it is asked for: drafting needs no torch."""
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("ngram-trie")
        except PackageNotFoundError:  # a checkout that is not installed
            return "0.1.0+checkout"
    if name in __all__:
        home = "targets.load" if name == "load_pretrained" else "generate"
        try:
            return getattr(import_module(f"ngram_trie.{home}"), name)
        except ModuleNotFoundError as error:
            raise ImportError(f"{name}: {error.name} is missing: pip install 'ngram-trie[hf]'") from error
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
