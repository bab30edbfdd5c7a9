"""What numba compiles, or loads from its folder. It should happen before a clock runs; a step in which it happened is
not measured by its clock.
"""

from __future__ import annotations

import copy
import sys
from typing import Any

from ngram_trie.drafter import Drafter, layers
from ngram_trie.prompt import Prompt
from ngram_trie.store.compiled import watch
from ngram_trie.store.files import cache_folder

_count = 0
_is_told = False


def _seen(is_ours: bool) -> None:
    global _count, _is_told
    _count += 1
    if is_ours and not _is_told:
        _is_told = True
        print(f"compiling for this processor, once (kept in {cache_folder()})", file=sys.stderr)


watch(_seen)

_warm: set[tuple[object, ...]] = set()


def num_compiled() -> int:
    """A number that grows whenever something is compiled, loaded, or captured for a GPU."""
    return _count


def kinds(drafter: Drafter) -> list[type]:
    """What kind of a drafter it is, and those within it."""
    return [type(each) for each in layers(drafter)]


def warm_up(drafter: Drafter, prompt: Prompt, target: Any) -> None:
    """Let a copy of a drafter that was not bound yet read the prompt, draft, observe and begin anew, so that all it
    needs is compiled; once for each kind in a process. Not for one that needs a model's forwards. `target` is None
    where an engine verifies.
    """
    kind = (drafter.traits.state, *kinds(drafter))
    if kind in _warm or not drafter.traits.needs_tokens_alone:
        return
    _warm.add(kind)
    drafter, ids = copy.deepcopy(drafter), prompt.ids.tolist()
    if target is not None:
        drafter.bind(target)
    for _ in range(2):
        drafter.start(prompt)
        for new_ids in (ids[-1:], ids[:2], ids[::-1] * (1 + 1024 // len(ids)), ids[:1]):  # the long one makes room
            drafter.observe(new_ids)
            _ = drafter.propose(8).pruned(4, 2).ancestor_mask
