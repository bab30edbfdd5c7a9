"""The blend: every order of the text so far in one distribution, and the tree of its likeliest continuations."""

from ngram_trie.blend.variants import (
    BlendBigramDrafter,
    BlendDrafter,
    BlendLogitsDrafter,
    BlendLogitsWarmDrafter,
    BlendWarmDrafter,
)

__all__ = ["BlendBigramDrafter", "BlendDrafter", "BlendLogitsDrafter", "BlendLogitsWarmDrafter", "BlendWarmDrafter"]
