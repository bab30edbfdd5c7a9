"""The ablation of `blend_logits`: each row differs from it in what its name says, and ratios have its tokens below."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import hydra
import pandas as pd
import pytest

from ngram_trie.files import CONFIGS
from ngram_trie.metrics import ALL
from scripts.ablate_logits import FULL, VARIANTS, ablation, overrides

NAMES = ["blend", *VARIANTS]
#: Tokens a step: the n-th method's are n / 8 + 1 on every data set.
TOKENS = {name: 1 + place / 8 for place, name in enumerate(NAMES)}


def test_each_row_differs_from_blend_logits_in_its_own_fields(tmp_path: Path) -> None:
    given = overrides("smollm2_135m", ["spec_bench_rag"], "odd", 3, 16, tmp_path)
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        config: Any = hydra.compose("config", given)
    assert list(config.methods) == ["vanilla", *NAMES]
    for name, fields in VARIANTS.items():
        differs = {
            field: value for field, value in config.methods[name].items() if value != config.methods[FULL][field]
        }
        assert differs == fields
    asked = config.datasets.spec_bench_rag
    assert (config.budget.num_nodes, asked.limit, asked.parity) == (16, 3, "odd")


def test_the_table_has_every_row_and_its_ratio_to_blend_logits(tmp_path: Path) -> None:
    table = [
        {"method": name, "dataset": dataset, "protocol": protocol, "accept_length": tokens}
        for (name, tokens), dataset in itertools.product(TOKENS.items(), ["rag", ALL])
        for protocol in ("corrected", "released")
    ]
    pairs = []
    for a, b in itertools.combinations(NAMES, 2):  # in this order they are stored
        ratio = TOKENS[a] / TOKENS[b]
        for measure in ("accept_length", "speedup"):
            shown = ratio if measure == "accept_length" else 9.0
            pairs.append({"dataset": ALL, "measure": measure, "a": a, "b": b, "group_a": "cold", "group_b": "cold"})
            pairs[-1] |= {
                "ratio": shown,
                "low": shown / 2,
                "high": shown * 4,
                "session_min": shown,
                "session_max": shown,
            }
    pd.DataFrame(table).to_csv(tmp_path / "table.csv", index=False)
    pd.DataFrame(pairs).to_csv(tmp_path / "versus.csv", index=False)
    found = ablation(tmp_path).set_index("method")
    assert list(found.index) == NAMES and list(found) == ["rag", ALL, "ratio", "low", "high"]
    assert found[ALL].to_dict() == pytest.approx(TOKENS)
    assert pd.isna(found.ratio[FULL])
    for name in NAMES[2:]:  # stored as blend_logits over it
        ratio = TOKENS[name] / TOKENS[FULL]
        assert found.loc[name, ["ratio", "low", "high"]].tolist() == pytest.approx([ratio, ratio / 4, ratio * 2])
    assert found.ratio["blend"] == pytest.approx(TOKENS["blend"] / TOKENS[FULL])
