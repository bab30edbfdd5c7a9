"""Train a Llama from nothing on samples that are drawn while it trains: the tiny model (2.4 hours on two busy CPU
cores), the general model (10 minutes) and the draft model of speculative sampling (25 minutes).

Four things make a small model learn to copy on a CPU. It starts with an induction head in place, kept alive by random
token sequences that are followed by themselves. Contexts begin with one passage and grow to five. Each context carries
several questions. In the second half only answers are scored.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import yaml
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from ngram_trie.data import bundled, skills, world
from ngram_trie.targets.load import load_tokenizer
from scripts.studies.tiny import training

SPECIAL = ("<pad>", "<s>", "</s>", "<|user|>", "<|assistant|>")
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}<|user|>\n{{ message['content'] }}\n"
    "{% else %}<|assistant|>\n{% generation %}{{ message['content'] }}{{ eos_token }}{% endgeneration %}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)


@dataclass(frozen=True, kw_only=True)
class ModelRecipe(training.Recipe):
    """Everything that decides the weights but the texts. Lengths in tokens."""

    seed: int = 20
    vocab_size: int = 3072
    hidden_size: int = 256
    intermediate_size: int = 704
    num_layers: int = 4
    num_heads: int = 4
    num_kv_heads: int = 2
    rope_theta: float = 500_000.0
    num_steps: int = 5100
    warmup_steps: int = 30
    decay_steps: int = 4500  # the rate is decayed to its end here, over the last decay_fraction
    decay_fraction: float = 0.7
    alike_steps: int = 4400  # from here on all passages are about subjects of one kind, as a retriever finds them,
    alike_rate: float = 0.3  # at a rate that starts again from this share of the full one
    tokens_per_step: int = 12_288
    row_length_short: int = 512
    row_length: int = 1024
    short_steps: int = 500  # rows of row_length_short until here
    grow_steps: int = 800  # contexts reach full size here
    copy_steps: int = 300  # the copy task fades out until here
    prompt_weight: float = 0.1  # loss weight of a prompt token; an answer token counts 1
    prompt_steps: int = 2600  # prompt tokens count until here; then their chance would drown what answers still lack
    muon_lr: float = 0.01
    adam_lr: float = 5e-4

    def rate(self, step: int) -> float:
        """Learning-rate factor: linear warm-up, constant, cosine decay; then a second, linear decay on harder
        contexts.
        """
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        if step >= self.alike_steps:
            return self.alike_rate * (self.num_steps - step) / (self.num_steps - self.alike_steps)
        progress = max(0.0, (step / self.decay_steps - (1 - self.decay_fraction)) / self.decay_fraction)
        return 0.5 * (1 + math.cos(math.pi * min(progress, 1.0))) * 0.98 + 0.02


@dataclass(frozen=True)
class Source:
    """Where samples come from.

    Attributes:
        training: a fresh sample from a generator of random numbers, the context scale in (0, 1], the number of turns
            and the share of the context's subjects that are of one kind.
        cut: share of the samples that are fragments of `FRAGMENT` tokens from anywhere, behind a BOS. Large models are
            trained on texts that are cut anywhere, so they have a say on what follows a single token.
    """

    training: Callable[[random.Random, float, int, float], world.Sample]
    cut: float = 0.0


FRAGMENT = (8, 64)
WORLD = Source(world.training_sample)


def train_tokenizer(recipe: ModelRecipe, source: Source = WORLD) -> PreTrainedTokenizerFast:
    """Byte-level BPE over the source's text: common words and names become whole tokens, any text is possible."""
    rng = random.Random(recipe.seed)

    def texts() -> Iterator[str]:
        for _ in range(6000):
            for message in source.training(rng, 1.0, 2, 0.5).messages():
                yield message["content"]

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=recipe.vocab_size,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts(), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        extra_special_tokens=["<|user|>", "<|assistant|>"],
        chat_template=CHAT_TEMPLATE,
        model_max_length=2048,
        clean_up_tokenization_spaces=False,
    )


def build_model(recipe: ModelRecipe, vocab_size: int) -> LlamaForCausalLM:
    torch.manual_seed(recipe.seed)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocab_size,
            hidden_size=recipe.hidden_size,
            intermediate_size=recipe.intermediate_size,
            num_hidden_layers=recipe.num_layers,
            num_attention_heads=recipe.num_heads,
            num_key_value_heads=recipe.num_kv_heads,
            max_position_embeddings=2048,
            rope_parameters={"rope_type": "default", "rope_theta": recipe.rope_theta},
            tie_word_embeddings=True,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
        )
    )
    plant_induction_head(model)
    return model


