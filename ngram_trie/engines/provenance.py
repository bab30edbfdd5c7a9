"""Where numbers come from: the machine, the code and the libraries, in words that go into every manifest."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from ngram_trie.files import IS_CHECKOUT, PROJECT, content_hash
from ngram_trie.records import RunManifest

PACKAGES = ("torch", "transformers", "numba", "numpy", "scipy", "hydra-core")


def make_manifest(
    config: Mapping[str, Any],
    model: str,
    prompts: str,
    device: str,
    num_threads: int,
    environment: Mapping[str, str] | None = None,
) -> RunManifest:
    """The manifest of a run that starts now; see `RunManifest` for the fields."""
    # Results are what runs write, so they do not make the code that wrote them dirty.
    status = git("status", "--porcelain", "--untracked-files=no", "--", ":/", ":(exclude,top)results")
    return RunManifest(
        run=content_hash({"config": config, "model": model, "prompts": prompts}),
        config=config,
        model=model,
        prompts=prompts,
        commit=git("rev-parse", "HEAD"),
        dirty=None if status is None else bool(status),
        device=device,
        num_threads=num_threads,
        versions={"python": platform.python_version()} | {name: _version(name) for name in PACKAGES},
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        environment={"platform": platform.platform()} | dict(environment or {}),
    )


def device_manifest(
    config: Mapping[str, Any],
    model: str,
    prompts: str,
    device: object,
    environment: Mapping[str, str] | None = None,
) -> RunManifest:
    """The manifest of a run that starts now on `device`, a torch device or its name."""
    import torch  # takes seconds; the processor alone is named without

    threads, environment = torch.get_num_threads(), dict(environment or {})
    if not str(device).startswith("cuda"):
        return make_manifest(config, model, prompts, f"{cpu_name()}, {threads} threads", threads, environment)
    environment |= {"cuda": str(torch.version.cuda), "driver": driver() or "unknown"}
    return make_manifest(config, model, prompts, torch.cuda.get_device_name(str(device)), threads, environment)


def _version(package: str) -> str:
    """Its version; "not installed" where a measurement does without it."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def cpu_name() -> str:
    """The processor in words, as far as the system tells."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]}, {len(names)} cores" if names else platform.processor() or platform.machine()


def driver() -> str | None:
    """Version of the NVIDIA driver; None where there is none."""
    return output_of("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")


def git(*arguments: str) -> str | None:
    """Output of a git command in the project's folder; None where there is no git or no checkout."""
    # an installed package may lie in another project's checkout
    return output_of("git", "-C", str(PROJECT), *arguments) if IS_CHECKOUT else None


def output_of(*command: str) -> str | None:
    """What a command prints; None where it is missing or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
