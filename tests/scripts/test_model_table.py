"""The table of what answers for the hub's models: what it says of each kind, and that it is the committed one."""

from __future__ import annotations

import pandas as pd
import pytest
import yaml

from ngram_trie.targets.plan import FAMILIES
from scripts.model_table import MODELS, answered, table, tiny_model

ENTRIES = yaml.safe_load((MODELS / "hub_ids.yaml").read_text(encoding="utf-8"))


def test_each_kind_of_answer() -> None:
    assert answered(tiny_model("llama", {}, None)) == "fast"
    experts = {"num_experts": 4, "num_experts_per_tok": 2}
    assert answered(tiny_model("olmoe", experts, None)) == "stock"
    refused = answered(tiny_model("lfm2", {"layer_types": ["conv", "full_attention"]}, None))
    assert refused.startswith("refused: model type lfm2 keeps a state")


def test_every_family_with_a_plan_is_met_and_no_model_twice() -> None:
    kinds = {entry["type"] for entry in ENTRIES} | {entry.get("text", {}).get("model_type") for entry in ENTRIES}
    assert set(FAMILIES) <= kinds
    ids = [name for entry in ENTRIES for name in entry["ids"]]
    assert len(ids) == len(set(ids)) >= 40


@pytest.mark.slow
def test_the_committed_table_is_what_the_command_writes() -> None:
    committed = pd.read_csv(MODELS / "answered.csv")
    pd.testing.assert_frame_equal(table(ENTRIES), committed)
