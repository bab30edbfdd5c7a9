"""Every repository and file that the paper's Tables 1 and 4 need, under its real name and in its real layout, with tiny
random weights and a few questions of our own.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import sentencepiece
import torch
from omegaconf import OmegaConf
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, MistralConfig, Phi3Config, PreTrainedTokenizerFast, Qwen2Config

from ngram_trie.store.files import CONFIGS, PROJECT
from support.checkpoints import SIZE, WIDTH, hydra_folder, medusa_folder
from support.datasets import write_lines
from support.hub_server import HubServer, Repository
from support.tiny_bge import CITIES, RIVERS, save_tiny_bge

#: Of the tokenizers that are trained here.
PIECES = 600
SPACE_MASK = 32002
SPEC_BENCH = "raw.githubusercontent.com/hemingkx/Spec-Bench/main/data/spec_bench/question.jsonl"
PASSAGES = "dl.fbaipublicfiles.com/dpr/wikipedia_split/psgs_w100.tsv.gz"
SHAREGPT = "Aeala/ShareGPT_Vicuna_unfiltered"
TEXTS = [
    f"{city} lies on the river {river}. Boats go down the {river} every day, and the bridges of {city} are old. "
    f"In {1900 + number} the people of {city} built the {number + 2}th bridge over the river {river}."
    for number, (city, river) in enumerate(zip(CITIES, RIVERS, strict=True))
]
CHAT = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}<|assistant|>"


def revision_of(file: str) -> str | None:
    """The commit that a configuration pins."""
    revision: str | None = OmegaConf.load(CONFIGS / file).revision
    return revision


def llama_weights(config: Any, vocabulary: int = PIECES) -> dict[str, torch.Tensor]:
    """Random weights of one architecture's state. Tokens from `vocabulary` on are never the likeliest."""
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config)
    state = {key: value.half() for key, value in model.state_dict().items()}
    state["lm_head.weight"] = state["lm_head.weight"].clone()
    state["lm_head.weight"][vocabulary:] = 0
    return state


def save_shards(folder: Path, state: Mapping[str, torch.Tensor], kinds: Iterable[str] = ("bin",)) -> None:
    """Weights in two shards with their index, of PyTorch's own format ("bin") or safetensors."""
    from safetensors.torch import save_file

    names = list(state)
    halves = names[: len(names) // 2], names[len(names) // 2 :]
    for kind in kinds:
        stem = "pytorch_model" if kind == "bin" else "model"
        suffix = "bin" if kind == "bin" else "safetensors"
        places = {}
        for number, part in enumerate(halves, 1):
            file = f"{stem}-0000{number}-of-00002.{suffix}"
            tensors = {name: state[name].contiguous() for name in part}
            if kind == "bin":
                torch.save(tensors, folder / file)
            else:
                save_file(tensors, folder / file, {"format": "pt"})
            places |= dict.fromkeys(part, file)
        size = sum(value.numel() * value.element_size() for value in state.values())
        index = {"metadata": {"total_size": size}, "weight_map": places}
        (folder / f"{stem}.{suffix}.index.json").write_text(json.dumps(index))


def shape(vocabulary: int = PIECES, **fields: Any) -> dict[str, Any]:
    return {
        "vocab_size": vocabulary,
        "hidden_size": SIZE,
        "intermediate_size": WIDTH,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "max_position_embeddings": 2048,
        "initializer_range": 0.3,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
        **fields,
    }


def save_config(folder: Path, config: Any, **fields: Any) -> None:
    about = config.to_dict() | {"architectures": [type(config).__name__.replace("Config", "ForCausalLM")]} | fields
    (folder / "config.json").write_text(json.dumps(about))
    (folder / "generation_config.json").write_text(
        json.dumps({"bos_token_id": 1, "eos_token_id": 2, "max_length": 4096})
    )


def sentencepiece_file(folder: Path) -> Path:
    """tokenizer.model as Llama's is made: BPE with bytes."""
    text = folder / "text.txt"
    text.write_text("\n".join([*TEXTS, *(PROJECT / "CONTRIBUTING.md").read_text().splitlines()]))
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(folder / "tokenizer"), model_type="bpe", vocab_size=PIECES,
        byte_fallback=True, character_coverage=1.0, minloglevel=2,
    )  # fmt: skip
    text.unlink()
    (folder / "tokenizer.vocab").unlink()
    return folder / "tokenizer.model"


def save_sentencepiece(folder: Path, model: Path, **fields: Any) -> None:
    shutil.copy(model, folder / "tokenizer.model")
    about = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(about | fields))
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    (folder / "special_tokens_map.json").write_text(json.dumps(names))


def save_fast(folder: Path, **fields: Any) -> None:
    """A tokenizer.json of bytes, with a chat template."""
    special = ["<unk>", "<s>", "</s>"]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=PIECES, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    fast.chat_template = CHAT
    fast.save_pretrained(folder)


