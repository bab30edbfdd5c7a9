"""One answer step by step: the trees, paths and probabilities that the loop had, and what the text says."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngram_trie.baselines.prompt_lookup import PromptLookup
from ngram_trie.bench.replay import replay
from ngram_trie.bench.traces import Trace, read_traces
from ngram_trie.blend.variants import BlendBigramDrafter, BlendDrafter, BlendWarmDrafter
from ngram_trie.cli import commands
from ngram_trie.cli.app import invoke
from ngram_trie.cli.recordings import choose_trace, recall, replayable
from ngram_trie.drafter import Drafter
from ngram_trie.drafters import NgramTrieDrafter, NoDraft
from ngram_trie.prompt import Prompt
from ngram_trie.report.explorer import Evidence, evidence, explore, walk
from ngram_trie.report.render import explorer_page
from ngram_trie.store.files import PROJECT
from ngram_trie.tree import DraftTree, Sources

TRACES = PROJECT / "results" / "table1" / "tiny" / "traces.jsonl"
# 1 2 3 4 occurs before, and after 9 nothing does
TRACE = Trace("toy", Prompt(np.array([1, 2, 3, 4, 5, 1, 2, 3, 6]), dataset="rag", question_id="7"), [1, 2, 3, 4, 9, 8])

tokens = st.lists(st.integers(0, 4), min_size=1, max_size=30)


def trace_of(prompt: list[int], answer: list[int]) -> Trace:
    return Trace("toy", Prompt(np.array(prompt, np.int64)), answer)


@given(tokens, tokens)
def test_steps_spell_the_answer_and_are_those_of_a_replay(prompt: list[int], answer: list[int]) -> None:
    trace = trace_of(prompt, answer)
    for drafter in (NgramTrieDrafter(n=4, prefix_len=2, num_draft=6), BlendDrafter(num_draft=6), NoDraft()):
        steps, replayed = walk(drafter, trace), replay(drafter, trace)
        assert [step.num_emitted for step in steps] == replayed.accept_lengths
        assert [step.tree.num_draft for step in steps] == replayed.tree_sizes
        spelled = answer[:1]
        for step in steps:
            assert step.start == len(spelled) and int(step.tree.tokens[0]) == spelled[-1]
            accepted = step.tree.tokens[step.path[1:]].tolist()
            assert accepted == answer[step.start : step.start + len(accepted)]
            assert all(
                step.tree.parents[child] == parent for parent, child in zip(step.path, step.path[1:], strict=False)
            )
            spelled += answer[step.start : step.start + step.num_emitted]
        assert spelled == answer


def test_an_answer_that_ends_inside_a_draft_ends_with_a_drafted_token() -> None:
    (step,) = walk(NgramTrieDrafter(n=4, prefix_len=1, num_draft=3), trace_of([1, 2, 3, 4, 5, 1], [2, 3, 4]))
    assert step.tree.tokens[step.path].tolist() == [2, 3, 4] and step.num_emitted == 2
    # The page draws a token of the model's own where as many are emitted as the path has nodes, the root among them.
    assert step.num_emitted < len(step.path)


class Silent(Drafter):
    """Drafts, and does not say how likely."""

    def propose(self, budget: int) -> DraftTree:
        return DraftTree.chain(self.root, [1])


def test_the_page_has_the_probabilities_that_a_drafter_gives() -> None:
    data = explore(TRACE, {"pld": PromptLookup(num_draft=2), "silent": Silent()})
    copied, silent = (drafter["steps"] for drafter in data["drafters"])
    # Behind the answer's first token, a match of one; behind its first four, of three.
    assert copied[0]["tokens"] == [1, 2, 3] and copied[0]["probs"] == [1, 0.5, 0.333]
    assert copied[1]["tokens"] == [4, 5, 1] and copied[1]["probs"] == [1, 0.75, 0.6]
    assert any(len(step["tokens"]) > 1 for step in silent) and not any("probs" in step for step in silent)


class Sourced(Drafter):
    """Drafts the next two tokens of 1 2 3 ... and a wrong one, each from a source of its own."""

    names: tuple[str, ...] = ("copy", "guess", "table")

    def propose(self, budget: int) -> DraftTree:
        paths = [[self.root + 1], [self.root + 1, self.root + 2], [7]]
        probs = [[0.5], [0.5, 0.4], [0.1]]
        return DraftTree.from_paths(self.root, paths, probs, Sources(self.names, np.array([0, 1, 2])))


COUNTED = Trace("toy", Prompt(np.array([9]), dataset="rag", question_id="7"), [1, 2, 3, 4], 4, "eos")


def test_the_page_has_the_sources_that_a_drafter_gives() -> None:
    data = explore(COUNTED, {"one": Sourced(), "silent": Silent()})
    one, silent = (drafter["steps"][0] for drafter in data["drafters"])
    assert data["sources"] == ["copy", "guess", "table"] and one["tokens"][1:] == [2, 3, 7]
    assert one["sources"][1:] == [0, 1, 2] and "sources" not in silent
    legend = explorer_page(data).split("</style>")[1].split("<script>")[0]
    assert re.findall(r'<i class="badge source-(\d)">(\w)</i> (\w+)', legend) == [
        ("0", "c", "copy"), ("1", "g", "guess"), ("2", "t", "table")
    ]  # fmt: skip
    plain = explorer_page(explore(COUNTED, {"silent": Silent()}))
    assert "badge" not in plain.split("</style>")[1].split("<script>")[0]


@pytest.mark.parametrize(
    ("text", "token", "expected"),
    [
        ([1, 2, 3, 1, 2], 3, Evidence(2, 1, [(3, 1)], 1)),
        ([1, 2, 4, 1, 2, 3, 1, 2], 4, Evidence(2, 2, [(4, 1), (3, 1)], 1)),
        ([5, 1, 2, 6, 1, 2], 6, Evidence(2, 1, [(6, 1)], 1)),
        ([1, 1, 1], 1, Evidence(2, 1, [(1, 1)], 3)),
        ([1, 2, 3], 9, Evidence(0, 0, [], 0)),
        ([7], 7, Evidence(0, 0, [], 1)),
    ],
)
def test_evidence_by_hand(text: list[int], token: int, expected: Evidence) -> None:
    assert evidence(np.array(text), token) == expected


@pytest.mark.parametrize(
    ("words", "message"), [(["blend", "8"], "FIELD=VALUE"), (["medusa"], "cannot be replayed|hidden states")]
)
def test_wrong_methods_are_named(words: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replayable(" ".join(words), TRACES)


def test_a_table_of_answers_is_that_of_the_recording(tmp_path: Path) -> None:
    path = tmp_path / "a, b=c.jsonl"
    path.write_text(TRACE.to_json() + "\n")
    drafter = replayable("blend_bigram num_draft=4", path)
    assert isinstance(drafter, BlendBigramDrafter) and drafter.answers == path and drafter.tables is None


def test_a_drafter_that_remembers_is_shown_as_in_a_run(tmp_path: Path) -> None:
    """It has met the answers before the chosen one, none after it and not that one itself, in the file's order."""
    answers = [[7, 8, 9, 10, 11], [7, 8, 9, 12, 13], [7, 8, 9, 10, 11], [7, 8, 9, 12, 13]]
    traces = [
        Trace("toy", Prompt(np.array([20 + at]), {}, "rag", str(at)), answer) for at, answer in enumerate(answers)
    ]
    run, drafter = BlendWarmDrafter(num_draft=4), BlendWarmDrafter(num_draft=4)
    live = [replay(run, trace).accept_lengths for trace in traces]
    assert live[0] != live[2], "the third is the first once more"
    median = choose_trace(traces, drafter, None, None)
    assert sorted(map(np.mean, live))[2] == np.mean(live[traces.index(median)])
    for trace, expected in zip(traces, live, strict=True):
        assert choose_trace(traces, drafter, None, trace.prompt.question_id) is trace
        shown = recall(drafter, traces, trace)
        assert [step.num_emitted for step in walk(shown, trace)] == expected
    assert not drafter.store._size, "what was given stays as it was"


def test_the_script_writes_a_page_that_stands_alone(tmp_path: Path) -> None:
    output = tmp_path / "deep" / "explorer.html"
    question = read_traces(TRACES)[5].prompt.question_id
    invoke(
        commands.explore, [str(TRACES), "--question", question, "--method", "pld num_draft=4", "--output", str(output)]
    )
    page = output.read_text(encoding="utf-8")
    assert question in page and "pld num_draft=4" in page
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "") and "https://" not in page


@pytest.mark.parametrize("arguments", [["nowhere.jsonl"], [str(TRACES), "--question", "none"]])
def test_errors_are_one_line(arguments: list[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as error:
        invoke(commands.explore, [*arguments, "--output", str(tmp_path / "x.html")])
    said = str(error.value)
    assert said.startswith("error:") and "\n" not in said and not (tmp_path / "x.html").exists()
