"""Text that looks like markup, from prompts, answers and names, is shown as text on every page."""

from __future__ import annotations

import html5lib
import numpy as np

from ngram_trie.baselines.prompt_lookup import PromptLookup
from ngram_trie.bench.traces import Trace
from ngram_trie.prompt import Prompt
from ngram_trie.report.explorer import explore
from ngram_trie.report.render import explorer_page

BAD = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


def trace() -> Trace:
    prompt = Prompt(np.array([1, 2, 3, 4, 1, 2]), dataset=BAD, question_id=BAD)
    return Trace(BAD, prompt, [3, 4, 1, 2])


def run_by(page: str) -> tuple[int, int]:
    """How many scripts and images a page has."""
    parsed = html5lib.parse(page, namespaceHTMLElements=False)
    return len(parsed.findall(".//script")), len(parsed.findall(".//img"))


def test_the_explorer_shows_names_and_tokens_as_text() -> None:
    def decode(ids: list[int]) -> str:
        return "".join(f"{BAD}{token}" for token in ids)

    plain = Trace("toy", Prompt(np.array([1, 2, 3, 4, 1, 2]), dataset="rag", question_id="7"), [3, 4, 1, 2])
    wanted = run_by(explorer_page(explore(plain, {"pld": PromptLookup()})))
    assert run_by(explorer_page(explore(trace(), {BAD: PromptLookup()}, decode))) == wanted
