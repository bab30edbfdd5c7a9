"""Chat templates: programs that come with a model, in Jinja. transformers renders them in a sandbox without access to
Python's objects; here they get a time limit, and their errors one line.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

from ngram_trie.store.files import first_line

#: What a template may take; real ones take a millisecond.
LIMIT_SECONDS = 10.0


class _TooSlow(BaseException):
    """Raised within a template that is still running when its time is over."""


def render(
    tokenizer: PreTrainedTokenizerBase,
    messages: Sequence[Mapping[str, Any]],
    limit: float | None = None,
    **options: Any,
) -> Any:
    """What `tokenizer.apply_chat_template` makes of the messages.

    Args:
        limit: seconds; `LIMIT_SECONDS` unless given.
        options: of `apply_chat_template`.

    Raises:
        ValueError: the template is wrong, refuses these messages, or takes too long.
    """
    limit = LIMIT_SECONDS if limit is None else limit
    done: dict[str, Any] = {}

    def work() -> None:
        try:
            done["text"] = tokenizer.apply_chat_template(messages, **options)
        except _TooSlow:
            done["error"] = f"not done after {limit:g} seconds"
        except Exception as error:  # whatever the template raises
            done["error"] = first_line(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(limit)
    if thread.is_alive():
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(_TooSlow))
        thread.join(limit)  # one that stands in a call into C ends behind it, or with the process
        done.setdefault("error", f"not done after {limit:g} seconds")
    if "error" in done:
        raise ValueError(
            f"{tokenizer.name_or_path}: the chat template fails: {done['error']}; give another: model.chat_template=..."
        )
    return done["text"]
