"""What the kernel saw written: nothing is missed, and what it cannot know counts as written."""

from __future__ import annotations

import ctypes
import io
import mmap
import multiprocessing
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.tiny import tiny_model
from torch import nn

from ngram_trie.targets import state, writes
from ngram_trie.targets.writes import PAGE, Watch

SIZE = 8 * PAGE


def span_of(memory: np.ndarray) -> tuple[int, int]:
    return memory.ctypes.data, memory.ctypes.data + memory.nbytes


def pages(flags: int = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) -> np.ndarray:
    memory = np.frombuffer(mmap.mmap(-1, SIZE, flags=flags), np.uint8)
    memory[:] = 7
    return memory


@pytest.fixture
def memory() -> np.ndarray:
    memory = pages()
    if not Watch([span_of(memory)]).saw_no_write():
        pytest.skip("this kernel keeps no account of writes: Linux 6.7 is needed, and userfaultfd allowed")
    return memory


def in_thread(memory: np.ndarray) -> None:
    thread = threading.Thread(target=memory.__setitem__, args=(-1, 3))
    thread.start()
    thread.join()


WRITES: dict[str, Callable[[np.ndarray], object]] = {
    "the first byte": lambda memory: memory.__setitem__(0, 7),
    "the last byte": lambda memory: memory.__setitem__(-1, 3),
    "torch": lambda memory: torch.from_numpy(memory).data.add_(1),
    "the kernel itself": lambda memory: io.FileIO("/dev/zero").readinto(memory[PAGE : PAGE + 8]),
    "a thread": in_thread,
}


@pytest.mark.parametrize("write", WRITES)
def test_every_write_is_seen_and_no_read(memory: np.ndarray, write: str) -> None:
    watch = Watch([span_of(memory[: 2 * PAGE]), span_of(memory[3 * PAGE :])])
    assert memory.sum() == 7 * SIZE and watch.saw_no_write()
    memory[2 * PAGE] = 5
    assert watch.saw_no_write(), "between the two"
    WRITES[write](memory)
    assert not watch.saw_no_write() and not watch.saw_no_write()
    later = Watch(watch.spans)  # of a model with the same tensors
    assert later.saw_no_write(), "from now on"
    assert not watch.saw_no_write(), "what it did not ask about is not forgotten"


def test_pages_that_were_never_touched_and_pages_of_a_file(memory: np.ndarray, tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(bytes(SIZE))
    untouched = np.frombuffer(mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)
    for fresh in (untouched, np.memmap(tmp_path / "weights", np.uint8, "c")):
        watch = Watch([span_of(fresh)])
        assert fresh[PAGE] == 0 and watch.saw_no_write()
        fresh[PAGE] = 1
        assert not watch.saw_no_write()


def test_memory_that_others_may_write_to_is_not_watched(memory: np.ndarray) -> None:
    assert not Watch([span_of(memory), span_of(pages(mmap.MAP_SHARED))]).saw_no_write()


def test_other_memory_at_its_place_counts_as_written(memory: np.ndarray) -> None:
    start, end = span_of(memory)
    watch = Watch([(start, end)])
    libc, pointer = ctypes.CDLL(None), ctypes.c_void_p
    libc.mmap.restype = pointer
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x10  # at this very address
    assert libc.mmap(pointer(start), SIZE, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0) == start
    assert not watch.saw_no_write()


def test_a_fork_does_not_know(memory: np.ndarray) -> None:
    watch = Watch([span_of(memory)])
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=lambda: answers.put((watch.saw_no_write(), Watch(watch.spans).saw_no_write())))
    child.start()
    child.join()
    assert answers.get() == (False, True)
    assert watch.saw_no_write(), "the parent still does"


def test_where_the_kernel_keeps_no_account_a_write_is_assumed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writes, "_CALL", {})
    monkeypatch.setattr(writes, "_userfaultfd", writes._userfaultfd.__wrapped__)
    assert not Watch([span_of(pages())]).saw_no_write()


def test_a_model_that_nothing_was_written_to_is_read_once(memory: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    model, read = tiny_model("llama", intermediate_size=512), []
    monkeypatch.setattr(state, "_digests_of", lambda parts: read.append(sum(part.size for part in parts)) or [])
    for _ in range(3):
        state.state_of(model)
    assert len(read) == 1 and read[0] >= 4 * 14 * 1024, "the pages of products"
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight[16, 256] = 3
    state.state_of(model)
    assert len(read) == 2 and read[1] == read[0]


class Wrapped(torch.Tensor):
    """A tensor without memory of its own, as quantised weights may be: what it computes is its `inner` one's."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Wrapped:
        made: Wrapped = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.ops.aten.detach.default:
            return cls(args[0].inner)
        return function(*[each.inner if isinstance(each, cls) else each for each in args], **kwargs or {})


@pytest.mark.parametrize("width", [64, 72], ids=["whole pages", "not whole pages"])
def test_a_tensor_without_memory_of_its_own_is_read_as_it_says(width: int) -> None:
    model, inner = tiny_model("llama"), torch.zeros(width, 64)
    model.register_parameter("more", nn.Parameter(Wrapped(inner), requires_grad=False))
    before = state.state_of(model)
    assert state.state_of(model) == before
    inner[3, 3] = 7
    assert state.state_of(model) != before
