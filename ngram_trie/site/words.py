"""What the page says of each part: sections in their order, captions, and what answers which table of the papers."""

from __future__ import annotations

from dataclasses import dataclass

from ngram_trie.site.gathered import OTHER

#: Data that other parts of the page are made of, or that is one row a question.
HIDDEN = ("readings.csv", "predicted.csv", "quality.csv", "accept_lengths.csv")


@dataclass(frozen=True)
class Section:
    """A part of the page.

    Attributes:
        kinds: of the folders that stand in it.
        text: what is to be seen.
        command: what makes it on the embedded profile, or by replay with `replay`, or on a GPU with `gpu`.
    """

    id: str
    title: str
    kinds: tuple[str, ...]
    text: str
    command: str
    replay: str = ""
    gpu: str = ""


_TABLE_1_GPU = "make reproduce-table1 PROFILE=paper MODELS={model}"
SECTIONS = (
    Section(
        "table1", "Table 1: speedup and accept length", ("table1",),
        "Each method in the same loop, beside vanilla, prompt by prompt. Readings side by side: as the paper prints a "
        "cell, as its released code would read our answers (last question, clock after prefill), and corrected (all "
        "questions, one clock for all, 95% intervals).",
        "make reproduce-table1", gpu=_TABLE_1_GPU,
    ),
    Section(
        "drafters", "Drafters on recorded answers", ("drafters",),
        "Exact accept lengths of every drafter that reads tokens only, by replay of recorded answers.",
        "python -m scripts.run experiment=drafters",
        "python -m scripts.run experiment=drafters engine=replay engine.traces={traces}",
    ),
    Section(
        "grid", "Tables 2, 5 and 6: n and L_p", ("grid",),
        "The trie over the length of its n-grams and of the prefix that is matched; and what it costs.",
        "make reproduce-table2", "make reproduce-table2 TRACES={traces}",
    ),
    Section(
        "num_draft", "Table 3: num_draft", ("num_draft",), "The trie over the number of drafted nodes.",
        "make reproduce-table3", "make reproduce-table3 TRACES={traces}",
    ),
    Section(
        "table4", "Table 4: noisy contexts", ("table4",),
        "Clean contexts, an unrelated paragraph behind the text of the trie, unrelated passages in the context.",
        "make reproduce-table4", "make reproduce-table4 TRACES={traces}",
        "make reproduce-table4 PROFILE=paper MODELS={model}",
    ),
    Section(
        "figure3", "Figure 3: one answer", ("figure3",), "Drafted tokens are highlighted; a thin line opens each step.",
        "make reproduce-figure3", "make reproduce-figure3 TRACES={traces}",
    ),
    Section(
        "figures", "Figure 4: accept lengths", ("figures",), "How often a step emits how many tokens.",
        "make reproduce-figure4", "make reproduce-figure4 TRACES={traces}",
    ),
    Section(
        "figure5", "Figure 5: drafting time", ("figure5",), "What a step's drafting time is spent on.",
        "make reproduce-figure5", "make reproduce-figure5 TRACES={traces}",
    ),
    Section(
        "ngrammys", "N-Grammys", ("ngrammys",),
        "Its Table 1 and Figures 1 to 4 on a second small model, for chat, code and math; as batched rows, as "
        "published, and as one merged tree.",
        "make reproduce-ngrammys",
    ),
    Section(
        "predictor", "The n-gram predictor", ("predictor",),
        "Accepted tokens as the chapter expects them and as they were measured.",
        "make reproduce-predictor", "make reproduce-predictor TRACES={traces}",
    ),
    Section(
        "blend", "The blend, this project's drafter", ("blend",),
        "All orders of prompt and output in one distribution (docs/blend.md): its fit, what its parts are worth, its "
        "peers at equal sizes, and sizes that follow what a step costs.",
        "make fit-blend", "make fit-blend TRACES={traces}",
    ),
    Section(
        "quality", "How well the embedded models do their tasks", ("quality", "quality_general"),
        "Whether the answers that are sped up are worth having.", "python -m scripts.embedded.evaluate",
    ),
    Section(
        "retrieval", "Retrieval", ("retrieval",),
        "How often the passage with the answer is found, and how an index grows.",
        "make retrieve; make bench-index",
    ),
    Section(
        "costs", "What a step costs", ("calibration",),
        "Seconds of a verification step over nodes and context, and of drafting.", "make calibrate",
    ),
    Section(OTHER, "Other runs", (OTHER,), "Folders that are none of the above.", "python -m scripts.run"),
)  # fmt: skip

#: Every table and figure of the three papers: which kind of folder answers it; "" for a drawing without numbers.
COVERAGE = (
    ("N-Gram-Trie", "Figures 1, 2", "", "drawings of the method, without numbers: see the explorer"),
    ("N-Gram-Trie", "Table 1", "table1", ""),
    ("N-Gram-Trie", "Tables 2, 5, 6", "grid", ""),
    ("N-Gram-Trie", "Table 3", "num_draft", ""),
    ("N-Gram-Trie", "Table 4", "table4", ""),
    ("N-Gram-Trie", "Figure 3", "figure3", ""),
    ("N-Gram-Trie", "Figure 4", "figures", ""),
    ("N-Gram-Trie", "Figure 5", "figure5", ""),
    ("N-Grammys", "Table 1, Figures 1 to 4", "ngrammys", ""),
    ("N-Grammys", "Figures 5 to 9", "ngrammys", "the same k x w maps for its other models; here for one model"),
    ("Predictor chapter", "expected accepted tokens", "predictor", ""),
)

CAPTIONS = {
    "figure": "Speedup and accept length, 95% intervals",
    "accept_lengths": "Share of the steps that emit so many tokens",
    "accept_length": "Accept length",
    "speedup": "Speedup over vanilla, measured",
    "predicted_speedup": "Speedup over vanilla, predicted from exact accept lengths",
    "trie_ms": "Drafting and laying out the tree, ms a step",
    "calibration": "Of the nodes held to be so likely, how many were accepted",
    "acceptance": "Acceptance by place in the draft",
    "time_split": "Drafting time of a step by part",
    "figure1/figure": "Figure 1: how much slower a call over k rows of w + 1 tokens is",
    "figure2/figure": "Figure 2: tokens per call over k",
    "figure4/figure": "Figure 4: what (10, 10) drafts from where, and what is accepted of it",
    "table4/table4/figure": "Accept length by context",
}
TITLES = {
    "ablation": "What each part is worth: accept length",
    "peers": "Peers at equal numbers of nodes: accept length",
    "fit": "Accept length over the escape, and held out",
    "budgets": "Fixed sizes and auto: speed of verification over plain decoding",
    "calibration": "Predicted and observed acceptance, by bins of nodes",
    "drafting": "Time and memory of drafting",
    "drafters": "Time and memory of drafting",
    "curve": "Milliseconds of a step by drafted nodes and cached tokens",
    "phases": "Where the time goes",
    "positions": "Acceptance by place in the draft",
    "time_split": "Microseconds of drafting by part",
    "recall": "Questions whose answer is among the passages found",
    "scaling": "Time, memory and disk of an index",
    "quality": "Quality of the model's answers",
}
#: Data files that stand unfolded.
OPEN = ("ablation", "peers", "time_split", "recall", "scaling", "quality", "drafters")
