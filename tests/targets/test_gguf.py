"""GGUF files: the converted model computes what the source does, once, and what cannot be read is one line."""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path

import pytest
import torch
from support.tiny import SHAPE, tiny_model
from support.tiny_gguf import TOKENS, write_gguf
from transformers import AutoModelForCausalLM, PreTrainedModel, Starcoder2Config

from ngram_trie.bench import models
from ngram_trie.bench.config import resolve
from ngram_trie.cli.overrides import composed
from ngram_trie.cli.shorthand import model_overrides
from ngram_trie.store.files import cache_folder, fingerprint
from ngram_trie.targets import gguf
from ngram_trie.targets.gguf import local_folder
from ngram_trie.targets.load import context_limit, load_config, load_model, load_tokenizer

IDS = torch.tensor([[5, 9, 31, 7, 7, 20, 3]])


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NGRAM_TRIE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"


def small(family: str = "llama", **fields: object) -> PreTrainedModel:
    if family == "starcoder2":
        # a base of its positions that transformers leaves out of a GGUF file, as StarCoder2-3B has one
        rope = {"rope_type": "default", "rope_theta": 500.0}
        config = Starcoder2Config(**SHAPE | {"vocab_size": len(TOKENS), "rope_parameters": rope} | fields)
        model = AutoModelForCausalLM.from_config(config)
    else:
        model = tiny_model(family, vocab_size=len(TOKENS), **fields)
    for name, weight in model.named_parameters():
        if name.endswith("bias"):  # zero in a new model: a bias that was lost would not be seen
            torch.nn.init.normal_(weight)
    return model.eval()


@pytest.mark.parametrize(
    ("family", "architecture", "tied"),
    [
        ("llama", "llama", False),
        ("llama", "llama", True),
        ("mistral", "llama", False),  # llama.cpp knows no other name for it
        ("qwen2", "qwen2", False),
        ("phi3", "phi3", False),
        ("starcoder2", "starcoder2", False),
    ],
)
def test_the_conversion_computes_what_the_source_does(
    family: str, architecture: str, tied: bool, tmp_path: Path
) -> None:
    source = small(family, tie_word_embeddings=tied)
    # Phi-3's own padding token, which it has unless the file names one, lies beyond this vocabulary
    padding = {"tokenizer__ggml__padding_token_id": 2} if family == "phi3" else {}
    file = write_gguf(tmp_path / "tiny.F32.gguf", source, architecture, **padding)
    loaded = load_model(str(file), device="cpu")
    assert loaded.config.model_type == architecture and loaded.dtype == torch.float32
    with torch.inference_mode():
        torch.testing.assert_close(loaded(IDS).logits, source(IDS).logits, rtol=1e-5, atol=1e-5)
    assert loaded.config.tie_word_embeddings is tied
    assert (loaded.generation_config.bos_token_id, loaded.generation_config.eos_token_id) == (1, 2)
    assert loaded.generation_config.pad_token_id == 2
    assert context_limit(str(file)) == source.config.max_position_embeddings


def test_the_tokenizer_keeps_merges_special_tokens_and_template(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(str(write_gguf(tmp_path / "tiny.gguf", small())))
    assert tokenizer("ab c</s>")["input_ids"] == [TOKENS.index(token) for token in ("ab", "Ġc", "</s>")]
    chat = [{"role": "user", "content": "ab"}]
    assert tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True) == "<s>ab</s><s>"
    assert tokenizer.eos_token_id == 2


def test_a_stock_folder_is_written_once_with_its_source(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_gguf(tmp_path / "tiny.gguf", small())
    folder = Path(local_folder(str(file)))
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"converting tiny.gguf once, into {folder}\n")
    assert folder.parent == cache and sorted(entry.name for entry in cache.iterdir() if entry.is_dir()) == [folder.name]
    for written in folder.glob("*.json"):
        assert str(tmp_path) not in written.read_text()
    config = json.loads((folder / "config.json").read_text())
    assert not {"quantization_config", "_name_or_path", "_model_name_or_path"} & set(config)
    # what is there is not made again, whatever the file is called and wherever it lies
    monkeypatch.setattr(gguf, "_convert", lambda *_: pytest.fail("converted again"))
    (tmp_path / "elsewhere").mkdir()
    shutil.copy(file, tmp_path / "elsewhere" / "tiny.gguf")
    assert local_folder(str(file)) == local_folder(str(tmp_path / "elsewhere" / "tiny.gguf")) == str(folder)


def test_a_changed_file_is_another_model(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "tiny.gguf", small())
    first, known = local_folder(str(file)), fingerprint(str(file))
    write_gguf(file, small(tie_word_embeddings=True))
    assert local_folder(str(file)) != first and fingerprint(str(file)) != known


