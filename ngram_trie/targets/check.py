"""Whether a network computes what its model does: a fast answer must not be a wrong one."""

from __future__ import annotations

import numpy as np
import torch
from transformers import PreTrainedModel

from ngram_trie.targets.internals import cache_in, last_logits_alone, lengths_in, with_cache
from ngram_trie.targets.network import Network
from ngram_trie.targets.state import autocast_dtype
from ngram_trie.targets.stock import layer_windows
from ngram_trie.tree import DraftTree, IntArray

#: Largest relative error of logits that rounding explains, over the layers of a large model.
MOST_APART = {torch.float32: 1e-3, torch.float16: 0.03, torch.bfloat16: 0.1}
#: Tokens of the prompt by which a network is compared with the model's own steps, behind the smallest window if there
#: is one; and the forwards of the model.
PROBE, STEPS = 8, 4
#: Nodes of a draft that a text has room for.
MAX_DRAFT = 256


def probe(model: PreTrainedModel, limit: int) -> IntArray:
    """A prompt (l,) that shows what a model masks in texts of up to `limit` tokens; empty where there is no room."""
    windows = [window for window in layer_windows(model.config).values() if window]
    room = limit - STEPS
    length = max(0, min(max(PROBE, min(windows) + STEPS) if windows else PROBE, room))
    size = model.get_input_embeddings().num_embeddings
    prompt: IntArray = np.random.default_rng(1).integers(min(5, size - 1), size, length)
    return prompt


@torch.inference_mode()
def disagreement(
    network: Network, model: PreTrainedModel, prompt: IntArray, steps: list[torch.Tensor] | None, limit: int
) -> str | None:
    """Compare a network with the model's own plain steps: a prompt (l,), a tree whose accepted path has a gap, and a
    step behind it, in a text as large as those of up to `limit` tokens will need. A model may mask by slots, read
    fields of its config that others have no use for, keep no cache, or make rows of a step depend on each other: its
    drafts would change answers, and nothing else shows it.

    Args:
        steps: `plain_steps` behind the prompt.

    Returns:
        What differs, in one line; None if nothing does.
    """
    if steps is None:
        return "it keeps no cache of keys and values"
    size, length = model.get_input_embeddings().num_embeddings, len(prompt)
    path = [int(logits.argmax()) for logits in steps]
    # nodes 0 and 2 are the path; beside the second stands another token
    tree = DraftTree(np.array([path[0], (path[1] + 1) % size, path[1]]), np.array([-1, 0, 0]))
    text = network.text(limit + MAX_DRAFT + 1)
    rows = [network.read(text, prompt).logits]
    rows.append(network.step(text, tree, 0).logits[[0, 2]].clone())
    text.keep(length, [0, 2])
    rows.append(network.step(text, DraftTree.root_only(path[2]), 0).logits)
    ours, theirs = torch.cat(rows).double().cpu(), torch.stack(steps).double().cpu()
    if not bool(theirs.isfinite().all()):
        return None  # of a damaged model; the answer will say so
    errors = (ours - theirs).norm(dim=-1) / theirs.norm(dim=-1)
    if bool((errors <= MOST_APART.get(autocast_dtype(model.device) or model.dtype, 1e-3)).all()):  # none is NaN
        return None
    where = ("behind the prompt", *["in a draft tree"] * 2, "in the step behind an accepted draft")
    return f"its logits {where[int(errors.argmax())]} are {float(errors.max()):.2g} from its own plain steps', relative"


@torch.inference_mode()
def plain_steps(model: PreTrainedModel, prompt: IntArray) -> list[torch.Tensor] | None:
    """Logits (V,) behind a prompt (l,) and each of the likeliest tokens that follow, STEPS in all, as the model gives
    them by itself, one token at a time; None where it does not keep what it has read.
    """
    ids = torch.from_numpy(prompt)[None].to(model.device)
    output = model(input_ids=ids, use_cache=True, **last_logits_alone(model))
    found = [output.logits[0, -1]]
    for step in range(1, STEPS):
        cache = cache_in(output)
        if cache is None or ids.shape[1] + step - 1 not in lengths_in(cache):
            return None
        output = model(input_ids=found[-1].argmax()[None, None], **with_cache(model, cache))
        found.append(output.logits[0, -1])
    return found
