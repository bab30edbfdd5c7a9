"""What comments, docstrings, YAML, the Makefile and pages name is there: files, `module.name`, choices and targets."""

from __future__ import annotations

import ast
import functools
import importlib
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from ngram_trie.methods import choices
from ngram_trie.store.files import PROJECT

FOLDERS = ("baselines", "configs", "data", "docs", "examples", "ngram_trie", "notebooks", "scripts", "tests")
#: History may name what is gone.
SOURCES = sorted(
    file
    for file in [*PROJECT.glob("*.md"), *PROJECT.glob("*.toml"), PROJECT / "Makefile", PROJECT / "Dockerfile"]
    + [file for folder in FOLDERS for file in (PROJECT / folder).rglob("*")]
    if file.suffix in (".py", ".yaml", ".md", ".toml", "") and file.is_file() and file.name != "CHANGELOG.md"
)
ENDINGS = "py|yaml|yml|md|csv|json|jsonl|toml|txt|svg|png|bin|css|js|j2|ipynb|npz|safetensors|gz"
#: Of other projects, and names that stand for any.
FOREIGN = re.compile(
    r"https?://.*|.*\b[A-Z]{3,}\b.*|.*[{<*$].*|(llma|samd|trivia|hagrid|hagrid-v1.0-en|sd-bench|tensorrt_llm|vllm)/.*|mine/.*|data/spec_bench/.*"
    r"|sdbench.py|ngram_worker.py|tree_template_.py|prepare_data.py|speculative_copying.py|module.py|custom_generate/.*"
)
#: What `name.attribute` means where the name is not the module of that name; settings (measure.repeats) are looked up.
OBJECTS = {"model", "prompt", "target", "training"}


@functools.cache
def names() -> dict[str, set[str]]:
    """Every module and class of the project by its last name, with what may stand behind a dot."""
    found: dict[str, set[str]] = {}
    for file in [
        file for folder in ("baselines", "data", "ngram_trie", "scripts") for file in (PROJECT / folder).rglob("*.py")
    ]:
        module = file.parent if file.name == "__init__.py" else file
        tree = ast.parse(file.read_text(encoding="utf-8"))
        own = found.setdefault(module.stem, set())
        if file.name == "__init__.py":
            own |= {part.stem for part in file.parent.iterdir()}
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, set()).update(members(node))
        for node in tree.body:
            own |= defined(node)
    return found


