"""The trainings of the bundled models: the loop they share, and each of them for a few steps at a small size."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from scripts.studies.tiny import train_heads, train_model, train_space, training

RECIPE = training.Recipe(seed=1, num_steps=40, warmup_steps=2, muon_lr=0.02, adam_lr=0.01)


@pytest.fixture(autouse=True)
def not_compiled() -> Iterator[None]:
    with torch.compiler.set_stance("force_eager"):
        yield


def test_a_training_learns_and_is_the_same_again(tmp_path: Path) -> None:
    def fit(folder: Path) -> dict[str, torch.Tensor]:
        """Weights after training an embedding of 7 tokens and two layers to name the next token."""
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Embedding(7, 8), torch.nn.Linear(8, 8), torch.nn.Linear(8, 7))

        def losses_at(step: int) -> dict[str, torch.Tensor]:
            tokens = torch.randint(7, (16,), generator=RECIPE.generator(step))
            return {"loss": torch.nn.functional.cross_entropy(model(tokens), (tokens + 1) % 7)}

        training.train(model, losses_at, RECIPE, folder, vocab_size=7)
        return model.state_dict()

    first, second = fit(tmp_path / "a"), fit(tmp_path / "b")
    assert all(torch.equal(weight, second[name]) for name, weight in first.items())
    lines = [json.loads(line) for line in (tmp_path / "a" / training.LOG).read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 20] and lines[1]["loss"] < lines[0]["loss"]


def small_model(folder: Path) -> list[str]:
    recipe, source = train_model.MODELS["general"]
    recipe = dataclasses.replace(
        recipe, vocab_size=400, hidden_size=128, intermediate_size=32, num_steps=2, tokens_per_step=384
    )
    train_model.train(recipe, source, folder)
    return ["model.safetensors", "tokenizer.json", "training.json"]


def small_heads(folder: Path) -> list[str]:
    recipe = train_heads.HeadsRecipe(num_heads=2, num_steps=2, tokens_per_step=1024, positions_per_step=32)
    train_heads.train(recipe, folder)
    about = json.loads((folder / "medusa" / "config.json").read_text())
    assert about["medusa_num_heads"] == 2 and len(about["head_accuracies"][0]) == train_heads.NUM_RANKS
    return ["medusa/medusa_heads.safetensors", "hydra/hydra_heads.safetensors", "hydra/config.json"]


def small_space(folder: Path) -> list[str]:
    train_space.train(train_space.SpaceRecipe(num_masks=2, num_steps=2, rows=1, row_length=800, groups=4), folder)
    assert json.loads((folder / "training.json").read_text())["mask_id"] == 3072
    return ["model.safetensors"]


@pytest.mark.slow
@pytest.mark.parametrize("run", [small_model, small_heads, small_space])
def test_each_training_writes_what_is_shipped(tmp_path: Path, run: Callable[[Path], list[str]]) -> None:
    for name in run(tmp_path):
        assert (tmp_path / name).stat().st_size > 0
        if name.endswith("safetensors"):
            assert all(tensor.float().isfinite().all() for tensor in load_file(tmp_path / name).values())
    log = (tmp_path / training.LOG).read_text().splitlines()
    assert len(log) == 1 and json.loads(log[0])["step"] == 0
