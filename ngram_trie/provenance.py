"""Where numbers come from: the machine, the code and the libraries, in words that go into every manifest."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from ngram_trie.records import RunManifest

PACKAGES = ("torch", "transformers", "numba", "numpy", "scipy", "hydra-core")


def make_manifest(
    run_id: str, config: Mapping[str, Any], device: str, num_threads: int, environment: Mapping[str, str]
) -> RunManifest:
    """The manifest of a run that starts now; see `RunManifest` for the fields."""
    status = git("status", "--porcelain", "--untracked-files=no")
    return RunManifest(
        run=run_id,
        config=config,
        commit=git("rev-parse", "HEAD"),
        dirty=None if status is None else bool(status),
        device=device,
        num_threads=num_threads,
        versions={"python": platform.python_version()} | {name: metadata.version(name) for name in PACKAGES},
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        environment={"platform": platform.platform(), **environment},
    )


def cpu_name() -> str:
    """The processor in words, as far as the system tells."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]}, {len(names)} cores" if names else platform.processor() or platform.machine()


def git(*arguments: str) -> str | None:
    """Output of a git command in the project's folder; None where there is no git or no checkout."""
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=Path(__file__).parent, capture_output=True, text=True, check=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