@torch.no_grad()
def plant_induction_head(model: LlamaForCausalLM) -> None:
    """Initialise the first heads of layers 0 and 1 as an induction circuit (Olsson et al. 2022): find where the current
    token stood before, copy what came next. From random weights a CPU takes hours to find it; planted, random sequences
    are copied almost at once. Training is free to change it all.

    The embedding gets one direction `u` that all tokens share, so that heads have a constant to build on, and the rest
    of the space is split by a random rotation: P and R read tokens, S carries the previous token.
    """
    embedding = model.model.embed_tokens.weight
    size, scale, shared = embedding.shape[1], 0.04, 0.5
    head = model.config.head_dim
    matched = head if 1 + 3 * head <= size else 28  # P's and S's size; a narrow model keeps what layer 1 compares
    half, theta = head // 2, model.config.rope_parameters["rope_theta"]
    rotation = torch.linalg.qr(torch.randn(size, size))[0].T
    u, p, s, r = rotation[0], rotation[1 : 1 + matched], rotation[1 + matched : 1 + 2 * matched], rotation[-head:]
    embedding.normal_(0, scale)
    embedding -= (embedding @ u)[:, None] * u
    embedding += shared * scale * size**0.5 * u
    constant = size**0.5 * shared / (1 + shared**2) ** 0.5  # of a normalised embedding along u

    # Layer 0 attends to the previous token: with the fast rotary pairs set to a constant in keys and to the same
    # constant turned by one position in queries, the score is a sum of cosines that peaks at distance 1.
    previous = model.model.layers[0].self_attn
    pairs = torch.arange(8)
    angle, amplitude = theta ** (-pairs / half), 9.8
    query, key = torch.zeros(head), torch.zeros(head)
    query[pairs], query[pairs + half] = amplitude * angle.cos(), -amplitude * angle.sin()
    key[pairs] = amplitude
    previous.q_proj.weight[:head] = query[:, None] * u / constant
    previous.k_proj.weight[:head] = key[:, None] * u / constant
    previous.v_proj.weight[:matched] = p
    previous.o_proj.weight[:, :matched] = 0.13 * s.T

    # Layer 1 attends to where the previous token is the current one, through the slow pairs, which hardly turn over
    # the length of a prompt, and writes the token that it finds there.
    induction = model.model.layers[1].self_attn
    slow = torch.cat([torch.arange(half - 14, half), torch.arange(head - 14, head)])
    induction.q_proj.weight[:head] = induction.k_proj.weight[:head] = 0
    induction.q_proj.weight[slow] = 3 * p[: len(slow)]
    induction.k_proj.weight[slow] = 3 * s[: len(slow)]
    induction.v_proj.weight[:head] = r
    induction.o_proj.weight[:, :head] = 0.6 * r.T


