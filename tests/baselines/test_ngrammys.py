"""N-Grammys: tables against brute force on tiny models, drafters by hand, identity with plain greedy decoding."""

from __future__ import annotations

import functools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from support.tables import SMALL
from support.tiny import VOCABULARY, tiny_target
from transformers import Gemma3Config

from ngram_trie.baselines.context_ngrams import ContextNgrams
from ngram_trie.baselines.ngrammys import MixedNgrams, ModelBigram, ModelUnigram, TableDrafter
from ngram_trie.bench.live import bind_methods, part_hashes, split_missing
from ngram_trie.cli.app import invoke
from ngram_trie.decoding import Stop
from ngram_trie.drafters import NoDraft
from ngram_trie.prompt import Prompt
from ngram_trie.store.files import fingerprint
from ngram_trie.store.ngram_tables import NgramTables
from ngram_trie.targets import model_ngrams
from ngram_trie.targets.model import TargetModel
from ngram_trie.targets.model_ngrams import build_tables, leading_bos, successors, unigram_rankings
from ngram_trie.targets.rows import RowsNetwork
from scripts.build_ngram_tables import main

STOP = Stop(max_new_tokens=24)


@functools.cache
def tables_of(family: str, bos: int | None = 1, k: int = 4, w: int = 3) -> NgramTables:
    return build_tables(tiny_target(family).model, "", k, w, bos, rows=30)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tables_of("llama").write(tmp_path / "tables")
    return tmp_path / "tables"


# 4 tokens, 2 successors, rows of 3: 0 -> 1 2 3 | 2 3 0, 1 -> 2 0 0 | 3 1 1, 2 -> 3 1 2 | 0 0 0, 3 -> 0 3 3 | 1 2 2


#: The target of recorded answers.
UNKNOWN = SimpleNamespace(model=None)


def rows_of(drafter: TableDrafter, text: list[int]) -> list[list[int]]:
    return drafter.rows(np.array(text, np.int64))[0].tolist()


def test_rows_by_hand(tmp_path: Path) -> None:
    SMALL.write(tmp_path)
    where = str(tmp_path)
    assert rows_of(ModelUnigram(tables=where, k=3), [0, 1]) == [[1], [2], [3]]
    assert rows_of(ModelUnigram(tables=where, k=3, ranking="text"), [0, 1]) == [[2], [0], [3]]
    assert rows_of(ModelBigram(tables=where, k=2), [0, 1]) == [[2], [3]]
    assert rows_of(ModelBigram(tables=where, k=2, w=3), [0, 1]) == [[2, 0, 0], [3, 1, 1]]
    assert rows_of(ModelBigram(tables=where, k=1, w=2), [3]) == [[0, 3]]
    # 2's best successor is 3, 3's is 0, 0's is 1: a chain of bests, as long as one likes
    assert rows_of(ModelBigram(tables=where, k=2, w=5, extend="bigram"), [0, 1]) == [[2, 3, 0, 1, 2], [3, 0, 1, 2, 3]]


def test_mixed_rows_come_from_the_context_first(tmp_path: Path) -> None:
    SMALL.write(tmp_path)
    mixed = functools.partial(MixedNgrams, tables=str(tmp_path), w=2)
    text = [1, 0, 3, 1, 0, 3, 1, 2, 2, 1]  # 1 was followed by 0 3 twice and by 2 2 once
    assert rows_of(mixed(k=1), text) == [[0, 3]]
    assert rows_of(mixed(k=2), text) == [[0, 3], [2, 2]]
    assert rows_of(mixed(k=2), [1, 2, 2, 1]) == [[2, 2], [2, 0]]
    assert rows_of(mixed(k=2), [0, 1]) == [[2, 0], [3, 1]]
    drafter = mixed(k=2)
    drafter.start(Prompt(np.array([1, 2, 2, 1])))
    assert drafter.propose(99).tokens.tolist() == [1, 2, 2, 0]  # the rows 2 2 and 2 0 share a node
    assert drafter.propose(3).tokens.tolist() == [1, 2, 2]  # of so few nodes it takes one row


def test_smaller_tables_than_asked_for_are_named(tmp_path: Path) -> None:
    SMALL.write(tmp_path)
    with pytest.raises(ValueError, match=r"k=3: .* holds 2 successors"):
        ModelBigram(tables=str(tmp_path), k=3).bind(UNKNOWN)
    with pytest.raises(ValueError, match=r"w=4: .* rows of 3 tokens; extend=bigram"):
        ModelBigram(tables=str(tmp_path), k=2, w=4).bind(UNKNOWN)


