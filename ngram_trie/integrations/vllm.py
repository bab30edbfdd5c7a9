"""Drafts in vLLM: speculative_config={"method": "custom_class", "model": "ngram_trie.integrations.vllm.NAME", ...}.

NAME is any method of configs/method that drafts from tokens alone: `blend`, `ngram_trie_output`, `suffix`, `pld`. vLLM
hands over rows of tokens and takes a chain for each. It hands over neither the names of requests nor hidden states or
logits, so methods that read those cannot be had this way; and no tenants, so answers are not shared between requests
unless `store_tokens` says so. Settings come by `additional_config={"ngram_trie": {...}}`.
"""

from __future__ import annotations

import copy
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ngram_trie.blend.background import Background
from ngram_trie.blend.ppm import Numbers
from ngram_trie.blend.variants import BlendDrafter
from ngram_trie.budget.batch import BatchDraftLength
from ngram_trie.budget.compiling import num_compiled, warm_up
from ngram_trie.budget.rule import ChainDrafter
from ngram_trie.drafter import Drafter, check_bool, check_int, check_positive
from ngram_trie.integrations.answers import RecentAnswers
from ngram_trie.integrations.rows import Request, Requests
from ngram_trie.methods import CHAIN_TREE, ConfigError, check_reads_tokens, choices, make_drafter, near
from ngram_trie.prompt import Prompt
from ngram_trie.tree import IntArray, num_shared

#: What may be set, and what holds unless it is.
SETTINGS: Mapping[str, Any] = {
    "method": {},
    "adapt": True,
    "token_price": 0.05,
    "max_finished": 64,
    "store_tokens": 0,
    "store_seconds": None,
}
#: How likely a token of a method that does not say so is held to be, behind its predecessor.
_UNSAID = 0.6


class BlendOverAnswers(BlendDrafter):
    """The blend over what was answered lately; one object answers one request.

    Args:
        answers: they are looked at when the request starts.
        options: as in `BlendDrafter`.
    """

    def __init__(self, answers: RecentAnswers, **options: Any) -> None:
        super().__init__(**options)
        self.answers = answers

    def __deepcopy__(self, memo: dict[int, Any]) -> BlendOverAnswers:
        return copy.copy(self)  # settings, which nobody changes, and the answers, which all share

    def background(self, prompt: Prompt) -> Background:
        self._over = self.answers.background()
        return self._over

    @property
    def is_current(self) -> bool:
        """Whether it drafts from what is kept now: another turn, much later, must not go on with what was forgotten."""
        return self._over is self.answers.background()