class Batches:
    """Rows of packed samples with a loss weight per token. Draws depend on the seed and the step alone."""

    def __init__(self, recipe: ModelRecipe, tokenizer: PreTrainedTokenizerFast, source: Source = WORLD) -> None:
        self.recipe, self.tokenizer, self.source = recipe, tokenizer, source

    def encode(self, sample: world.Sample) -> tuple[list[int], list[float]]:
        """Token ids of the conversation and a weight for each: 1 in answers, `prompt_weight` elsewhere."""
        ids: list[int] = [self.tokenizer.bos_token_id]
        weights = [0.0]
        encode = self.tokenizer._tokenizer.encode_batch
        pieces = []
        for message in sample.messages():
            if message["role"] == "user":
                pieces.append("<|user|>\n" + message["content"] + "\n<|assistant|>\n")
            else:
                pieces.append(message["content"] + "</s>")
        for index, piece in enumerate(encode(pieces, add_special_tokens=False)):
            ids += piece.ids
            weights += [1.0 if index % 2 else self.recipe.prompt_weight] * len(piece.ids)
        return ids, weights

    def size(self, rng: random.Random, step: int) -> float:
        """The context scale of a sample: the largest allowed grows with `step`; smaller ones stay in the mix."""
        largest = min(1.0, 0.15 + 0.85 * step / self.recipe.grow_steps)
        return largest if rng.random() < 0.7 else rng.uniform(0.1, largest)

    def copy_row(self, rng: random.Random, length: int) -> tuple[list[int], list[float]]:
        """A random sequence, then the same again; only the second half counts."""
        half = rng.randrange(length // 8, length // 2)
        tokens = [rng.randrange(len(SPECIAL), self.recipe.vocab_size) for _ in range(half)]
        return tokens + tokens, [0.0] * half + [1.0] * half

    def rows(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Token ids (rows, length) and the weight of each token, of the same shape."""
        rng = random.Random(self.recipe.seed * 1_000_003 + step)
        length = self.recipe.row_length_short if step < self.recipe.short_steps else self.recipe.row_length
        alike = 1.0 if step >= self.recipe.alike_steps else 0.5
        copy_share = 0.06 + 0.4 * max(0.0, 1 - step / self.recipe.copy_steps)
        ids = torch.zeros(self.recipe.tokens_per_step // length, length, dtype=torch.long)
        weights = torch.zeros(ids.shape)
        for row in range(len(ids)):
            end = 0
            if rng.random() < copy_share:
                items = iter([self.copy_row(rng, length)])
            else:
                items = iter(lambda: self.encode(self.source.training(rng, self.size(rng, step), 3, alike)), None)
            for tokens, token_weights in items:
                if self.source.cut and rng.random() < self.source.cut:
                    first = rng.randrange(1, len(tokens))
                    last = first + rng.randrange(*FRAGMENT)
                    tokens, token_weights = tokens[:1] + tokens[first:last], [0.0, *token_weights[first:last]]
                room = min(length - end, len(tokens))
                ids[row, end : end + room] = torch.tensor(tokens[:room])
                weights[row, end : end + room] = torch.tensor(token_weights[:room])
                end += room
                if length - end < min(150, length // 3):
                    break
        if step >= self.recipe.prompt_steps:
            weights[weights < 1] = 0
        return ids, weights

    def at(self, step: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Token ids (rows, length), flat positions (m,) whose next token is scored, and the weight of each (m,).

        All answer tokens are scored and, up to half of the batch, prompt tokens drawn at random: the head is a fifth of
        the model's arithmetic, and an unscored position needs none of it.
        """
        ids, weights = self.rows(step)
        next_weights = torch.cat([weights[:, 1:], torch.zeros(len(ids), 1)], dim=1).flatten()
        noise = torch.rand(len(next_weights), generator=torch.Generator().manual_seed(step))
        order = (next_weights * 10 + noise * (next_weights > 0)).argsort(descending=True)
        positions = order[: len(order) // 2].sort().values
        return ids, positions, next_weights[positions]


def loss_of(model: LlamaForCausalLM, ids: torch.Tensor, positions: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Weighted mean over `positions` of the cross entropy of the next token, in nats."""
    with torch.autocast("cpu", torch.bfloat16):
        hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
        logits = model.lm_head(hidden.flatten(0, 1)[positions])
    targets = ids.flatten().roll(-1)[positions]
    losses = nn.functional.cross_entropy(logits.float(), targets, reduction="none")
    return (losses * weights).sum() / weights.sum()


SKILLS = Source(lambda rng, *_: skills.training_sample(rng), cut=0.5)
#: The recipe of each model and the texts that it learns from.
MODELS = {
    name: (ModelRecipe(**fields), SKILLS if name == "general" else WORLD)
    for name, fields in yaml.safe_load(Path(__file__).with_name("recipes.yaml").read_text(encoding="utf-8")).items()
}


def train(recipe: ModelRecipe, source: Source, folder: Path) -> None:
    """Train a model and its tokenizer and save both to `folder`."""
    tokenizer = train_tokenizer(recipe, source)
    tokenizer.save_pretrained(folder)
    batches = Batches(recipe, tokenizer, source)
    model = build_model(recipe, recipe.vocab_size)
    loss = training.compiled(loss_of)
    about = training.train(
        model, lambda step: {"loss": loss(model, *batches.at(step))}, recipe, folder, recipe.vocab_size
    )
    training.save(model, about, folder)


def fine_tuning_batches(seed: int, tokens_per_step: int, row_length: int = 1024) -> Batches:
    """Full-size samples of the text world in the tiny model's tokens, answers scored alone."""
    recipe = dataclasses.replace(
        ModelRecipe(), seed=seed, tokens_per_step=tokens_per_step, row_length=row_length,
        short_steps=0, grow_steps=1, copy_steps=1, prompt_steps=0, alike_steps=0,
    )  # fmt: skip
    return Batches(recipe, load_tokenizer(str(bundled.MODEL)))
