"""The loaders meet a hub: models and data sets by id and revision, again without it, and all a first user can meet.

What is loaded comes from a stand-in (tests/hub_server.py) into caches of this module's own; the real hub is not asked.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
import torch
import yaml
from safetensors.torch import save_file
from support.hub_server import PROJECT, Client, HubServer, Repository
from support.tiny_bge import ROWS, save_tiny_bge
from transformers import AutoModelForCausalLM, LlamaConfig

from ngram_trie.targets.load import load_model, load_tokenizer

pytest.importorskip("datasets")
pytest.importorskip("pooch")

GSM8K = [{"question": f"What is {i} + {i}?", "answer": f"#### {2 * i}"} for i in range(5)]
MT_BENCH = [{"prompt": [f"Question {i}?", "And?"], "prompt_id": i, "reference": []} for i in range(4)]
HUMANEVAL = [{"task_id": f"HumanEval/{i}", "prompt": f"def f{i}():", "canonical_solution": "pass"} for i in range(3)]
HAGRID = [
    {"query": f"Who was {i}?", "query_id": i, "quotes": [{"idx": 1, "docid": "a", "text": f"{i} was."}], "answers": []}
    for i in range(4)
]
SPEC_BENCH = [
    {"question_id": 481 + i, "category": "rag", "turns": [f"A passage.\nQuestion {i}?"], "reference": [["an answer"]]}
    for i in range(3)
]
#: As TriviaQA's validation split: a question of Wikipedia's pages again with those of the web.
TRIVIAQA = [
    {
        "question": f"Who was {i}?",
        "question_id": f"tc_{i}",
        "question_source": "http://www.triviacountry.com/",
        "entity_pages": {"title": [], "wiki_context": []},
        "answer": {"value": f"Name {i}", "aliases": [f"Name {i}", f"N. {i}"], "normalized_aliases": [f"n {i}"]},
    }
    for i in (0, 1, 0)
]
PASSAGES = gzip.compress(
    "\n".join(["id\ttext\ttitle", *(f"{row['id']}\t{row['text']}\t{row['title']}" for row in ROWS[:3])]).encode()
    + b"\n",
    mtime=0,
)


def pinned(file: str, part: str | None = None) -> str:
    """The revision that the configuration asks for."""
    config = yaml.safe_load((PROJECT / "configs" / f"{file}.yaml").read_text())
    return (config[part] if part else config)["revision"]


def save_model(folder: Path, seed: int) -> Path:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=61, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    for file in (PROJECT / "data" / "embedded" / "model").glob("tokenizer*.json"):
        shutil.copy(file, folder)
    return folder


def lines(rows: list) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def published(folder: Path) -> dict[tuple[str, str], Repository]:
    """What the stand-in has: a model in two versions, the same in other states, and data sets."""
    model = save_model(folder / "model", 1)
    damaged = Path(shutil.copytree(model, folder / "damaged"))
    weights = damaged / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:3000])
    wordless = Path(shutil.copytree(model, folder / "wordless", ignore=shutil.ignore_patterns("tokenizer*")))

    gsm8k = folder / "gsm8k"
    configs = []
    for subset, count in (("main", 5), ("socratic", 3)):
        (gsm8k / subset).mkdir(parents=True)
        pd.DataFrame(GSM8K[:count]).to_parquet(gsm8k / subset / "test-00000-of-00001.parquet")
        configs.append({"config_name": subset, "data_files": [{"split": "test", "path": f"{subset}/test-*"}]})
    (gsm8k / "README.md").write_text(f"---\n{yaml.safe_dump({'configs': configs})}---\n")
    newer = Path(shutil.copytree(gsm8k, folder / "gsm8k_newer"))
    pd.DataFrame(GSM8K[:4]).to_parquet(newer / "main" / "test-00000-of-00001.parquet")

    # laid out as theirs are: one names no configuration and has a raw file beside, one has a configuration of its own
    (folder / "mt_bench" / "raw").mkdir(parents=True)
    (folder / "mt_bench" / "raw" / "question.jsonl").write_bytes(lines([{"turns": ["Another file"]}]))
    (folder / "mt_bench" / "data").mkdir()
    pd.DataFrame(MT_BENCH).to_parquet(folder / "mt_bench" / "data" / "train-00000-of-00001-1d0e12.parquet")
    (folder / "mt_bench" / "README.md").write_text("---\nlicense: apache-2.0\n---\n")
    (folder / "humaneval" / "openai_humaneval").mkdir(parents=True)
    pd.DataFrame(HUMANEVAL).to_parquet(folder / "humaneval" / "openai_humaneval" / "test-00000-of-00001.parquet")
    configs = [
        {"config_name": "openai_humaneval", "data_files": [{"split": "test", "path": "openai_humaneval/test-*"}]}
    ]
    (folder / "humaneval" / "README.md").write_text(f"---\n{yaml.safe_dump({'configs': configs})}---\n")

    hagrid = folder / "hagrid" / "hagrid-v1.0-en"
    hagrid.mkdir(parents=True)
    (hagrid / "dev.jsonl").write_bytes(lines(HAGRID))
    (hagrid.parent / "hagrid.py").write_text("raise SystemExit('a loading script was run')")
    other = Path(shutil.copytree(hagrid.parent, folder / "other"))
    (other / "hagrid-v1.0-en" / "dev.jsonl").write_bytes(b"<html>Sign in</html>")

    trivia_qa = folder / "trivia_qa"
    configs = []
    # that of `datasets`' first look is not the one that is asked for
    for subset in ("rc", "rc.nocontext"):
        (trivia_qa / subset).mkdir(parents=True)
        files = []
        for split in ("train", "validation"):
            rows = TRIVIAQA if subset == "rc.nocontext" else TRIVIAQA[:2]
            pd.DataFrame(rows).to_parquet(trivia_qa / subset / f"{split}-00000-of-00001.parquet")
            files.append({"split": split, "path": f"{subset}/{split}-*"})
        configs.append({"config_name": subset, "data_files": files})
    (trivia_qa / "README.md").write_text(f"---\n{yaml.safe_dump({'configs': configs})}---\n")
    newer_trivia_qa = Path(shutil.copytree(trivia_qa, folder / "trivia_qa_newer"))
    pd.DataFrame(TRIVIAQA[1:2]).to_parquet(newer_trivia_qa / "rc.nocontext" / "validation-00000-of-00001.parquet")
    (newer_trivia_qa / "rc.nocontext" / "train-00000-of-00001.parquet").write_bytes(b"PAR1 and no more")

    bge = save_tiny_bge(folder / "bge")
    (bge / "m3" / "onnx").mkdir()
    (bge / "m3" / "onnx" / "model.onnx").write_bytes(b"the weights again")
    bad_m3 = Path(shutil.copytree(bge / "m3", folder / "bad_m3"))
    (bad_m3 / "pytorch_model.bin").write_bytes((bad_m3 / "pytorch_model.bin").read_bytes()[:3000])
    bad_reranker = Path(shutil.copytree(bge / "reranker", folder / "bad_reranker"))
    (bad_reranker / "model.safetensors").write_bytes((bad_reranker / "model.safetensors").read_bytes()[:3000])

    heads = folder / "heads"
    heads.mkdir()
    torch.save({"0.0.linear.weight": torch.ones(2, 2)}, heads / "medusa_lm_head.pt")
    (heads / "config.json").write_text('{"medusa_num_heads": 1}')
    (heads / "README.md").write_text("not fetched")
    newer_heads = folder / "newer_heads"
    newer_heads.mkdir()
    save_file({"0.0.linear.weight": torch.zeros(2, 2)}, newer_heads / "medusa_lm_head.safetensors")

    return {
        ("model", "BAAI/bge-m3"): Repository({pinned("encoder/bge_m3"): bge / "m3"}),
        ("model", "BAAI/bge-reranker-v2-m3"): Repository({pinned("reranker/bge_reranker_v2_m3"): bge / "reranker"}),
        ("model", "some/closed"): Repository({"main": bge / "m3"}, "gated"),
        ("dataset", "some/closed"): Repository({"main": trivia_qa}, "gated"),
        ("model", "some/large"): Repository({"main": bge / "m3"}),
        ("model", "some/bad-m3"): Repository({"main": bad_m3}),
        ("model", "some/bad-reranker"): Repository({"main": bad_reranker}),
        ("model", "some/heads"): Repository({"main": newer_heads, "v1": heads}),
        ("dataset", "mandarjoshi/trivia_qa"): Repository(
            {"main": newer_trivia_qa, pinned("retrieval", "questions"): trivia_qa}
        ),
        ("model", "some/model"): Repository({"main": model, "v2": save_model(folder / "second", 2)}),
        ("model", "some/gated"): Repository({"main": model}, "gated"),
        ("model", "some/unavailable"): Repository({"main": model}, "unavailable"),
        ("model", "some/cut-short"): Repository({"main": model}, "cut short"),
        ("model", "some/damaged"): Repository({"main": damaged}),
        ("model", "some/wordless"): Repository({"main": wordless}),
        ("model", "some/other"): Repository({"main": model}),
        ("dataset", "openai/gsm8k"): Repository({"main": newer, pinned("dataset/gsm8k"): gsm8k}),
        ("dataset", "HuggingFaceH4/mt_bench_prompts"): Repository({"main": folder / "mt_bench"}),
        ("dataset", "openai/openai_humaneval"): Repository({pinned("dataset/humaneval"): folder / "humaneval"}),
        ("dataset", "some/gated"): Repository({"main": gsm8k}, "gated"),
        ("dataset", "miracl/hagrid"): Repository({"main": other, pinned("dataset/hagrid"): hagrid.parent}),
        ("dataset", "some/cut-short"): Repository({pinned("dataset/hagrid"): hagrid.parent}, "cut short"),
    }


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubServer]:
    files = {
        "/question.jsonl": lines(SPEC_BENCH),
        "/changed.jsonl": b"something else",
        "/psgs.tsv.gz": PASSAGES,
        "/psgs-changed.tsv.gz": PASSAGES[:-9],
    }
    with HubServer(published(tmp_path_factory.mktemp("published")), files) as server:
        yield server


@pytest.fixture(scope="module")
def clients(hub: HubServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Client]]:
    """Two processes that share their caches: one to fetch, one that starts with nothing in memory."""
    home = tmp_path_factory.mktemp("home")
    started = [Client(hub.url, home), Client(hub.url, home)]
    yield started
    for client in started:
        client.close()


@pytest.fixture
def client(clients: list[Client]) -> Client:
    return clients[0]


def spec_bench(hub: HubServer, file: str = "question.jsonl") -> dict[str, str]:
    checksum = hashlib.sha256(lines(SPEC_BENCH)).hexdigest()
    return {"url": f"{hub.url}/{file}", "checksum": f"sha256:{checksum}"}


@pytest.mark.slow
def test_what_was_loaded_once_loads_without_the_hub(hub: HubServer, clients: list[Client]) -> None:
    wanted = [
        ("model", ("some/model",), {}),
        ("model", ("some/model", "v2"), {}),
        ("tokenizer", ("some/model",), {}),
        ("dataset", ("gsm8k",), {}),
        ("dataset", ("gsm8k",), {"revision": None}),
        ("dataset", ("mt_bench",), {}),
        ("dataset", ("humaneval",), {"path": None}),  # not from the package
        ("dataset", ("hagrid",), {}),
        ("dataset", ("spec_bench",), spec_bench(hub)),
        ("dataset", ("spec_bench_rag",), spec_bench(hub)),
    ]
    first = [clients[0].ask(what, *args, **kwargs).get("loaded") for what, args, kwargs in wanted]
    assert None not in first
    assert first[0] != first[1]  # another revision has other weights
    assert first[2]
    assert first[3] == [f"What is {i} + {i}?" for i in range(3)]  # five in the pinned revision, two of them to warm up
    assert first[4] == [f"What is {i} + {i}?" for i in range(2)]  # four in its newest
    assert first[5] == ["Question 0?", "Question 1?"]
    assert first[6] == ["Complete the following Python function.\n\ndef f0():"]
    assert first[7] == ["0 was.\nWho was 0?", "1 was.\nWho was 1?"]  # of the pinned revision, by no script
    assert first[8] == first[9] == [row["turns"][0] for row in SPEC_BENCH]
    assert hub.requests.count("GET /question.jsonl") == 1  # which the two sets of that file share
    asked = len(hub.requests)
    for name in ("gsm8k", "humaneval", "hagrid"):
        clients[0].ask("dataset", name, path=None)
    assert len(hub.requests) == asked  # what is pinned and in the cache needs no look at the hub
    hub.__exit__()
    try:
        again = [clients[1].ask(what, *args, **kwargs).get("loaded") for what, args, kwargs in wanted]
        never = [
            clients[1].ask("model", "some/other")["error"],
            clients[1].ask("tokenizer", "some/other")["error"],
            clients[1].ask("dataset", "gsm8k", hub="some/other")["error"],
            clients[1].ask("dataset", "hagrid", split="train")["error"],
            clients[1].ask("dataset", "spec_bench", **spec_bench(hub) | {"checksum": "md5:" + "0" * 32})["error"],
        ]
    finally:
        hub.__enter__()
    assert again == first
    reason = f"cannot be loaded: no network: {hub.url} cannot be reached, and it is not in the cache; or give a"
    copy = "dataset.path=FILE, in an experiment datasets.{0}.path=FILE"
    assert never[0] == f"model 'some/other' {reason} folder with its files: model.path=FOLDER"
    assert never[1] == f"the tokenizer of {never[0]}"
    assert never[2] == (
        f"dataset gsm8k: some/other {reason} copy from https://huggingface.co/datasets/some/other: "
        + copy.format("gsm8k")
    )
    assert never[3] == (
        f"dataset hagrid: hagrid-v1.0-en/train.jsonl of miracl/hagrid {reason} copy from "
        f"https://huggingface.co/datasets/miracl/hagrid/tree/{pinned('dataset/hagrid')}: " + copy.format("hagrid")
    )
    assert never[4].startswith(f"dataset spec_bench: {hub.url}/question.jsonl cannot be loaded: no network: 127.0.0.1:")
    assert never[4].endswith(f"; or give a copy: {copy.format('spec_bench')}")


@pytest.mark.parametrize("what", ["model", "tokenizer"])
@pytest.mark.parametrize(
    ("repository", "revision", "token", "reason"),
    [
        (
            "some/gated",
            None,
            "",
            "it is gated and no token was given: accept the licence at https://huggingface.co/some/gated, "
            "then `hf auth login` or set HF_TOKEN",
        ),
        (
            "some/gated",
            None,
            "stranger",
            "it is gated and the token in use has no access to it: accept the licence at "
            "https://huggingface.co/some/gated, then `hf auth login` or set HF_TOKEN",
        ),
        (
            "some/model",
            "v3",
            "",
            "it has no revision 'v3'; there are those at https://huggingface.co/some/model/commits/main, and null is "
            "its newest",
        ),
        (
            "some/modle",
            None,
            "",
            "it is no folder, and the hub has no such model or it is private: check the id at "
            "https://huggingface.co/some/modle; if it is private, `hf auth login` or set HF_TOKEN",
        ),
        ("neither/a/path", None, "", "it is neither a folder nor a hub id (OWNER/NAME)"),
        (
            "some/other",
            None,
            "expired",
            "the token in use is not valid or has no access: `hf auth login` or set HF_TOKEN",
        ),
        ("some/unavailable", None, "", "{hub} answered 503: try again later"),
        ("some/cut-short", None, "", "the download was cut short: run the same command again"),
    ],
)
def test_a_model_that_the_hub_does_not_give(
    hub: HubServer, client: Client, what: str, repository: str, revision: str | None, token: str, reason: str
) -> None:
    assert client.ask(what, repository, revision, token=token)["error"] == (
        "the tokenizer of " * (what == "tokenizer") + f"model '{repository}' cannot be loaded: "
        f"{reason.format(hub=hub.url)}; or give a folder with its files: model.path=FOLDER"
    )


def test_a_token_with_access_opens_a_gated_model(client: Client) -> None:
    assert "loaded" in client.ask("model", "some/gated", token="good")


def test_a_model_that_came_and_cannot_be_used(client: Client) -> None:
    error = client.ask("model", "some/damaged")["error"]
    assert error.startswith(
        "model 'some/damaged' cannot be loaded: its weights are cut short, damaged, or not only tensors ("
    )
    assert "fetch them again, after deleting models--some--damaged in " in error and "\n" not in error
    assert "loaded" in client.ask("model", "some/wordless")
    assert client.ask("tokenizer", "some/wordless")["error"] == (
        "the tokenizer of model 'some/wordless' cannot be loaded: there is no tokenizer.json, and no tokenizer.model "
        "that can be read: take them from the original model"
    )


FULL = "cannot be loaded: the disk is full: make room, or set {0} to a folder on another disk; or give a"
SNAPSHOT = "folder with a copy of its snapshot"
COPY_OF_QUESTIONS = "copy from https://huggingface.co/datasets/mandarjoshi/trivia_qa: questions.path=FILE"
COPY = "copy{0}: dataset.path=FILE, in an experiment datasets.{1}.path=FILE"


@pytest.mark.parametrize(
    ("what", "names", "fields", "error"),
    [
        ("model", ["some/other"], {}, "model 'some/other' {home} folder with its files: model.path=FOLDER"),
        ("encoder", [], {"path": "some/large", "revision": "main"},
         f"encoder: encoder.path=some/large {{home}} {SNAPSHOT}: encoder.path=FOLDER"),
        ("reranker", [], {"path": "some/large", "revision": "main"},
         f"reranker: reranker.path=some/large {{home}} {SNAPSHOT}: reranker.path=FOLDER"),
        ("weights", ["some/large"], {}, "weights 'some/large' {home} folder with them"),
        ("questions", [], {"subset": "rc"},
         f"questions: rc/validation-* of mandarjoshi/trivia_qa {{home}} {COPY_OF_QUESTIONS}"),
        ("dataset", ["hagrid"], {"revision": "main"},
         "dataset hagrid: hagrid-v1.0-en/dev.jsonl of miracl/hagrid {home} "
         + COPY.format(" from https://huggingface.co/datasets/miracl/hagrid/tree/main", "hagrid")),
        ("dataset", ["spec_bench"], {"url": "{hub}/question.jsonl", "checksum": "md5:" + "1" * 32},
         "dataset spec_bench: {hub}/question.jsonl {data} " + COPY.format("", "spec_bench")),
        ("corpus", [], {"url": "{hub}/psgs.tsv.gz", "md5": "1" * 32},
         "corpus: {hub}/psgs.tsv.gz {data} copy: corpus=file corpus.path=FILE"),
    ],
)  # fmt: skip
def test_a_full_disk_is_named(
    hub: HubServer, client: Client, what: str, names: list[str], fields: dict[str, str], error: str
) -> None:
    words = {"hub": hub.url, "home": FULL.format("HF_HOME"), "data": FULL.format("NGRAM_TRIE_DATA")}
    fields = {name: value.format(**words) for name, value in fields.items()}
    assert client.ask(what, *names, **fields, full=True)["error"] == error.format(**words)


NO_TOKEN, NO_ACCESS = "no token was given", "the token in use has no access to it"
LOG_IN = "then `hf auth login` or set HF_TOKEN"
GSM8K_PAGE, HAGRID_PAGE = (f"https://huggingface.co/datasets/{name}" for name in ("openai/gsm8k", "miracl/hagrid"))
SOME = "https://huggingface.co/datasets/some"


@pytest.mark.parametrize(
    ("name", "fields", "token", "said"),
    [
        *(
            (
                "gsm8k",
                {"hub": "some/gated", "revision": None},
                token,
                f"some/gated cannot be loaded: it is gated and {known}: accept the licence at {SOME}/gated, {LOG_IN}; "
                f"or give a copy from {SOME}/gated",
            )
            for token, known in (("", NO_TOKEN), ("stranger", NO_ACCESS))
        ),
        (
            "gsm8k",
            {"hub": "some/none"},
            "",
            f"some/none cannot be loaded: the hub has no such dataset or it is private: check the id at {SOME}/none; "
            f"if it is private, `hf auth login` or set HF_TOKEN; or give a copy from {SOME}/none",
        ),
        (
            "gsm8k",
            {"revision": "v3"},
            "",
            f"openai/gsm8k cannot be loaded: it has no revision 'v3'; there are those at {GSM8K_PAGE}/commits/main, "
            f"and null is its newest; or give a copy from {GSM8K_PAGE}",
        ),
        (
            "gsm8k",
            {"subset": "mian"},
            "",
            "openai/gsm8k cannot be loaded: BuilderConfig 'mian' not found. Available: ['main', 'socratic']; "
            f"or give a copy from {GSM8K_PAGE}",
        ),
        (
            "gsm8k",
            {"split": "dev"},
            "",
            """openai/gsm8k cannot be loaded: Unknown split "dev". Should be one of ['test'].; """
            f"or give a copy from {GSM8K_PAGE}",
        ),
        (
            "hagrid",
            {"split": "train"},
            "",
            "hagrid-v1.0-en/train.jsonl of miracl/hagrid cannot be loaded: it has no such file: see "
            f"{HAGRID_PAGE}/tree/{pinned('dataset/hagrid')}; "
            f"or give a copy from {HAGRID_PAGE}/tree/{pinned('dataset/hagrid')}",
        ),
        (
            "hagrid",
            {"hub": "some/cut-short"},
            "",
            "hagrid-v1.0-en/dev.jsonl of some/cut-short cannot be loaded: the download was cut short: run the same "
            f"command again; or give a copy from {SOME}/cut-short/tree/{pinned('dataset/hagrid')}",
        ),
        (
            "hagrid",
            {"hub": "some/gated"},
            "",
            f"hagrid-v1.0-en/dev.jsonl of some/gated cannot be loaded: it is gated and {NO_TOKEN}: accept the licence "
            f"at {SOME}/gated, {LOG_IN}; or give a copy from {SOME}/gated/tree/{pinned('dataset/hagrid')}",
        ),
    ],
)
def test_a_data_set_that_the_hub_does_not_give(client: Client, name: str, fields: dict, token: str, said: str) -> None:
    remedy = f"dataset.path=FILE, in an experiment datasets.{name}.path=FILE"
    assert client.ask("dataset", name, token=token, **fields)["error"] == f"dataset {name}: {said}: {remedy}"


def test_a_data_set_that_came_and_cannot_be_used(client: Client) -> None:
    assert client.ask("dataset", "gsm8k", prompt="turns")["error"] == (
        "dataset gsm8k: question 1 has no field 'turns'; it has question, answer: another file?"
    )
    error = client.ask("dataset", "hagrid", revision="main")["error"]
    assert error.startswith("dataset hagrid: ") and "\n" not in error
    assert error.endswith("dev.jsonl: not readable as jsonl (Expecting value: line 1 column 1 (char 0))")


def test_a_download_must_be_the_file_that_is_meant(hub: HubServer, client: Client) -> None:
    error = client.ask("dataset", "spec_bench", **spec_bench(hub, "changed.jsonl"))["error"]
    found = hashlib.sha256(b"something else").hexdigest()
    assert error == (
        f"dataset spec_bench: {hub.url}/changed.jsonl cannot be loaded: its checksum is {found}, not "
        f"{spec_bench(hub)['checksum']}: a damaged download, or the file has changed; try again; or give a copy: "
        "dataset.path=FILE, in an experiment datasets.spec_bench.path=FILE"
    )
    assert client.ask("dataset", "spec_bench", **spec_bench(hub, "missing.jsonl"))["error"] == (
        f"dataset spec_bench: {hub.url}/missing.jsonl cannot be loaded: the server answered 401; or give a copy: "
        "dataset.path=FILE, in an experiment datasets.spec_bench.path=FILE"
    )


def passages(hub: HubServer, file: str = "psgs.tsv.gz") -> dict[str, str]:
    return {"url": f"{hub.url}/{file}", "md5": hashlib.md5(PASSAGES).hexdigest()}


@pytest.mark.slow
def test_what_retrieval_and_heads_fetch_loads_without_the_hub(hub: HubServer, clients: list[Client]) -> None:
    wanted = [
        ("questions", (), {}),
        ("questions", (), {"revision": None}),
        ("encoder", (), {}),
        ("reranker", (), {}),
        ("weights", ("some/heads",), {}),
        ("weights", ("some/heads", "v1"), {}),
        ("corpus", (), passages(hub)),
    ]
    before = len(hub.requests)
    first = [clients[0].ask(what, *args, **kwargs) for what, args, kwargs in wanted]
    assert not [answer for answer in first if "error" in answer]
    loaded = [answer["loaded"] for answer in first]
    who = [[f"tc_{i}", f"Who was {i}?", [f"Name {i}", f"N. {i}", f"n {i}"]] for i in range(2)]
    assert loaded[0] == who and loaded[1] == who[1:]  # the second is of its newest revision
    assert len(loaded[2][0]) == 32 and len(loaded[3]) == 1
    assert loaded[4] == {"0.0.linear.weight": 0.0} and loaded[5] == {"0.0.linear.weight": 4.0}
    assert loaded[6] == [f"{row['title']}\n{row['text']}" for row in ROWS[:3]]
    # no other split or subset, no weights in other formats, no more than weights of heads
    fetched = [
        line.rpartition("/")[2] for line in hub.requests[before:] if line.startswith("GET") and "resolve" in line
    ]
    assert "validation-00000-of-00001.parquet" in fetched and "medusa_lm_head.pt" in fetched
    assert not {"train-00000-of-00001.parquet", "README.md", "model.onnx"} & set(fetched)
    assert not [line for line in hub.requests[before:] if "/rc/" in line]
    asked = len(hub.requests)
    for what, args, kwargs in (wanted[0], wanted[3], wanted[6]):
        clients[0].ask(what, *args, **kwargs)
    assert len(hub.requests) == asked  # what is pinned and in the cache needs no look at the hub
    hub.__exit__()
    try:
        again = [clients[1].ask(what, *args, **kwargs).get("loaded") for what, args, kwargs in wanted]
        never = [
            clients[1].ask("questions", split="train")["error"],
            clients[1].ask("encoder", path="some/never", revision=None)["error"],
            clients[1].ask("reranker", path="some/never", revision=None)["error"],
            clients[1].ask("weights", "some/never")["error"],
            clients[1].ask("corpus", **passages(hub) | {"md5": "0" * 32})["error"],
        ]
        folder = clients[1].home / "data"
    finally:
        hub.__enter__()
    assert again == loaded
    reason = f"cannot be loaded: no network: {hub.url} cannot be reached, and it is not in the cache; or give a"
    assert never == [
        f"questions: rc.nocontext/train-* of mandarjoshi/trivia_qa {reason} {COPY_OF_QUESTIONS}",
        f"encoder: encoder.path=some/never {reason} {SNAPSHOT}: encoder.path=FOLDER",
        f"reranker: reranker.path=some/never {reason} {SNAPSHOT}: reranker.path=FOLDER",
        f"weights 'some/never' {reason} folder with them",
        f"corpus: {hub.url}/psgs.tsv.gz cannot be loaded: no network: 127.0.0.1:{hub.port} cannot be reached, and it "
        f"is not in {folder}; or give a copy: corpus=file corpus.path=FILE",
    ]


GATED = "it is gated and {0}: accept the licence at https://huggingface.co/{1}, then `hf auth login` or set HF_TOKEN"
REFUSED = [
    ("some/closed", None, "", GATED.format("no token was given", "{page}")),
    ("some/closed", None, "stranger", GATED.format("the token in use has no access to it", "{page}")),
    (
        "{own}",
        "v3",
        "",
        "it has no revision 'v3'; there are those at https://huggingface.co/{page}/commits/main, and null is its "
        "newest",
    ),
    (
        "some/none",
        None,
        "",
        "{it} has no such {kind} or it is private: check the id at https://huggingface.co/{page}; if it is private, "
        "`hf auth login` or set HF_TOKEN",
    ),
    ("{own}", "v1", "expired", "the token in use is not valid or has no access: `hf auth login` or set HF_TOKEN"),
]


@pytest.mark.parametrize(("hub_id", "revision", "token", "reason"), REFUSED)
@pytest.mark.parametrize("what", ["questions", "encoder", "reranker", "weights"])
def test_what_retrieval_and_heads_are_refused(
    client: Client, what: str, hub_id: str, revision: str | None, token: str, reason: str
) -> None:
    own = "mandarjoshi/trivia_qa" if what == "questions" else "some/model"
    hub_id = hub_id.format(own=own)
    if what == "questions":
        reason = reason.format(it="the hub", kind="dataset", page=f"datasets/{hub_id}")
        copy = COPY_OF_QUESTIONS.replace("mandarjoshi/trivia_qa", hub_id)
        error = f"questions: rc.nocontext/validation-* of {hub_id} cannot be loaded: {reason}; or give a {copy}"
        assert client.ask(what, hub=hub_id, revision=revision, token=token) == {"error": error}
        return
    reason = reason.format(it="it is no folder, and the hub", kind="model", page=hub_id)
    if what == "weights":
        error = f"weights '{hub_id}' cannot be loaded: {reason}; or give a folder with them"
        assert client.ask(what, hub_id, revision, token=token) == {"error": error}
        return
    error = f"{what}: {what}.path={hub_id} cannot be loaded: {reason}; or give a {SNAPSHOT}: {what}.path=FOLDER"
    assert client.ask(what, path=hub_id, revision=revision, token=token) == {"error": error}


def test_what_retrieval_and_heads_fetched_damaged(hub: HubServer, client: Client) -> None:
    for what, name in (("encoder", "bad-m3"), ("reranker", "bad-reranker")):
        error = client.ask(what, path=f"some/{name}", revision=None)["error"]
        folder = client.home / "hf" / "hub" / f"models--some--{name}"
        assert error.startswith(f"{what}: {what}.path={folder}/snapshots/") and "\n" not in error
        assert error.endswith(f"): if a file is missing, cut short or damaged, fetch it again, after deleting {folder}")
    error = client.ask("weights", "some/damaged")["error"]
    assert "model.safetensors: not readable as weights: " in error and "\n" not in error
    error = client.ask("questions", split="train", revision="main")["error"]
    assert "train-00000-of-00001.parquet: not readable as parquet (" in error and "\n" not in error
    assert client.ask("questions", split="dev")["error"] == (
        "questions: rc.nocontext/dev-* of mandarjoshi/trivia_qa cannot be loaded: it has no such file: see "
        f"https://huggingface.co/datasets/mandarjoshi/trivia_qa/tree/{pinned('retrieval', 'questions')}; "
        f"or give a {COPY_OF_QUESTIONS}"
    )
    otherwise = "or give a copy: corpus=file corpus.path=FILE"
    changed, found = passages(hub, "psgs-changed.tsv.gz"), hashlib.md5(PASSAGES[:-9]).hexdigest()
    assert client.ask("corpus", **changed)["error"] == (
        f"corpus: {changed['url']} cannot be loaded: its checksum is {found}, not md5:{changed['md5']}: a damaged "
        f"download, or the file has changed; try again; {otherwise}"
    )
    missing = passages(hub, "missing.tsv.gz")
    assert client.ask("corpus", **missing)["error"] == (
        f"corpus: {missing['url']} cannot be loaded: the server answered 401; {otherwise}"
    )


def test_a_folder_that_holds_no_model(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(FileNotFoundError, match=r"^model '.*empty' cannot be loaded: there is no config\.json in the"):
        load_model(str(empty))
    with pytest.raises(FileNotFoundError, match=r"^the tokenizer of model '.*empty' cannot be loaded: there is no tok"):
        load_tokenizer(str(empty))
    folder = save_model(tmp_path / "model", 1)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])
    damaged = r"cannot be loaded: its weights are cut short, damaged, or not only tensors \(.*\): fetch them again$"
    with pytest.raises(FileNotFoundError, match=damaged):
        load_model(str(folder))
    weights.unlink()
    with pytest.raises(FileNotFoundError, match=r"no file named .*safetensors"):
        load_model(str(folder))
    # PyTorch's own format, which older repositories have
    torch.save({"lm_head.weight": torch.zeros(61, 16)}, folder / "pytorch_model.bin")
    content = (folder / "pytorch_model.bin").read_bytes()
    for length in (0, 3, 100, len(content) // 2, len(content) - 30):
        (folder / "pytorch_model.bin").write_bytes(content[:length])
        with pytest.raises(FileNotFoundError, match=damaged):
            load_model(str(folder))
