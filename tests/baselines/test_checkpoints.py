"""Weights come from folders or the hub, without pickle, and what does not fit is listed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from support.plain import Trap
from torch import nn

from ngram_trie.baselines.checkpoints import fill, locate, read_tensors, weight_parts
from ngram_trie.targets.hub import Unreachable


@pytest.mark.parametrize("name", ["a.safetensors", "a.pt", "pytorch_model.bin"])
def test_every_weight_format_is_read(tmp_path: Path, name: str) -> None:
    tensors = {"x": torch.arange(3.0), "y": torch.ones(2, 2)}
    (save_file if name.endswith(".safetensors") else torch.save)(tensors, tmp_path / name)
    torch.save({"lr": 0.1}, tmp_path / "training_args.bin")  # what trainers leave beside weights
    found = read_tensors(tmp_path)
    assert found.keys() == tensors.keys() and all(found[key].equal(tensors[key]) for key in tensors)


def test_no_pickle_is_run(tmp_path: Path) -> None:
    torch.save({"x": Trap()}, tmp_path / "heads.pt")
    with pytest.raises(FileNotFoundError, match=r"heads\.pt: not readable as weights"):
        read_tensors(tmp_path)


def test_a_torn_file_and_an_empty_folder_are_said_in_one_line(tmp_path: Path) -> None:
    for empty in (tmp_path, tmp_path / "absent"):
        with pytest.raises(FileNotFoundError, match="no weights there"):
            read_tensors(empty)
    (tmp_path / "a.safetensors").write_bytes(b"torn")
    with pytest.raises(FileNotFoundError, match=r"a\.safetensors: not readable") as error:
        read_tensors(tmp_path)
    assert "\n" not in str(error.value)


def test_what_does_not_fit_is_listed_and_what_fits_is_moved_once() -> None:
    layer = nn.Linear(2, 3, device="meta")
    with pytest.raises(ValueError, match=r"missing: bias; unexpected: other; of another shape: weight \(2, 3\), not"):
        fill(layer, {"weight": torch.zeros(2, 3), "other": torch.zeros(1)}, Path("there"), torch.float32)
    stored = {"weight": torch.ones(3, 2, dtype=torch.float16), "bias": torch.zeros(3)}
    fill(layer, stored, Path("there"), torch.float32)
    assert layer.weight.dtype == torch.float32 and layer.weight.eq(1).all()
    assert layer.bias.data_ptr() == stored["bias"].data_ptr()  # of the right type already: not copied


def test_weights_are_a_folder_or_what_the_hub_gives_and_else_a_missing_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert locate(str(tmp_path)) == tmp_path
    assert weight_parts(str(tmp_path / "absent"), None, "how") == {tmp_path / "absent": "how"}
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert [*weight_parts("someone/weights", None, "how")] == [Path("someone/weights")]
    with pytest.raises(FileNotFoundError, match="weights 'someone/weights' cannot be loaded: ") as raised:
        locate("someone/weights")
    assert not isinstance(raised.value, Unreachable)  # no network was wanted
