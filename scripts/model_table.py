"""Note what answers for the models that people load (make model-table).

For each architecture of data/models/hub_ids.yaml a tiny model with random weights is made on the CPU, with the fields
that decide; data/models/answered.csv says whether the packed network answers for it, its own modules (stock), or what
line refuses it. docs/library.md shows it. No weights are fetched.
"""

from __future__ import annotations

import logging
import re
import warnings
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import torch
import yaml
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, AutoModelForImageTextToText, PreTrainedModel
from typer import Option

from ngram_trie.cli.app import run
from ngram_trie.store.files import PROJECT, first_line, write_atomically
from ngram_trie.targets.choose import network_for
from ngram_trie.targets.cpu import PackedNetwork
from ngram_trie.targets.plan import plan_of

MODELS = PROJECT / "data" / "models"
#: The size of every model.
SHAPE = {
    "vocab_size": 61, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 160, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
#: The part of a model that sees pictures.
SEES = {
    "hidden_size": 16, "intermediate_size": 16, "image_size": 28, "patch_size": 14, "head_dim": 8,
    "num_hidden_layers": 1, "num_attention_heads": 2,
}  # fmt: skip


def tiny_model(kind: str, fields: dict[str, Any], text: dict[str, Any] | None) -> PreTrainedModel:
    """A random model of a type; with a `text` part of its own type if it could also see pictures."""
    torch.manual_seed(0)
    if text is None:
        model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[kind](**SHAPE | fields))
    else:
        config = CONFIG_MAPPING[kind](text_config=SHAPE | text, vision_config=SEES)
        model = AutoModelForImageTextToText.from_config(config)
    for weight in model.parameters():  # spread out, so that what differs shows
        if weight.dim() > 1:
            torch.nn.init.normal_(weight, 0, 0.2)
    made: PreTrainedModel = model.eval()
    return made


def answered(model: PreTrainedModel) -> str:
    """What answers for a model: "fast", "stock" (and why, if its type has a plan), or the line that refuses it."""
    try:
        network = network_for(model, 120)
    except ValueError as error:
        return f"refused: {first_line(error)}"
    plan = plan_of(model.config)
    if isinstance(network, PackedNetwork):
        return "fast"
    return f"stock: {plan}" if isinstance(plan, str) and not plan.startswith("models of type") else "stock"


def table(entries: list[dict[str, Any]]) -> pd.DataFrame:
    """What answers for the entries of the list: a row for each family that is fast, and for each other answer."""
    rows: dict[tuple[str, str], dict[str, list[str]]] = {}
    for entry in entries:
        fields = entry.get("fields", {}) | entry.get("tiny", {})
        answer = answered(tiny_model(entry["type"], fields, entry.get("text")))
        family = re.split(r"[\d_]", entry["type"])[0] if answer == "fast" else ""
        answer = re.sub(r" \(layers: .*\)", "", re.sub(r"model type \w+", "model type NAME", answer))
        row = rows.setdefault((answer, family), {"architecture": [], "models": []})
        row["architecture"] += [entry["type"]] * (entry["type"] not in row["architecture"])
        row["models"] += entry["ids"]
    found = [{"answered": key[0], **{name: ", ".join(each) for name, each in row.items()}} for key, row in rows.items()]
    return pd.DataFrame(found).sort_values("answered", kind="stable", ignore_index=True)


def main(output: Annotated[Path, Option(help="the table, a CSV file")] = MODELS / "answered.csv") -> pd.DataFrame:
    """Write which network answers for which model of the hub; docs/library.md explains it.

    python -m scripts.model_table --output results/local/answered.csv
    """
    logging.getLogger("transformers").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    entries = yaml.safe_load((MODELS / "hub_ids.yaml").read_text(encoding="utf-8"))
    found = table(entries)
    output.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(output, found.to_csv(index=False))
    print(f"{sum(len(entry['ids']) for entry in entries)} models\n{found.to_string(max_colwidth=60)}")
    return found


if __name__ == "__main__":
    run(main, "nothing was written")
