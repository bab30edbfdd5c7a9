"""Choose the constants of budget=auto (make fit-budgets)."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig

from ngram_trie.cli.hydra_app import hydra_app
from ngram_trie.config import ConfigError, check_values
from ngram_trie.files import relative
from ngram_trie.report.budget_fit import write

ABOUT = """Choose the constants of budget=auto for every method on odd questions, by predicted speed under `cost`.

Writes to output=FOLDER constants.json, for budget.constants=FILE, and tried.csv, the result of every value tried.

  python -m scripts.fit_budgets experiment=drafters engine=replay engine.traces=FILE output=FOLDER
"""


def fit(config: DictConfig) -> None:
    """Everything one resolved config asks for."""
    check_values(config)
    if not config.output:
        raise ConfigError("output: give the folder that the constants go to, output=FOLDER")
    print(write(config, Path(config.output)))
    print(f"written: {relative(str(Path(config.output).absolute()))}")


if __name__ == "__main__":
    hydra_app(fit, ABOUT, interrupted="nothing was written")
