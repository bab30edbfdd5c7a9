"""Sampling with drafts is plain sampling: a chi-square test against exact probabilities, which REST's rule fails."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from support.fake_target import FakeTarget
from support.tiny import Scripted, tiny_model
from transformers import LogitsProcessorList, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper
from transformers.generation import logits_process

from ngram_trie import Speculator
from ngram_trie.decoding import SpeculativeDecoder, Stop
from ngram_trie.drafters import NoDraft
from ngram_trie.prompt import Prompt
from ngram_trie.targets.rows import paths_of
from ngram_trie.targets.sampling import OF_LOGITS, OF_TEXT, LogitsSampler, first_of_path
from ngram_trie.tree import DraftTree

VOCABULARY, LENGTH = 5, 3
PROMPT = [1, 3, 0]
Distribution = Callable[[Sequence[int]], torch.Tensor]


def logits(text: Sequence[int]) -> torch.Tensor:
    """Of the next token, in no simple way of the last three."""
    return _logits(7 * text[-1] + 31 * text[-2] + 101 * text[-3] + len(text))


@functools.cache
def _logits(seed: int) -> torch.Tensor:
    return 1.2 * torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(seed))


def target() -> FakeTarget:
    return FakeTarget(lambda text: int(logits(text).argmax()), VOCABULARY, runners_up=logits)


def chain(text: list[int]) -> DraftTree:
    return DraftTree.chain(text[-1], [2, 0])


def bushy(text: list[int]) -> DraftTree:
    """Two children of the root and their children, some of them twice."""
    merged = DraftTree.from_paths(text[-1], [[a, b] for a in (0, 2) for b in (1, 2, 4)])
    size = len(merged)
    again = np.where(merged.parents[1:] == 0, 0, merged.parents[1:] + size - 1)
    return DraftTree(np.concatenate([merged.tokens, merged.tokens[1:]]), np.concatenate([merged.parents, again]))


def misfit(answers: Sequence[Sequence[int]], probability: Distribution, vocabulary: int, prompt: list[int]) -> float:
    """The p value of a chi-square test of `answers` against the exact distribution of answers of their length."""
    length = len(answers[0])
    expected = {}
    for answer in itertools.product(range(vocabulary), repeat=length):
        steps = [float(probability([*prompt, *answer[:at]])[answer[at]]) for at in range(length)]
        expected[answer] = len(answers) * float(np.prod(steps))
    counts = Counter(map(tuple, answers))
    impossible = [answer for answer in counts if expected[answer] == 0]
    assert not impossible, f"of probability 0: {impossible}"
    often = [answer for answer, number in expected.items() if number >= 5]
    observed = [counts[answer] for answer in often]
    wanted = [expected[answer] for answer in often]
    rest = len(answers) - sum(wanted)
    if rest > 1e-3:  # the rare ones together
        observed.append(len(answers) - sum(observed))
        wanted.append(rest)
    scale = len(answers) / sum(wanted)  # 1, but for rounding
    return float(chisquare(observed, [scale * number for number in wanted]).pvalue)


def sample(decoder: SpeculativeDecoder, processors: LogitsProcessorList, times: int) -> list[list[int]]:
    sampler = LogitsSampler(processors, True, torch.Generator().manual_seed(1))
    prompt = Prompt(np.array(PROMPT))
    # drafts go no deeper than the answer has room for, so it has more than is looked at
    return [decoder.generate(prompt, Stop(LENGTH + 2), sampler).output_ids[:LENGTH] for _ in range(times)]


WARPERS = {
    "as they are": LogitsProcessorList(),
    "warped": LogitsProcessorList([TemperatureLogitsWarper(0.8), TopKLogitsWarper(4), TopPLogitsWarper(0.9)]),
    "penalised": LogitsProcessorList([logits_process.RepetitionPenaltyLogitsProcessor(1.5)]),
}


@pytest.mark.slow
@pytest.mark.parametrize("tree", [chain, bushy])
@pytest.mark.parametrize("name", list(WARPERS))
def test_sampling_with_drafts_is_sampling(name: str, tree: Callable[[list[int]], DraftTree]) -> None:
    def probability(text: Sequence[int]) -> torch.Tensor:
        return WARPERS[name](torch.tensor([text]), logits(text)[None])[0].softmax(-1)

    decoder = SpeculativeDecoder(target(), Scripted([tree] * (LENGTH + 1)))
    answers = sample(decoder, WARPERS[name], 1500)
    assert misfit(answers, probability, VOCABULARY, PROMPT) > 0.01


class RestRule(SpeculativeDecoder):
    """Acceptance as REST's released code has it at a temperature above 0: for each row of the draft tokens are drawn at
    all its positions, the row that agrees longest with its own draws is kept, and the token behind it is drawn anew.
    """

    def step(self, new_ids, cached, max_depth, watch, sampler=None):  # type: ignore[no-untyped-def]
        self.drafter.observe(new_ids)
        tree = self.drafter.propose(self.target.max_draft).pruned(self.target.max_draft, max_depth)
        self.target.verify(tree)
        probs = self.target.last.logits.softmax(-1)
        kept = [0]
        for row in paths_of(tree)[0]:
            drawn = torch.multinomial(probs[row], 1, generator=sampler.generator)[:, 0].tolist()
            agree = [drawn[at] == tree.tokens[node] for at, node in enumerate(row[1:])]
            accepted = row[: 1 + sum(itertools.takewhile(bool, agree))]
            kept = max(kept, accepted, key=len)
        self.target.commit(cached, kept)
        behind = int(torch.multinomial(probs[kept[-1]], 1, generator=sampler.generator))
        return [*tree.tokens[kept[1:]].tolist(), behind], tree.num_draft


@pytest.mark.slow
@pytest.mark.parametrize("tree", [chain, bushy])
def test_the_test_rejects_rests_published_rule(tree: Callable[[list[int]], DraftTree]) -> None:
    answers = sample(RestRule(target(), Scripted([tree] * (LENGTH + 1))), LogitsProcessorList(), 1500)
    assert misfit(answers, lambda text: logits(text).softmax(-1), VOCABULARY, PROMPT) < 1e-9
    # without a draft nothing is wrong with it: it is the drafts that its answers lean to
    plain = sample(RestRule(target(), NoDraft()), LogitsProcessorList(), 1500)
    assert misfit(plain, lambda text: logits(text).softmax(-1), VOCABULARY, PROMPT) > 0.01


@pytest.mark.slow
@pytest.mark.parametrize("drafter", ["ngram_trie", "blend_logits"])
def test_sampling_from_a_model_with_a_real_drafter(drafter: str) -> None:
    vocabulary, prompt = 5, [1, 4, 3, 1, 4, 3, 1]
    model = tiny_model("llama", vocab_size=vocabulary, eos_token_id=None, bos_token_id=None)
    speculator = Speculator(model, drafter, num_draft=4, budget="fixed")
    generator = torch.Generator().manual_seed(0)
    lengths, answers, text = [], [], Prompt(np.array(prompt))
    with speculator._reserved(text, 40) as decoder:
        for _ in range(600):
            sampler = LogitsSampler(LogitsProcessorList([TemperatureLogitsWarper(3.0)]), True, generator)
            result = decoder.generate(text, Stop(3), sampler)
            answers.append(result.output_ids[:2])
            lengths += result.accept_lengths
    assert max(lengths) > 1  # drafts were accepted

    @torch.inference_mode()
    def probability(text: Sequence[int]) -> torch.Tensor:
        return (model(torch.tensor([text])).logits[0, -1] / 3.0).softmax(-1)

    assert misfit(answers, probability, vocabulary, prompt) > 0.01


def test_a_seed_gives_the_same_answer_whatever_is_drafted() -> None:
    model = tiny_model("llama", eos_token_id=None, pad_token_id=None)
    options = {"max_new_tokens": 30, "do_sample": True, "temperature": 2.0, "top_k": 20, "seed": 11}
    answers = [
        Speculator(model, drafter, budget="fixed", num_draft=num_draft)(PROMPT * 5, **options)[0]
        for drafter, num_draft in (("suffix", 2), ("blend", 16), ("blend_logits", 8), ("pld", 4))
    ]
    speculator = Speculator(model, "blend")
    answers.append(speculator(PROMPT * 5, **options)[0])
    assert all(answer == answers[0] for answer in answers) and len(set(answers[0])) > 5
    drawn = []
    for _ in range(2):  # without a seed, of torch's own generator, as transformers draws
        torch.manual_seed(5)
        drawn.append(speculator(PROMPT * 5, **options | {"seed": None})[0])
    assert drawn[0] == drawn[1] != answers[0]


def test_nodes_of_one_path_share_a_draw() -> None:
    #        9 -> 1 -> 2
    #          -> 1 -> 2
    #             \--> 3
    tree = DraftTree(np.array([9, 1, 2, 1, 2, 3]), np.array([-1, 0, 1, 0, 3, 3]))
    assert first_of_path(tree).tolist() == [0, 1, 2, 1, 2, 5]


PROCESSORS = [
    logits_process.TemperatureLogitsWarper(0.7),
    logits_process.TopKLogitsWarper(3),
    logits_process.TopPLogitsWarper(0.7),
    logits_process.TopHLogitsWarper(0.4),
    logits_process.MinPLogitsWarper(0.2),
    logits_process.TypicalLogitsWarper(0.7),
    logits_process.EpsilonLogitsWarper(0.1),
    logits_process.EtaLogitsWarper(0.1),
    logits_process.SuppressTokensLogitsProcessor([1, 3]),
    logits_process.InfNanRemoveLogitsProcessor(),
    logits_process.LogitNormalization(),
    logits_process.RepetitionPenaltyLogitsProcessor(1.4),
    logits_process.NoRepeatNGramLogitsProcessor(2),
    logits_process.NoBadWordsLogitsProcessor([[2], [3, 4]]),
    logits_process.SequenceBiasLogitsProcessor({(1, 2): 3.0, (4,): 1.0}),
    logits_process.MinLengthLogitsProcessor(9, 0),
    logits_process.MinNewTokensLengthLogitsProcessor(4, 6, 0),
    logits_process.ForcedBOSTokenLogitsProcessor(2),
    logits_process.ForcedEOSTokenLogitsProcessor(8, 0),
    logits_process.ExponentialDecayLengthPenalty((1, 1.5), 0, 4),
    logits_process.SuppressTokensAtBeginLogitsProcessor([1], 7),
]


def test_every_processor_that_is_taken_is_tested() -> None:
    assert [type(processor) for processor in PROCESSORS] == [*OF_LOGITS, *OF_TEXT]


@pytest.mark.parametrize("processor", PROCESSORS, ids=lambda processor: type(processor).__name__)
def test_a_processor_treats_each_text_alone(processor: logits_process.LogitsProcessor) -> None:
    generator = torch.Generator().manual_seed(0)
    texts = torch.randint(0, VOCABULARY, (12, 7), generator=generator)
    scores = 2 * torch.randn(12, VOCABULARY, generator=generator)
    together = processor(texts, scores.clone())
    alone = [processor(texts[row : row + 1], scores[row : row + 1].clone())[0] for row in range(12)]
    torch.testing.assert_close(together, torch.stack(alone))
    if type(processor) in OF_LOGITS:
        torch.testing.assert_close(processor(texts[:, :0], scores.clone()), together)


def test_an_unknown_processor_is_refused() -> None:
    class Mine(logits_process.LogitsProcessor):
        pass

    with pytest.raises(ValueError, match=r"^logits processor Mine: .* known to treat each alone: TemperatureLogits"):
        LogitsSampler(LogitsProcessorList([Mine()]), True)
