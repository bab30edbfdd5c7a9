"""What the examples share: the model that is asked for, and plain greedy decoding to compare with."""

from __future__ import annotations

import argparse

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from ngram_trie import Answer, Speculator
from ngram_trie.config import PROJECT


def arguments(description: str | None, model: str = "model") -> argparse.ArgumentParser:
    """The options that all examples have; `model` is the embedded one that is taken if none is given."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--model", default=str(PROJECT / "data/embedded" / model), help="a hub id or a folder")
    parser.add_argument("--drafter", default="blend", help="a name of configs/method")
    parser.add_argument("--num-draft", type=int, help="most nodes of a draft; 8 on a CPU, 32 on a GPU if not given")
    parser.add_argument("--max-new-tokens", type=int, default=160)
    return parser


def load(args: argparse.Namespace) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model on the GPU, if there is one, and its tokenizer. On a CPU drafts are small: no arithmetic is idle."""
    on_gpu = torch.cuda.is_available()
    args.num_draft = args.num_draft or (32 if on_gpu else 8)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16 if on_gpu else torch.float32)
    return model.to("cuda" if on_gpu else "cpu"), AutoTokenizer.from_pretrained(args.model)


def warm_up(*speculators: Speculator) -> None:
    """Compile and allocate what is compiled and allocated once, so that it is not part of the comparison."""
    for speculator in speculators:
        speculator([{"role": "user", "content": "Say something."}], max_new_tokens=8)


def report(fast: Answer, plain: Answer) -> None:
    """One line on what the drafts were worth, measured just now."""
    same = "the same tokens" if fast.output_ids == plain.output_ids else "other tokens: a numerical tie, see docs"
    print(
        f"[{len(fast.output_ids)} tokens; accept length {fast.accept_length:.2f}; "
        f"{plain.seconds.total / fast.seconds.total:.2f}x plain greedy decoding, {same}]"
    )