def spec_bench_rows() -> list[dict[str, Any]]:
    """Questions of three of its categories, in its fields; the last one is for warming up."""
    rows: list[dict[str, Any]] = []
    for number, text in enumerate(TEXTS[:3]):
        rows.append({"category": "summarization", "turns": [f"Summarize: {text}"], "reference": [text]})
        passages = "\n".join(TEXTS[number : number + 5])
        rows.append({"category": "rag", "turns": [f"{passages}\nWhere is the {RIVERS[number]}?"], "reference": [["x"]]})
    rows.append({"category": "qa", "turns": [f"Where does the {RIVERS[0]} go?"], "reference": []})
    return [{"question_id": 100 + number} | row for number, row in enumerate(rows)]


class Layout:
    """The folders of a hub, below `root`, and the server that has them.

    Attributes:
        hub: the server, not started.
        settings: what a command needs because files and index are small: their digests, and sizes of the index.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.hub = HubServer()
        model = sentencepiece_file(root)
        self.vicuna("lmsys/vicuna-7b-v1.3", "model/vicuna_7b.yaml", model)
        self.vicuna("lmsys/vicuna-13b-v1.3", "model/vicuna_13b.yaml", model)
        self.repository("double7/vicuna-68m", "f35c45e548302e8edd0a31db7490b42ea2ddd109", self.small(model))
        self.repository("JackFram/llama-68m", "964a5d77df908b69f8d6476fb70e940425b04cb5", self.small(model))
        self.repository("AntMan/vicuna-v1.3-7b-space", "main", self.space(model))
        self.repository("FasterDecoding/medusa-vicuna-7b-v1.3", "82ac200bf7502419cb49a9e0adcbebe3d1d293f1", self.medusa)
        self.repository("ankner/hydra-vicuna-7b-v1.3", "main", self.hydra)
        self.llama2(model)
        fast: dict[str, tuple[str, Any, dict[str, Any]]] = {
            "llama3_8b_instruct": (
                "meta-llama/Meta-Llama-3-8B-Instruct", LlamaConfig, {"num_key_value_heads": 2, "vocabulary": 128_256},
            ),
            "qwen2_7b_instruct": (
                "Qwen/Qwen2-7B-Instruct", Qwen2Config, {"num_key_value_heads": 2, "vocabulary": 152_064},
            ),
            "mistral_7b_instruct": ("mistralai/Mistral-7B-Instruct-v0.2", MistralConfig, {"sliding_window": None}),
            "phi3_mini": (
                "microsoft/Phi-3-mini-4k-instruct", Phi3Config, {"sliding_window": 2047, "vocabulary": 32_064},
            ),
        }  # fmt: skip
        for name, (hub_id, kind, fields) in fast.items():
            self.repository(hub_id, revision_of(f"model/{name}.yaml"), self.fast(kind, fields))
        for hub_id in ("meta-llama/Llama-2-7b-chat-hf", fast["llama3_8b_instruct"][0], fast["mistral_7b_instruct"][0]):
            self.hub.repositories["model", hub_id].answer = "gated"
        self.retrieval()
        self.datasets()

    def repository(self, name: str, revision: str | None, fill: Callable[[Path], None], kind: str = "model") -> Path:
        """A repository whose files `fill` writes."""
        folder = self.root / kind / name
        folder.mkdir(parents=True)
        fill(folder)
        self.hub.repositories[kind, name] = Repository({revision or "main": folder})
        return folder

    def vicuna(self, name: str, config: str, model: Path) -> None:
        """.bin shards with rotary frequencies in them, as they were converted; SentencePiece alone; no template."""

        def fill(folder: Path) -> None:
            about = LlamaConfig(**shape())
            state = llama_weights(about)
            for layer in range(2):
                state[f"model.layers.{layer}.self_attn.rotary_emb.inv_freq"] = torch.ones(4)
            save_shards(folder, state)
            save_config(folder, about, torch_dtype="float16")
            save_sentencepiece(folder, model)

        self.repository(name, revision_of(config), fill)

    def small(self, model: Path) -> Callable[[Path], None]:
        def fill(folder: Path) -> None:
            about = LlamaConfig(**shape(num_hidden_layers=1))
            state = llama_weights(about)
            torch.save(state, folder / "pytorch_model.bin")
            save_config(folder, about)
            save_sentencepiece(folder, model)

        return fill

    def space(self, model: Path) -> Callable[[Path], None]:
        def fill(folder: Path) -> None:
            about = LlamaConfig(**shape(SPACE_MASK + 1))
            save_shards(folder, llama_weights(about))
            save_config(folder, about)
            save_sentencepiece(folder, model)

        return fill

    def medusa(self, folder: Path) -> None:
        medusa_folder(folder, vocabulary=PIECES)
        about = {"medusa_num_heads": 5, "medusa_num_layers": 1, "base_model_name_or_path": "lmsys/vicuna-7b-v1.3"}
        (folder / "config.json").write_text(json.dumps(about))

    def hydra(self, folder: Path) -> None:
        hydra_folder(folder, whole=True, norm=False, vocabulary=PIECES, keys=SIZE)
        about = {"hydra_num_heads": 4, "hydra_num_layers": 4, "hydra_head_arch": "prefix-mlp", "grounded_heads": True}
        (folder / "config.json").write_text(json.dumps(about))

    def llama2(self, model: Path) -> None:
        """Gated, with weights in both formats."""

        def fill(folder: Path) -> None:
            about = LlamaConfig(**shape(max_position_embeddings=4096))
            save_shards(folder, llama_weights(about), ("bin", "safetensors"))
            save_config(folder, about)
            save_sentencepiece(folder, model)

        self.repository("meta-llama/Llama-2-7b-chat-hf", revision_of("model/llama2_7b_chat.yaml"), fill)

    def fast(self, kind: Any, fields: Mapping[str, Any]) -> Callable[[Path], None]:
        def fill(folder: Path) -> None:
            about = kind(**shape(max_position_embeddings=4096, **fields))
            save_shards(folder, llama_weights(about), ("safetensors",))
            own: dict[str, Any] = {}
            if kind is Phi3Config:  # code of its own, which must not run
                own = {"auto_map": {"AutoConfig": "configuration_phi3.Phi3Config"}}
                (folder / "configuration_phi3.py").write_text("raise SystemExit('code of a checkpoint was run')\n")
            save_config(folder, about, **own)
            save_fast(folder)

        return fill

    def retrieval(self) -> None:
        made = save_tiny_bge(self.root / "bge", 512)
        for name, part, config in (
            ("BAAI/bge-m3", "m3", "encoder/bge_m3.yaml"),
            ("BAAI/bge-reranker-v2-m3", "reranker", "reranker/bge_reranker_v2_m3.yaml"),
        ):
            self.repository(name, revision_of(config), lambda folder, part=part: _copy(made / part, folder))

    def datasets(self) -> None:
        def hagrid(folder: Path) -> None:
            rows = [
                {
                    "query": f"Which river is at {city}?",
                    "query_id": number,
                    "quotes": [{"idx": 1, "docid": "1#0", "text": TEXTS[number]}],
                    "answers": [{"answer": f"The {river}.", "informative": 1, "attributable": 1}],
                }
                for number, (city, river) in enumerate(zip(CITIES[:5], RIVERS, strict=False))
            ]
            (folder / "hagrid-v1.0-en").mkdir()
            for split in ("dev", "train"):
                write_lines(folder / "hagrid-v1.0-en" / f"{split}.jsonl", rows)
            (folder / "hagrid.py").write_text("raise SystemExit('a loading script was run')\n")

        def trivia(folder: Path) -> None:
            rows = [
                {
                    "question": f"Which river is at {city}?",
                    "question_id": f"tc_{number}",
                    "answer": {"value": river, "aliases": [river], "normalized_aliases": [river.lower()]},
                }
                for number, (city, river) in enumerate(zip(CITIES[:5], RIVERS, strict=False))
            ]
            (folder / "rc.nocontext").mkdir()
            pd.DataFrame(rows).to_parquet(folder / "rc.nocontext" / "validation-00000-of-00001.parquet")

        def sharegpt(folder: Path) -> None:
            for file, word in (("ShareGPT_2023.05.04v0_Wasteland_Edition", "wasteland"), ("ShareGPT_V4.3", "edited")):
                rows = [
                    {"id": str(number), "conversations": [{"from": "gpt", "value": f"{word} {text}"}]}
                    for number, text in enumerate(TEXTS)
                ]
                name = f"{file}_unfiltered_cleaned_split.json" if word == "edited" else f"{file}.json"
                (folder / name).write_text(json.dumps(rows))
            (folder / "README.md").write_text("# ShareGPT\n")

        pinned = OmegaConf.load(CONFIGS / "retrieval.yaml").questions.revision
        self.repository("miracl/hagrid", revision_of("dataset/hagrid.yaml"), hagrid, "dataset")
        self.repository("mandarjoshi/trivia_qa", pinned, trivia, "dataset")
        self.repository(SHAREGPT, "main", sharegpt, "dataset")
        questions, passages = self.root / "question.jsonl", self.root / "psgs_w100.tsv.gz"
        write_lines(questions, spec_bench_rows())
        with gzip.open(passages, "wt", newline="") as file:
            table = csv.writer(file, delimiter="\t", lineterminator="\n")
            table.writerow(["id", "text", "title"])
            for number in range(60):
                table.writerow([number + 1, f"{TEXTS[number % 10]} Part {number}.", CITIES[number % 10]])
        self.hub.files = {SPEC_BENCH: questions, PASSAGES: passages}
        sha = hashlib.sha256(questions.read_bytes()).hexdigest()
        self.settings = [
            *(f"datasets.spec_bench_{name}.checksum=sha256:{sha}" for name in ("summarization", "rag")),
            f"corpus.md5={hashlib.md5(passages.read_bytes()).hexdigest()}",
            "index='IVF4,PQ8x4'",
            "nprobe=2",
            "shard_size=25",
            "chunk=16",
        ]


def _copy(source: Path, folder: Path) -> None:
    shutil.copytree(source, folder, dirs_exist_ok=True)
