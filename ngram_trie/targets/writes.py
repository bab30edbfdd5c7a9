"""Whether memory was written to: the kernel's own account, where it keeps one (Linux 6.7 and later).

Pages are write-protected by `userfaultfd` in its asynchronous mode: the first write to one, by whatever means, takes
its protection away and goes on, and `PAGEMAP_SCAN` finds pages without it, in a millisecond for two gigabytes. (Linux,
Documentation/admin-guide/mm/userfaultfd.rst and pagemap.rst; include/uapi/linux/userfaultfd.h and fs.h.)
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import os
import platform
import struct
from collections.abc import Sequence
from pathlib import Path
from weakref import WeakSet

#: Addresses: the first byte, and the first behind the last.
Span = tuple[int, int]

PAGE = mmap.PAGESIZE
#: Numbers of the call, by machine; and of what is asked of it.
_CALL = {("Linux", "x86_64"): 323, ("Linux", "aarch64"): 282}
_API, _REGISTER, _PROTECT, _SCAN = 0xC018AA3F, 0xC020AA00, 0xC018AA06, 0xC0606610
_USER_MODE_ONLY, _VERSION, _WP_ASYNC, _WP_UNPOPULATED = 1, 0xAA, 1 << 15, 1 << 13
_CHECK_WP_ASYNC, _WRITTEN = 2, 2


class Watch:
    """Memory of this process, from now on; where the kernel keeps no account of it, a write is always assumed.

    Args:
        spans: whole pages.
    """

    def __init__(self, spans: Sequence[Span]) -> None:
        self.spans, self._process = list(spans), os.getpid()
        for other in _WATCHES:  # its pages are protected anew: what it had not asked about yet would be lost
            if any(start < end and first < behind for first, end in self.spans for start, behind in other.spans):
                other._process = 0
        _WATCHES.add(self)
        try:
            descriptor, shared = _userfaultfd(self._process), _shared()
            for start, end in self.spans:
                if any(start < behind and first < end for first, behind in shared):
                    raise OSError("others may write to it")
                _ask(descriptor, _REGISTER, "4Q", start, end - start, 2, 0)
                _ask(descriptor, _PROTECT, "3Q", start, end - start, 1)
        except OSError:
            self._process = 0

    def saw_no_write(self) -> bool:
        """Whether nothing was written there, and it is the memory that it was. A fork does not know."""
        if os.getpid() != self._process:
            return False
        found = (ctypes.c_uint64 * 3)()
        at = ctypes.addressof(found)
        with contextlib.suppress(OSError), Path("/proc/self/pagemap").open("rb", buffering=0) as pages:
            return not any(
                _ask(pages.fileno(), _SCAN, "12Q", 96, _CHECK_WP_ASYNC, *span, 0, at, 1, 1, 0, _WRITTEN, 0, _WRITTEN)
                for span in self.spans
            )
        return False


_WATCHES: WeakSet[Watch] = WeakSet()


def _shared() -> list[Span]:
    """What is mapped so that others may write to it."""
    with Path("/proc/self/maps").open(encoding="utf-8") as lines:
        found = [line.split()[0].split("-") for line in lines if line.split()[1].endswith("s")]
    return [(int(start, 16), int(end, 16)) for start, end in found]


@functools.lru_cache(maxsize=1)
def _userfaultfd(process: int) -> int:
    """Its descriptor, for as long as the process lives: without it nothing is protected."""
    if (platform.system(), platform.machine()) not in _CALL:
        raise OSError("no userfaultfd")
    call = _CALL[platform.system(), platform.machine()]
    descriptor = ctypes.CDLL(None).syscall(call, os.O_CLOEXEC | os.O_NONBLOCK | _USER_MODE_ONLY)
    try:
        _ask(descriptor, _API, "3Q", _VERSION, _WP_ASYNC | _WP_UNPOPULATED, 0)
    except (OSError, ValueError):
        if descriptor >= 0:
            os.close(descriptor)
        raise OSError("no userfaultfd that goes on after a write") from None
    return int(descriptor)


def _ask(descriptor: int, request: int, form: str, *values: int) -> int:
    import fcntl  # Windows has none

    return fcntl.ioctl(descriptor, request, bytearray(struct.pack(form, *values)))
