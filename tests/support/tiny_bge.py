"""Passages, and XLM-R with tiny random weights in folders laid out as BGE-M3 and its reranker are on the hub."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast, XLMRobertaConfig, XLMRobertaForSequenceClassification, XLMRobertaModel

CITIES = ["Paris", "Rome", "Oslo", "Lima", "Cairo", "Delhi", "Quito", "Minsk", "Tunis", "Seoul"]
RIVERS = ["Seine", "Tiber", "Aker", "Rimac", "Nile", "Yamuna", "Machangara", "Svislach", "Medjerda", "Han"]
ROWS = [
    {"id": number, "title": city, "text": f"{city} lies on the river {river}; part {part} of its story."}
    for number, (city, river, part) in enumerate(
        (city, river, part) for part in range(4) for city, river in zip(CITIES, RIVERS, strict=True)
    )
]


def save_tiny_bge(folder: Path, length: int = 128) -> Path:
    """Make the folders "m3", its weights in PyTorch's own format as BGE-M3's are, and "reranker".

    Args:
        length: most tokens of a text.
    """
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    tokenizer.train_from_iterator(
        [row["text"] for row in ROWS], trainers.BpeTrainer(vocab_size=200, special_tokens=special, show_progress=False)
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        "<s> $A </s>", "<s> $A </s> </s> $B </s>", [("<s>", 0), ("</s>", 2)]
    )
    names = dict(zip(("bos", "pad", "eos", "unk", "mask"), special, strict=True))
    tokens = {f"{name}_token": token for name, token in names.items()} | {"cls_token": "<s>", "sep_token": "</s>"}
    config = XLMRobertaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=length + 2,
        type_vocab_size=1,
        initializer_range=0.3,
        num_labels=1,
        pad_token_id=1,
    )
    torch.manual_seed(0)
    for name, model in (("m3", XLMRobertaModel(config)), ("reranker", XLMRobertaForSequenceClassification(config))):
        model.save_pretrained(folder / name)
        PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=length, **tokens).save_pretrained(
            folder / name
        )
    weights = folder / "m3" / "model.safetensors"
    torch.save(load_file(weights), weights.with_name("pytorch_model.bin"))
    weights.unlink()
    torch.save(torch.nn.Linear(32, 32).state_dict(), folder / "m3" / "colbert_linear.pt")
    torch.save(torch.nn.Linear(32, 1).state_dict(), folder / "m3" / "sparse_linear.pt")
    return folder