class Proposer:
    """What vLLM asks for drafts: a chain for each row, cut to what pays at this batch size.

    Args:
        vllm_config: vLLM's.
        name: of the method.
        clock: seconds, for tests.

    Settings:
        method: fields of the method, in place of what configs/method says.
        adapt: whether drafts are cut to what pays (`ngram_trie.budget.batch`); else all that was drafted is
            verified.
        token_price: a drafted token's, in plain steps, until it is learned.
        max_finished: requests that are remembered beyond those that can be answered at once, for the next turn of a
            chat and for those that were preempted.
        store_tokens, store_seconds: size and age of what is drafted from other requests' answers (`blend` alone); 0
            tokens: nothing, as vLLM does not say whose requests they are.

    Raises:
        ValueError: an unknown name or setting, a wrong value, a method that reads more than tokens, or a configuration
            that is not vLLM's; one line.
        FileNotFoundError: the method needs a file that is not there.
    """

    def __init__(self, vllm_config: Any, name: str = "blend", clock: Callable[[], float] = time.perf_counter) -> None:
        try:
            self.num_draft = int(vllm_config.speculative_config.num_speculative_tokens)
            self.max_length = int(vllm_config.model_config.max_model_len)
            max_rows = int(vllm_config.scheduler_config.max_num_seqs)
        except (AttributeError, TypeError) as error:
            raise ValueError(
                f"vLLM's configuration is not the one of 0.32, for which this was written ({error}): "
                "docs/engines.md names the versions"
            ) from None
        settings = read_settings(vllm_config)
        check_int("num_speculative_tokens", self.num_draft, 1)
        check_bool("adapt", settings["adapt"])
        check_int("max_finished", settings["max_finished"], 0)
        check_int("store_tokens", settings["store_tokens"], 0)
        self.answers: RecentAnswers | None = None
        if settings["store_seconds"] is not None:
            check_positive("store_seconds", settings["store_seconds"])
            if not settings["store_tokens"]:
                raise ValueError("store_seconds: how long answers are kept, of which store_tokens=0 keeps none")
        if settings["store_tokens"]:
            check_int("store_tokens", settings["store_tokens"], 4)
            if name != "blend":
                raise ValueError(f"store_tokens={settings['store_tokens']}: blend alone drafts from other answers")
            self.answers = RecentAnswers(settings["store_tokens"], max_seconds=settings["store_seconds"])
        drafter = chain_drafter(name, settings["method"], self.num_draft, self.answers)
        self.requests = Requests(
            functools.partial(copy.deepcopy, drafter),
            max_rows + settings["max_finished"],
            self.num_draft + 1,
            self._keep if self.answers is not None else None,
        )
        self.paying = BatchDraftLength(settings["token_price"])
        self.adapt = settings["adapt"]
        self._clock = clock
        self._last: tuple[float, int, int] | None = None
        self._compiled = 0
        self._drafter = drafter

    def load_model(self, *_: Any, **__: Any) -> None:
        """vLLM calls it before it serves; there is no model, but there is code to compile."""
        warm_up(self._drafter, Prompt(np.arange(16)), None)

    def propose(
        self,
        sampled_token_ids: Sequence[Sequence[int]],
        num_tokens_no_spec: IntArray,
        token_ids_cpu: Numbers,
        slot_mappings: Any = None,
    ) -> list[list[int]]:
        """A draft for each row, empty where none pays or the row is still being read.

        Args:
            sampled_token_ids: by row, what the step emitted; empty for a prompt that is not read to its end.
            num_tokens_no_spec: (rows,) how many tokens stand in each row, those included.
            token_ids_cpu: (rows, max_model_len) all tokens.
        """
        began, compiled = self._clock(), num_compiled()
        # a step that waited for a compiler says nothing about others
        is_clean, self._compiled = compiled == self._compiled, compiled
        self.requests.next_call()
        rows: dict[int, Request] = {}
        all_known = True
        for row, sampled in enumerate(sampled_token_ids):
            if not len(sampled):
                all_known = False
                continue
            text = token_ids_cpu[row, : int(num_tokens_no_spec[row])]
            request, is_known = self.requests.find(row, text, len(sampled))
            all_known &= is_known
            if request.draft:  # the last token emitted is the target's own
                self.paying.take_draft(request.said, num_shared(request.draft, sampled[:-1]))
            request.draft, request.said = [], []
            rows[row] = request
        batch = len(sampled_token_ids)
        if self._last is not None and all_known and self._last[1] == batch and is_clean:
            emitted = sum(map(len, sampled_token_ids))
            self.paying.take_step(batch, self._last[2], emitted, began - self._last[0])
        drafts = self._drafts(rows, batch)
        self._last = (began, batch, sum(map(len, drafts)))
        return drafts

    def _drafts(self, rows: Mapping[int, Request], batch: int) -> list[list[int]]:
        """Draft behind each row, and keep what pays."""
        drafts: list[list[int]] = [[] for _ in range(batch)]
        if self.adapt and not self.paying.is_due(batch):
            return drafts
        for request in rows.values():
            # one token is emitted behind the draft, and all must fit
            room = min(self.num_draft, self.max_length - len(request.text) - 1)
            if room < 1:
                continue
            tree = request.drafter.propose(CHAIN_TREE).pruned(room, room)
            request.draft = tree.tokens[1:].tolist()
            said = _UNSAID ** np.arange(1, len(tree)) if tree.probs is None else tree.probs[1:]
            request.said = said.tolist()
        if self.adapt:
            counts = self.paying.choose([request.said for request in rows.values()], batch)
            for request, count in zip(rows.values(), counts, strict=True):
                request.draft, request.said = request.draft[:count], request.said[:count]
        for row, request in rows.items():
            drafts[row] = list(request.draft)
        return drafts

    def _keep(self, request: Request) -> None:
        """Put a finished answer, or as far as it came, into the store."""
        assert self.answers is not None
        answer = request.text[request.prompt_length :].astype(np.int64)
        if len(answer):
            self.answers.add(answer)
        request.prompt_length = len(request.text)


def read_settings(vllm_config: Any) -> dict[str, Any]:
    """SETTINGS with what vLLM's `additional_config` says.

    Raises:
        ValueError: no mapping, an unknown setting, or a method that is no mapping of fields, or has a name.
    """
    more = getattr(vllm_config, "additional_config", None)
    given = more.get("ngram_trie", {}) if isinstance(more, Mapping) else {}
    if not isinstance(given, Mapping):
        raise ValueError(f"additional_config.ngram_trie={given!r}: must be settings: {', '.join(SETTINGS)}")
    for field in given:
        if field not in SETTINGS:
            raise ValueError(f"additional_config.ngram_trie: {field}: {near(str(field), list(SETTINGS))}")
    settings = {**SETTINGS, **given}
    if not isinstance(fields := settings["method"], Mapping) or "name" in fields:  # the method is named beside them
        raise ValueError(f"additional_config.ngram_trie: method={fields!r}: must be fields of the method, without name")
    return settings


def chain_drafter(
    name: str, fields: Mapping[str, Any], num_draft: int, answers: RecentAnswers | None = None
) -> Drafter:
    """A drafter of chains, that has not begun; copies of it share no text.

    Args:
        name, fields: of configs/method.
        num_draft: most tokens of a chain.
        answers: of other requests, for the blend.

    Raises:
        ValueError, FileNotFoundError: as `Proposer`.
    """
    drafter = make_drafter({**fields, "name": name}, num_draft, "chain")
    if answers is not None:
        return ChainDrafter(BlendOverAnswers(answers, **{**fields, "num_draft": CHAIN_TREE}), num_nodes=num_draft)
    check_reads_tokens(drafter, name, "vLLM")
    if drafter.traits.remembers:
        raise ConfigError(
            f"method {name} remembers earlier answers, and vLLM does not say whose they are: give blend, and "
            "store_tokens where all may draft from all"
        )
    return drafter


def __getattr__(name: str) -> Any:
    """`ngram_trie.integrations.vllm.NAME`, as vLLM's configuration names it, is a proposer with that method."""
    if name.startswith("__") or name not in (known := choices()["method"]):
        hint = "" if name.startswith("__") else f": {near(name, list(known))}"
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
    return functools.partial(Proposer, name=name)