@pytest.mark.parametrize(("family", "bos"), [("llama", None), ("qwen2", 1)])
def test_tables_equal_a_pass_token_by_token(family: str, bos: int | None) -> None:
    model, tables = tiny_target(family).model, tables_of(family, bos)
    before = [] if bos is None else [bos]

    def logits(ids: list[int]) -> torch.Tensor:
        with torch.inference_mode():
            return model(input_ids=torch.tensor([[*before, *ids]]), use_cache=False).logits[0, -1]

    for token in range(VOCABULARY):
        best = logits([token]).topk(4).indices.tolist()
        assert tables.bigram[token].tolist() == best
        for row, first in enumerate(best):
            text = [token, first]
            for _ in range(2):
                text.append(int(logits(text).argmax()))
            assert tables.extended[token, row].tolist() == text[2:]


def test_the_unigram_ranks_as_the_text_and_as_the_code_say() -> None:
    model = tiny_target("llama").model
    inputs = model.get_input_embeddings().weight.detach().double().numpy()
    outputs = model.get_output_embeddings().weight.detach().double().numpy()
    mean = outputs.mean(0)
    # ||u||_V by its definition: the sum over all tokens of the squared inner products with their input embeddings
    distances = [np.sqrt(sum(((u - mean) @ v) ** 2 for v in inputs)) for u in outputs]
    products = [sum((mean @ v) * (u @ v) for v in inputs) for u in outputs]
    assert unigram_rankings(model).tolist() == [np.argsort(distances).tolist(), np.argsort(products).tolist()]
    for ranking in tables_of("llama").unigram:
        assert sorted(ranking.tolist()) == list(range(VOCABULARY))


def test_tables_survive_writing_and_reading(tmp_path: Path) -> None:
    tables = tables_of("llama")
    tables.write(tmp_path / "t")
    opened = NgramTables.open(tmp_path / "t")
    for name in ("unigram", "bigram", "extended"):
        assert (getattr(opened, name) == getattr(tables, name)).all()
    assert (opened.model, opened.bos, opened.k, opened.w) == ("", True, 4, 3)
    one = build_tables(tiny_target("llama").model, "", 2, 1, None)
    one.write(tmp_path / "t")  # replaces; a bigram without extension
    assert NgramTables.open(tmp_path / "t").extended.shape == (VOCABULARY, 2, 0)
    assert opened.bigram[0].tolist() == tables.bigram[0].tolist()  # what was mapped before stays readable


@pytest.mark.parametrize(("size", "bytes_a_token"), [(1 << 16, 2), ((1 << 16) + 1, 4)])
def test_every_token_of_a_vocabulary_has_a_number(size: int, bytes_a_token: int, tmp_path: Path) -> None:
    order = np.arange(size, dtype=np.int32)
    shares = np.full((size, 1), 0.5, np.float32)
    NgramTables("", True, np.stack([order, order]), order[::-1, None], order[:, None, None], shares).write(tmp_path)
    opened = NgramTables.open(tmp_path)
    assert (tmp_path / "bigram.bin").stat().st_size == bytes_a_token * size
    assert (opened.bigram[:, 0] == order[::-1]).all() and (opened.extended[:, 0, 0] == order).all()
    assert opened.greedy(3, 2).tolist() == [[size - 4, 3]] and opened.chain(3, 3).tolist() == [[size - 4, 3, size - 4]]


def test_an_interrupted_build_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, calls = tiny_target("llama").model, []
    whole = build_tables(model, "a", 4, 3, 1, rows=30)

    def counted(model: Any, tokens: torch.Tensor, *args: Any) -> Any:
        calls.append(int(tokens[0]))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return successors(model, tokens, *args)

    monkeypatch.setattr(model_ngrams, "successors", counted)
    with pytest.raises(KeyboardInterrupt):
        build_tables(model, "a", 4, 3, 1, rows=30, kept=tmp_path)
    again = build_tables(model, "a", 4, 3, 1, rows=30, kept=tmp_path)
    assert calls[:4] == [0, 7, 14, 14]  # the third batch again, and no other
    for name in ("bigram", "extended", "shares"):
        assert (getattr(again, name) == getattr(whole, name)).all()
    done = len(calls)
    build_tables(model, "another", 4, 3, 1, rows=30, kept=tmp_path)
    assert calls[done] == 0  # nothing is taken from another model's build


