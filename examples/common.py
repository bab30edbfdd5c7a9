"""What the examples share: the model that is asked for, and plain greedy decoding to compare with."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from omegaconf import OmegaConf
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ngram_trie import Answer, Speculator
from ngram_trie.cli.shell import Parser, name_of, one_line_errors, positive
from ngram_trie.config import choices
from ngram_trie.files import PROJECT
from ngram_trie.targets.load import load_model, load_tokenizer


def arguments(description: str | None, model: str = "model") -> argparse.ArgumentParser:
    """The options that all examples have; `model` is the embedded one that is taken if none is given."""
    parser = Parser(description)
    parser.add_argument("--model", default=str(PROJECT / "data/embedded" / model), help="a hub id or a folder")
    parser.add_argument("--drafter", default="blend", type=name_of("method"), help="a name of configs/method")
    parser.add_argument("--num-draft", type=positive, help="most nodes of a draft (default: 8 on a CPU, 32 on a GPU)")
    parser.add_argument("--max-new-tokens", type=positive, default=160)
    return parser


def load(args: argparse.Namespace) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model on the GPU, if there is one, and its tokenizer."""
    on_gpu = torch.cuda.is_available()
    model = load_model(args.model, "bfloat16" if on_gpu else "float32", "cuda" if on_gpu else "cpu")
    return model, load_tokenizer(args.model)


def speculators(
    args: argparse.Namespace, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> tuple[Speculator, Speculator]:
    """With drafts, and without any; both warmed up. On a CPU drafts are small: no arithmetic is idle."""
    num_draft = args.num_draft
    if num_draft is None and "num_draft" in OmegaConf.load(choices()["method"][args.drafter]):  # not all have it
        num_draft = 8 if model.device.type == "cpu" else 32
    pair = Speculator(model, args.drafter, tokenizer, num_draft=num_draft), Speculator(model, "vanilla", tokenizer)
    for speculator in pair:  # what is compiled and allocated once is not part of the comparison
        speculator([{"role": "user", "content": "Say something."}], max_new_tokens=8)
    return pair


def report(fast: Answer, plain: Answer, model: PreTrainedModel) -> None:
    """One line on what the drafts were worth, measured just now."""
    if fast.output_ids == plain.output_ids:
        same = "the same tokens"
    elif model.dtype == torch.float32:
        same = "OTHER TOKENS"
    else:
        same = "other tokens, as rounding may give in half precision, see docs/library.md"
    print(
        f"[{len(fast.output_ids)} tokens; accept length {fast.accept_length:.2f}; "
        f"{plain.seconds.total / fast.seconds.total:.2f}x plain greedy decoding, {same}]"
    )


def run(main: Callable[[], None]) -> None:
    """What the shell calls: errors are one line."""
    with one_line_errors("nothing is kept"):
        main()
