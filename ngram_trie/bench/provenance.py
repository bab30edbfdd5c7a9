"""Where numbers come from: the machine, the code and the libraries, in words that go into every manifest."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import llvmlite.binding

from ngram_trie.bench.records import RunManifest
from ngram_trie.store.files import IS_CHECKOUT, PROJECT, content_hash, version_of

#: The environment variable that names the commit of a copy whose git does not know.
COMMIT = "NGRAM_TRIE_COMMIT"
PACKAGES = ("torch", "transformers", "numba", "numpy", "scipy", "hydra-core")


def make_manifest(
    config: Mapping[str, Any],
    model: str,
    prompts: str,
    device: object = None,
    environment: Mapping[str, str] | None = None,
) -> RunManifest:
    """The manifest of a run that starts now; see `RunManifest` for the fields.

    Args:
        device: a torch device or its name; None for one thread of the processor, without torch.
        environment: added to the platform, to CUDA's version and driver where the device has them, and to the commit
            that `COMMIT` names.
    """
    name, threads, environment = cpu_name(), 1, {"platform": platform.platform(), **(environment or {})}
    if device is not None:
        import torch  # takes seconds

        threads = torch.get_num_threads()
        name = f"{name}, {threads} threads"
        if str(device).startswith("cuda"):
            name = torch.cuda.get_device_name(str(device))
            environment |= {"cuda": str(torch.version.cuda), "driver": driver() or "unknown"}
    if COMMIT in os.environ:
        environment |= {"commit, as given": os.environ[COMMIT]}
    # Results are what runs write, so they do not make the code that wrote them dirty.
    status = git("status", "--porcelain", "--untracked-files=no", "--", ":/", ":(exclude,top)results")
    return RunManifest(
        run=content_hash({"config": config, "model": model, "prompts": prompts}),
        config=config,
        model=model,
        prompts=prompts,
        commit=git("rev-parse", "HEAD"),
        dirty=None if status is None else bool(status),
        device=name,
        num_threads=threads,
        versions={"python": platform.python_version()} | {package: version_of(package) for package in PACKAGES},
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        environment=environment,
    )


def cpu_name() -> str:
    """The processor in words, where the system says: its name, LLVM's name of it, and how many cores there are. A
    virtual machine's name may hide the generation, on which speeds depend.
    """
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    if not names:
        return platform.processor() or platform.machine()
    return f"{names[0]} ({llvmlite.binding.get_host_cpu_name()}), {len(names)} cores"


def driver() -> str | None:
    """Version of the NVIDIA driver; None where there is none."""
    return output_of("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")


def git(*arguments: str) -> str | None:
    """Output of a git command in the project's folder; None where there is no git or no checkout."""
    # an installed package may lie in another project's checkout
    # without locks: a run that is killed meanwhile would leave one behind
    return output_of("git", "--no-optional-locks", "-C", str(PROJECT), *arguments) if IS_CHECKOUT else None


def output_of(*command: str) -> str | None:
    """What a command prints; None where it is missing or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
