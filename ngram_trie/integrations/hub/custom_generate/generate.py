"""What transformers runs for `model.generate(..., custom_generate=FOLDER, trust_remote_code=True)`."""

from __future__ import annotations

from typing import Any


def generate(model: Any, **arguments: Any) -> Any:
    """As `ngram_trie.integrations.folder.generate`, which has all of it, so that copies of this file stay good.

    Raises:
        ImportError: the package ngram_trie is not there.
    """
    try:  # transformers reads imports outside of a try, and would name a package of its own guess
        from ngram_trie.integrations.folder import generate as drafted
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "ngram_trie":
            raise
        raise ImportError(
            f"custom_generate: {error.name} is not installed; pip install . in a clone of ngram-trie"
        ) from None
    return drafted(model, **arguments)