def test_a_folder_means_its_only_file_unless_it_is_stock(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    assert local_folder(str(folder)) == str(folder)
    assert local_folder("some/hub-id") == "some/hub-id"
    file = write_gguf(folder / "a.gguf", small())
    assert local_folder(str(folder)) == local_folder(str(file)) != str(folder)
    assert load_config(str(folder)).vocab_size == len(TOKENS)
    shutil.copy(file, folder / "b.gguf")
    with pytest.raises(FileNotFoundError, match=r"several GGUF files, give one of them: a\.gguf, b\.gguf"):
        local_folder(str(folder))
    (folder / "config.json").write_text("{}")
    assert local_folder(str(folder)) == str(folder)


def refused(path: Path | str) -> str:
    """What is said of a file that is refused, by all that load; nothing is left behind."""
    said = set()
    for load in (load_model, load_tokenizer, load_config):
        with pytest.raises(FileNotFoundError) as raised:
            load(str(path))
        said.add(str(raised.value))
    (line,) = said
    assert "\n" not in line
    assert not [entry for entry in (cache_folder() / "models").glob("*") if entry.is_dir()]
    return line


def test_what_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "tiny.gguf", small())
    whole = file.read_bytes()
    cut, other = tmp_path / "cut.gguf", tmp_path / "other.gguf"
    for size in (20, 300, len(whole) // 2, len(whole) - 40):
        cut.write_bytes(whole[:size])
        assert f"model {cut} cannot be converted: it is no GGUF file, cut short or damaged (" in refused(cut)
    other.write_bytes(b"PK\x03\x04 not a model")
    assert f"model {other} cannot be converted: it is no GGUF file" in refused(other)
    other.write_bytes(b"")
    assert f"model {other} cannot be converted: it is no GGUF file" in refused(other)
    other.write_bytes(whole.replace(b"llama", b"lamal"))
    assert "GGUF model with architecture lamal is not supported yet" in refused(other)
    other.write_bytes(whole.replace(b"blk.1.ffn_up", b"blk.9.ffn_up"))
    assert refused(other).endswith("tensors are missing in it or have another shape: model.layers.1.mlp.up_proj.weight")
    assert refused(tmp_path / "none.gguf") == f"model {tmp_path / 'none.gguf'}: no such file"


def test_scaled_positions_are_refused_and_a_window_is_kept(tmp_path: Path) -> None:
    for key, value in (("type", "yarn"), ("factor", 4.0)):
        scaled = write_gguf(tmp_path / "scaled.gguf", small(), **{f"llama__rope__scaling__{key}": value})
        assert "it scales its rotary positions, and transformers leaves that out" in refused(scaled)
    windowed = write_gguf(tmp_path / "windowed.gguf", small(), llama__attention__sliding_window=24)
    assert context_limit(str(windowed)) == 24


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("llama.logit_scale", 0.5),
        ("llama.attention.scale", 0.1),
        ("llama.attention.causal", False),
        ("llama.pooling_type", 1),
        ("llama.rope.scale_linear", 4.0),
        ("llama.final_logit_softcapping", 30.0),
        ("llama.rope.freq_base_swa", 77.0),
        ("llama.expert_used_count", 2),
    ],
)
def test_what_transformers_would_leave_out_is_refused(key: str, value: object, tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "tiny.gguf", small(), **{key.replace(".", "__"): value})
    assert f"it says {key} = {value}, which transformers reads otherwise" in refused(file)


def test_a_part_of_each_head_that_turns_is_not_taken_for_all_of_it(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "tiny.gguf", small("qwen2"), "qwen2", qwen2__rope__dimension_count=4)
    assert "it says qwen2.rope.dimension_count = 4, which transformers reads otherwise" in refused(file)


def test_a_field_that_is_off_or_known_is_no_reason_to_refuse(tmp_path: Path) -> None:
    fields = {"attention__max_alibi_bias": 0.0, "attention__key_length": 8, "rope__scaling__type": "none"}
    more = {f"llama__{name}": value for name, value in fields.items()}
    load_config(str(write_gguf(tmp_path / "tiny.gguf", small(), **more)))


def test_every_token_that_ends_a_turn_ends_an_answer(tmp_path: Path) -> None:
    ends = {"tokenizer__ggml__eot_token_id": 7, "tokenizer__ggml__eom_token_id": 9}
    file = write_gguf(tmp_path / "tiny.gguf", small(), **ends, tokenizer__ggml__suppress_tokens=[4, 6])
    settings = load_model(str(file), device="cpu").generation_config
    assert (settings.eos_token_id, settings.suppress_tokens) == ([2, 7, 9], [4, 6])