def test_missing_and_damaged_tables_are_named(tmp_path: Path) -> None:
    drafter = ModelBigram(tables=str(tmp_path / "none"))
    kept, missing = split_missing({"bigram": drafter, "vanilla": NoDraft()})
    assert list(kept) == ["vanilla"] and "python -m scripts.build_ngram_tables" in missing["bigram"]
    with pytest.raises(FileNotFoundError, match="no n-gram tables there; build one: "):
        drafter.bind(UNKNOWN)
    SMALL.write(tmp_path / "t")
    assert part_hashes({"bigram": ModelBigram(tables=str(tmp_path / "t"))})["bigram"]


def test_tables_of_another_model_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tiny_target("llama")
    target.model.save_pretrained(tmp_path / "model")
    monkeypatch.setattr(target.model, "name_or_path", str(tmp_path / "model"))
    build_tables(target.model, fingerprint(str(tmp_path / "model")), 2, 1).write(tmp_path / "fits")
    ModelBigram(tables=str(tmp_path / "fits"), k=2).bind(target)
    sees = SimpleNamespace(config=Gemma3Config(text_config={"vocab_size": 4}), name_or_path="")
    SMALL.check(sees, tmp_path)  # its vocabulary stands in the part that reads text
    build_tables(target.model, "another", 2, 1).write(tmp_path / "other")
    with pytest.raises(ValueError, match=r"made with another model than .*; give its own or build them"):
        ModelBigram(tables=str(tmp_path / "other"), k=2).bind(target)


def test_rows_are_verified_as_rows_beside_methods_that_verify_trees(folder: Path) -> None:
    """`verify` of a method, not of the engine: its answers, steps and tree sizes are those of the tree."""
    model = tiny_target("llama").model
    made: list[str] = []

    def load(path: None, revision: None, verify: str) -> TargetModel:
        made.append(verify)
        return TargetModel(model, 64, network=RowsNetwork(model))

    settings: dict[str, Any] = {"tables": str(folder), "k": 4, "w": 3}
    methods: dict[str, Any] = {
        "vanilla": NoDraft(),
        "mixed": MixedNgrams(**settings),
        "mixed_rows": MixedNgrams(verify="rows", **settings),
        "context_rows": ContextNgrams(verify="rows"),
    }
    decoders, failures = bind_methods(methods, tiny_target("llama"), load)
    assert not failures
    assert made == ["rows"]  # one for both, since each holds a cache for every row
    assert isinstance(decoders["mixed_rows"].target.network, RowsNetwork) and decoders["mixed"].target is tiny_target(
        "llama"
    )
    # compared with plain steps of the same modules: those of a network for speed take a part of their time
    assert decoders["mixed_rows"].baseline == "mixed_rows_vanilla" and decoders["mixed"].baseline == "vanilla"
    assert decoders["mixed_rows_vanilla"].target is decoders["mixed_rows"].target
    for ids in ([5], [7, 8, 9, 7, 8], list(range(3, 40)) * 2):
        answers = {name: each.generate(Prompt(np.array(ids)), STOP) for name, each in decoders.items()}
        assert all(answer.output_ids == answers["vanilla"].output_ids for answer in answers.values())
        assert answers["mixed_rows"].accept_lengths == answers["mixed"].accept_lengths
        assert answers["mixed_rows"].tree_sizes == answers["mixed"].tree_sizes


def test_the_script_builds_what_the_drafter_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=r"MODEL: smolm2_135m: did you mean smollm2_135m"):
        invoke(main, ["smolm2_135m"])
    with pytest.raises(SystemExit, match="--k: "):
        invoke(main, ["tiny", "--k", "0"])
    invoke(main, ["tiny", "--k", "2", "--w", "2", "--rows", "512", "--output", str(tmp_path / "t")])
    said = capsys.readouterr().out
    assert "2 rows of 2, with BOS" in said and "9,216 tokens to read; with --w 1, the bigram alone, 3,072" in said
    tables = NgramTables.open(tmp_path / "t")
    assert tables.bigram.shape == (3072, 2) and not (tmp_path / "t" / "unfinished").exists()


def test_bos_is_asked_of_the_chat_template() -> None:
    from ngram_trie.targets.load import load_tokenizer

    tokenizer = load_tokenizer("data/tiny/model")
    assert leading_bos(tokenizer) == tokenizer.bos_token_id
    tokenizer.chat_template = "{{ messages[0]['content'] }}"
    assert leading_bos(tokenizer) is None
