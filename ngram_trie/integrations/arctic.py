"""Our cache in place of Arctic Inference's, for vLLM's method `suffix`."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

_PACKAGE, _MODULE, _CLASS = "arctic_inference", "arctic_inference.suffix_decoding", "SuffixDecodingCache"


def in_place_of_arctic() -> None:
    """Let vLLM's method `suffix` draft with the blend, in this process, whether arctic-inference is installed or not.
    Call it before the engine is made.

    The blend is imported when vLLM asks for the class: vLLM 0.32's CPU build does not start where llvmlite, on which
    it stands, was imported before.
    """
    if find_spec(_PACKAGE):
        module = import_module(_MODULE)
    else:
        package, module = ModuleType(_PACKAGE), ModuleType(_MODULE)
        package.__spec__ = ModuleSpec(_PACKAGE, None, is_package=True)
        package.__path__ = []
        sys.modules |= {_PACKAGE: package, _MODULE: module}
    vars(module).pop(_CLASS, None)
    module.__getattr__ = _ours  # type: ignore[method-assign]


def _ours(name: str) -> Any:
    if name != _CLASS:
        raise AttributeError(f"module {_MODULE!r} has no attribute {name!r}")
    return import_module("ngram_trie.integrations.suffix_cache").SuffixDecodingCache
