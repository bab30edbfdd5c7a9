"""Chat templates: programs that come with a model, in Jinja. transformers renders them in a sandbox without access to
Python's objects; here their errors become one line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

from ngram_trie.store.files import first_line


def render(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Mapping[str, Any]], **options: Any) -> Any:
    """What `tokenizer.apply_chat_template` makes of the messages and its `options`.

    Raises:
        ValueError: the template is wrong, or refuses these messages.
    """
    try:
        return tokenizer.apply_chat_template(messages, **options)
    except Exception as error:  # whatever the template raises
        raise ValueError(
            f"{tokenizer.name_or_path}: the chat template fails: {first_line(error)}; give another: "
            "model.chat_template=..."
        ) from error
