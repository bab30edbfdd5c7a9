"""Published data sets: from the hub through the `datasets` library, or from a copy of their files.

Which field holds what is said in the YAML (configs/dataset), so that another set of questions needs no code. Only first
turns are asked: a later one would have to follow the model's own answer to the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from data.bundled import check_choice, choose
from data.prompts import Question

KINDS = {".jsonl": "json", ".json": "json", ".parquet": "parquet"}


class HubDataset:
    """The questions of one published set.

    Args:
        name: the dataset's name in records.
        hub: its id on the hub.
        subset: its configuration there; None where it has only one.
        split: which split to ask.
        revision: a commit or tag of the hub's repository; None for its newest.
        prompt: field that holds the question: a text, or the list of a conversation's turns, of which the first is
            taken.
        id: field that names a question; None to number them from 1.
        reference: field with an answer to compare with; None if there is none.
        before, after: what is said around every question.
        path: instead of the hub a file of the same layout (.jsonl, .json, .parquet), or a folder of such; of a folder
            with several files those are read whose path names the split.
        warmup: so many questions at the set's end are for warming up and never measured.
        limit, parity: as in `data.bundled.BundledDataset`; parity goes by a question's place in the set, from 1.

    Raises:
        FileNotFoundError: neither the hub nor a path gives the set; the message says what to do.
        ValueError: a field that is not there, or a value that is not allowed.
    """

    def __init__(
        self,
        name: str,
        hub: str,
        prompt: str,
        split: str = "test",
        subset: str | None = None,
        revision: str | None = None,
        id: str | None = None,
        reference: str | None = None,
        before: str = "",
        after: str = "",
        path: str | None = None,
        warmup: int = 2,
        limit: int | None = None,
        parity: str | None = None,
    ) -> None:
        check_choice(limit, parity)
        if not isinstance(warmup, int) or warmup < 0:
            raise ValueError(f"dataset.warmup={warmup}: must be an integer of at least 0")
        self.name = name
        rows = read_local(name, Path(path), split) if path else read_hub(name, hub, subset, split, revision)
        self._before, self._after = before, after
        self._fields = {"prompt": prompt, "id": id, "reference": reference}
        questions = [self._question(number, row) for number, row in enumerate(rows, 1)]
        if len(questions) <= warmup:
            raise ValueError(f"dataset {name}: {len(questions)} questions, of which {warmup} are for warming up")
        self.warmup = questions[len(questions) - warmup :]
        self.questions = choose(questions[: len(questions) - warmup], range(1, len(questions) + 1), limit, parity)

    def _question(self, number: int, row: Mapping[str, Any]) -> Question:
        missing = [field for field in self._fields.values() if field and field not in row]
        if missing:
            raise ValueError(
                f"dataset {self.name}: question {number} has no field {missing[0]!r}; it has {', '.join(row)}"
            )
        text, answer = (
            first_of(row[field]) if field else "" for field in (self._fields["prompt"], self._fields["reference"])
        )
        if not text:
            raise ValueError(f"dataset {self.name}: the field {self._fields['prompt']!r} of question {number} is empty")
        own = self._fields["id"]
        # Chat templates strip a message's outer white space.
        before, after = self._before.lstrip(), self._after.rstrip()
        text = text if before else text.lstrip()
        text = text if after else text.rstrip()
        return Question(self.name, str(row[own]) if own else f"{self.name}-{number}", before, text, after, answer)


def first_of(value: Any) -> str:
    """A text, or the first of a list of turns; nothing is an empty text."""
    if isinstance(value, list | tuple):
        value = value[0] if value else ""
    return str(value or "")


def read_hub(name: str, hub: str, subset: str | None, split: str, revision: str | None) -> Iterator[Mapping[str, Any]]:
    """The rows of a set on the hub; what was fetched once is taken from the cache of `datasets`.

    Raises:
        FileNotFoundError: it cannot be had; the message says what to do.
    """
    remedy = f"give a copy of its files: dataset.path=FILE (datasets.{name}.path=FILE in an experiment)"
    try:
        import datasets
    except ImportError:
        raise FileNotFoundError(
            f"dataset {name}: `pip install datasets` reads {hub} from the hub; or {remedy}"
        ) from None
    try:
        rows = datasets.load_dataset(hub, subset, split=split, revision=revision)
    except Exception as error:  # many kinds: no network, a gate, no such set, split or revision
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise FileNotFoundError(f"dataset {name}: the hub does not give {hub} ({reason}); {remedy}") from None
    return iter(rows)


def read_local(name: str, path: Path, split: str) -> Iterator[Mapping[str, Any]]:
    """The rows of a file, or of a folder's files that name the split (all of them if there is only one).

    Raises:
        FileNotFoundError: no such file, or none of a known kind.
        ValueError: a file that cannot be read.
    """
    files = sorted(f for f in path.rglob("*") if f.suffix in KINDS) if path.is_dir() else [path]
    if len(files) > 1:
        files = [file for file in files if split in str(file.relative_to(path))]
    if not files or not all(file.is_file() for file in files):
        raise FileNotFoundError(
            f"dataset {name}: path={path}: no such file, or no {', '.join(KINDS)} file of split {split!r} in it"
        )
    if len({file.suffix for file in files}) > 1 or files[0].suffix not in KINDS:
        raise FileNotFoundError(f"dataset {name}: path={path}: give files of one kind of {', '.join(KINDS)}")
    import datasets

    try:
        rows = datasets.load_dataset(KINDS[files[0].suffix], data_files=[str(file) for file in files], split="train")
    except Exception as error:  # whatever pyarrow and the builders raise
        reason = str(error.__cause__ or error).strip().splitlines()[0]
        raise ValueError(f"dataset {name}: path={path}: not readable ({reason})") from None
    return iter(rows)