def defined(node: ast.AST) -> set[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return {node.name}
    if isinstance(node, ast.ImportFrom | ast.Import):
        return {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
    inner = [part for kind in ("body", "orelse", "handlers") for part in getattr(node, kind, [])]
    return {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}.union(
        *map(defined, inner)
    )


def members(node: ast.ClassDef) -> set[str]:
    own = {
        target.attr
        for target in ast.walk(node)
        if isinstance(target, ast.Attribute) and isinstance(target.ctx, ast.Store)
    }
    bases = {f"<{ast.unparse(base).rpartition('.')[2]}" for base in node.bases}
    return own.union(bases, *map(defined, node.body))


def has(owner: str, name: str) -> bool:
    there = names()[owner]
    bases = {base[1:] for base in there if base[0] == "<"} - {"ABC", "Protocol", "NamedTuple"}
    return name in there or any(base not in names() or has(base, name) for base in bases)


def told(file: Path) -> Iterator[tuple[int, str]]:
    """The lines that are for people: of a module its comments and docstrings, of YAML its comments, all of a page."""
    text = file.read_text(encoding="utf-8")
    if file.suffix != ".py":
        is_page = file.suffix == ".md"
        yield from ((n, line) for n, line in enumerate(text.splitlines(), 1) if is_page or "#" in line)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (
            doc := ast.get_docstring(node, clean=False)
        ):
            first = node.body[0].lineno
            yield from ((first + n, line) for n, line in enumerate(doc.splitlines()))


def is_there(path: str, file: Path) -> bool:
    """A file of this project, or one that a run writes into results/local."""
    places = [PROJECT, file.parent, PROJECT / "ngram_trie", PROJECT / "results", PROJECT / "tests"]
    return path.startswith("results/local") or any((place / path).exists() for place in places)


@functools.cache
def files() -> set[str]:
    return {file.name for folder in FOLDERS for file in (PROJECT / folder).rglob("*.py")}


def wrong(line: str, file: Path) -> Iterator[str]:
    """The names in a line that lead nowhere."""
    for path in re.findall(rf"(?<![\w/.:~-])((?:[\w.-]+/)+[\w.-]+\.(?:{ENDINGS}))\b(?![/*{{])", line):
        if not FOREIGN.fullmatch(path) and not is_there(path, file):
            yield path
    for name in re.findall(r"(?<![\w/.*-])(\w+\.py)\b", line):
        if name not in files() and not FOREIGN.fullmatch(name):
            yield name
    for dotted in re.findall(r"`([A-Za-z_]\w*(?:\.\w+)+)(?:\(\))?`", line):
        parts = dotted.split(".")
        parts = parts[1:] if parts[0] in ("ngram_trie", "baselines", "data") and len(parts) > 2 else parts
        owner, name = parts[-2:]
        if owner in OBJECTS or name == "NAME" or name in ENDINGS.split("|") or is_setting(parts):
            continue
        if owner in names():
            if not has(owner, name) and not hasattr(external(parts[0]), name):
                yield dotted
        elif name[:1].isupper() and owner.islower() and not external(parts[0]):
            yield dotted
    yield from gone_commands(line)
    for group, name in re.findall(r"(?<![\w.@-])(\w+)=([a-z]\w+)\b(?![./(])", line):
        known = choices().get(group, {})
        if known and name not in known and name not in ("null", "name", "none", *OWN):
            yield f"{group}={name}"


def gone_commands(line: str) -> Iterator[str]:
    """The targets and modules that a line would run and that are not there."""
    for target in re.findall(r"(?<!to )\bmake ([a-z][a-z0-9]*-[a-z0-9-]+)", line):
        if not re.search(rf"^[a-z0-9 -]*\b{target}\b[a-z0-9 -]*:", MAKEFILE, re.M):
            yield f"make {target}"
    for module in re.findall(r"python -m (scripts(?:\.\w+)+)", line):
        if (
            module != "scripts.thing"
            and not (PROJECT / f"{module.replace('.', '/')}.py").exists()
            and module.rpartition(".")[2] != "NAME"
        ):
            yield module


def is_setting(parts: list[str]) -> bool:
    """Whether a dotted name is a group of configs/ and a field of one of its members."""
    return len(parts) == 2 and any(
        parts[1] in yaml.safe_load(file.read_text(encoding="utf-8")) for file in choices().get(parts[0], {}).values()
    )


#: Of the examples of docs/extending.md.
OWN = ("successors", "sentences")
MAKEFILE = (PROJECT / "Makefile").read_text(encoding="utf-8")


@functools.cache
def external(package: str) -> object:
    try:
        return importlib.import_module(package)
    except ImportError:
        return None


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: str(file.relative_to(PROJECT)))
def test_what_is_named_is_there(file: Path) -> None:
    gone = [f"{number}: {name}" for number, line in told(file) for name in wrong(line, file)]
    if file.suffix == ".py" and "tests" not in file.parts:  # messages, too, say what to run
        gone += list(gone_commands(file.read_text(encoding="utf-8")))
    assert not gone, f"{file.relative_to(PROJECT)} names what is not there: {'; '.join(gone)}"


@pytest.mark.parametrize(
    "line",
    [
        "see docs/gpu.md", "`forced.TeacherForced` makes it", "`Drafter.sizes` says", "read `prepare.prepared`",
        "by `make bench-gpus`", "as budget=equals does", "one of forced.py",
    ],
)  # fmt: skip
def test_what_is_gone_is_found(line: str) -> None:
    assert list(wrong(line, PROJECT / "README.md"))
