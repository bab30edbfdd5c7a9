"""Algorithm 1 and section 3.2 in plain Python, for tests and benchmarks of `trie.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ngram_trie.tree import DraftTree


@dataclass
class Node:
    """A node of the trie: how often it was passed, and its children by token, in order of insertion."""

    count: int = 0
    children: dict[int, Node] = field(default_factory=dict)


def build_trie(text: Sequence[int], n: int, prefix_len: int) -> Node:
    """Algorithm 1: every window of n tokens, cut at the end of the text, from each of its first L_p tokens on."""
    root = Node()
    for start in range(len(text)):
        window = text[start : start + n]
        for cut in range(prefix_len):
            node = root
            for token in window[cut:]:
                node = node.children.setdefault(token, Node())
                node.count += 1
    return root


def match(root: Node, text: Sequence[int], prefix_len: int) -> Node | None:
    """Section 3.2: the node of the longest suffix, of at most L_p tokens, that has a continuation."""
    for length in range(min(prefix_len, len(text)), 0, -1):
        node: Node | None = root
        for token in text[len(text) - length :]:
            node = node.children.get(token) if node else None
        if node and node.children:
            return node
    return None


def draft(root: Node, text: Sequence[int], prefix_len: int, num_draft: int, ties: str = "deep") -> DraftTree:
    """Section 3.2: the `num_draft` most frequent nodes below the match; ties as in `NgramTrie.draft`."""
    top = match(root, text, prefix_len)
    nodes = [] if top is None else paths_below(top, ties)
    kept = sorted(range(len(nodes)), key=lambda at: -nodes[at][1])[:num_draft]
    return DraftTree.from_paths(text[-1], [nodes[at][0] for at in sorted(kept)])


def paths_below(top: Node, ties: str = "deep") -> list[tuple[tuple[int, ...], int]]:
    """The path and count of every node below `top`: depth first, or breadth first where `ties` is "shallow"."""
    found: list[tuple[tuple[int, ...], int]] = []
    waiting: list[tuple[tuple[int, ...], Node]] = [((), top)]
    while waiting:
        path, node = waiting.pop() if ties == "deep" else waiting.pop(0)
        if path:
            found.append((path, node.count))
        children = [((*path, token), child) for token, child in node.children.items()]
        waiting += children[::-1] if ties == "deep" else children
    return found