@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_the_tokenizer_is_the_one_that_the_file_names(family: str, tmp_path: Path) -> None:
    """And not the one that transformers has for the architecture: digits come alone in SmolLM's and not in GPT-2's."""
    for pre, said in (("new", "its pre-tokenizer 'new' is not known here"), (None, "it does not name its pre-token")):
        assert said in refused(write_gguf(tmp_path / "tiny.gguf", small(), tokenizer__ggml__pre=pre))
    for pre, pieces in (("smollm", ["ĊĊ", "1", "2"]), ("gpt-2", ["Ċ", "Ċ", "12"])):
        file = write_gguf(tmp_path / "tiny.gguf", small(family), family, tokenizer__ggml__pre=pre)
        cut = load_tokenizer(str(file)).backend_tokenizer.pre_tokenizer.pre_tokenize_str("\n\n12")
        assert [piece for piece, _ in cut] == pieces


def test_a_conversion_by_other_rules_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_gguf(tmp_path / "tiny.gguf", small())
    old = local_folder(str(file))
    monkeypatch.setattr(gguf, "VERSION", gguf.VERSION + 1)
    assert local_folder(str(file)) != old


def test_the_ending_may_be_in_capitals(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "TINY.GGUF", small())
    assert load_config(str(file)).vocab_size == load_config(str(tmp_path)).vocab_size == len(TOKENS)
    assert not list(Path(local_folder(str(file))).glob("*.gguf"))
    (config,) = (composed(words) for words in [model_overrides(str(file))])
    assert models.name(config.model) == "TINY"


def test_parts_of_a_file_say_how_they_are_joined(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "tiny-00001-of-00002.gguf", small())
    other = Path(shutil.copy(file, tmp_path / "tiny-00002-of-00002.gguf"))
    for path in (file, other, tmp_path):
        said = refused(path)
        assert said.startswith(f"model {path}: it is cut into 2 parts: join them with llama.cpp's")
        assert f"`llama-gguf-split --merge {file} tiny.gguf`, and give tiny.gguf" in said
    renamed = write_gguf(tmp_path / "renamed.gguf", small(), split__count=2)
    assert "it is one of 2 parts: join them with llama.cpp's `llama-gguf-split --merge" in refused(renamed)
    whole = Path(shutil.move(file, tmp_path / "tiny-00001-of-00001.gguf"))
    assert load_config(str(whole)).vocab_size == len(TOKENS)


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    file = write_gguf(tmp_path / "tiny.gguf", small())
    monkeypatch.setattr("transformers.PreTrainedTokenizerBase.save_pretrained", full)
    assert refused(file).endswith("cannot be converted: [Errno 28] No space left on device")


def test_what_a_kill_left_is_swept_away(tmp_path: Path, cache: Path) -> None:
    file = write_gguf(tmp_path / "tiny.gguf", small())
    torn = gguf.conversion(file).with_name(f"{gguf.conversion(file).name}.unfinished")
    torn.mkdir(parents=True)
    (torn / "model.safetensors").write_bytes(b"half of one")
    load_model(str(file), device="cpu")
    assert not torn.exists()


def test_a_damaged_conversion_says_what_to_delete(tmp_path: Path) -> None:
    folder = Path(local_folder(str(write_gguf(tmp_path / "tiny.gguf", small()))))
    (folder / "model.safetensors").write_bytes(b"not weights at all")
    with pytest.raises(FileNotFoundError, match=f"{folder}.*: delete the folder, it is converted again"):
        load_model(str(tmp_path / "tiny.gguf"))


def test_a_run_is_known_by_the_file_and_not_by_where_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_gguf(tmp_path / "tiny.Q8.gguf", small())
    config = composed(["model=local", f"model.path={file}"])
    assert models.name(config.model) == "tiny.Q8"
    (tmp_path / "moved").mkdir()
    moved = shutil.copy(file, tmp_path / "moved" / "tiny.Q8.gguf")
    monkeypatch.setenv("NGRAM_TRIE_CACHE", str(tmp_path / "other"))
    again = composed(["model=local", f"model.path={moved}"])
    assert models.identity(config.model) == models.identity(again.model) == fingerprint(str(file))
    assert resolve(config) == resolve(again)
    assert str(tmp_path) not in json.dumps(resolve(config))
    alone = composed(["model=local", f"model.path={tmp_path / 'moved'}"])
    assert models.identity(alone.model) == models.identity(config.model)
    assert models.name(alone.model) == "moved"
