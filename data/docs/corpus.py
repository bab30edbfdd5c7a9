"""The docstrings of six packages, and passages of 100 words cut from them.

They ship with the project (docstrings.json.gz): another Python, another build or another version of a package has
another text here and there. `read_installed` makes them anew. Source files are parsed, not imported: the result depends
on their text alone, and no package runs code. The exception are texts that a package composes when it is imported
(torch fills shared arguments into most of its docstrings); they are read from the imported object.
"""

from __future__ import annotations

import ast
import gzip
import importlib
import inspect
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import metadata
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

from ngram_trie.data.retrieval.corpus import Passage
from ngram_trie.store.files import PROJECT, content_hash, write_atomically

#: Distributions of constraints.txt and the module each installs.
PACKAGES = {
    "numpy": "numpy", "scipy": "scipy", "pandas": "pandas", "scikit-learn": "sklearn", "torch": "torch",
    "transformers": "transformers",
}  # fmt: skip
COMMITTED = Path(__file__).with_name("docstrings.json.gz")
FOLDER = PROJECT / "results" / "local" / "docs"
#: A shorter docstring explains little. A passage is as long as those of Wikipedia in psgs_w100.
MIN_WORDS, PASSAGE_WORDS = 40, 100
#: Folders and files that are not for those who use a package, and the models of transformers: hundreds, each with the
#: same texts.
SKIPPED = {
    "_vendor", "ao", "benchmark", "bundled_inputs.py", "cli", "compiler", "conftest.py", "continuous_batching",
    "core_model_loading.py", "cpp_extension.py", "distributed", "distutils", "dynamic_module_utils.py", "export",
    "exporters", "externals", "f2py", "fftpack", "fx", "integrations", "jit", "loss", "masking_utils.py",
    "modeling_outputs.py", "models", "mtia", "odr", "onnx", "package", "quantization", "quantizers", "tensorboard",
    "test", "testing", "testing_utils.py", "tests", "tokenization_mistral_common.py", "trainer_pt_utils.py", "xpu",
}  # fmt: skip
#: A numpy-style section of examples, up to the next section; and elsewhere from a line after >>> to the next empty one.
_SESSION = re.compile(
    r"\n[ \t]*Examples?\n[ \t]*-{3,}\n(?:.*\n)*?(?=.*\n[ \t]*-{3,}\n|\Z)"
    r"|(?:\n\s*Examples?::?)?\n\s*>>>.*(?:\n[ \t]*\S.*)*"
)
#: A place that the package fills when it is imported.
_UNFILLED = re.compile(r"%\(\w+\)s")


@dataclass(frozen=True)
class Documentation:
    """The docstrings of some packages.

    Attributes:
        versions: of the packages.
        docstrings: each with at least MIN_WORDS words by its symbol, a dotted name; sorted by symbol.
    """

    versions: dict[str, str]
    docstrings: dict[str, str]

    @cached_property
    def passages(self) -> dict[str, Passage]:
        """By id: the symbol and the passage's number in its docstring, from 1, as "numpy.where#1"."""
        found = [passage for symbol, text in self.docstrings.items() for passage in split(symbol, text)]
        return {passage.id: passage for passage in found}

    @cached_property
    def hash(self) -> str:
        """Identity of the texts."""
        return content_hash(self.docstrings)


def split(symbol: str, text: str) -> list[Passage]:
    """A docstring in passages of PASSAGE_WORDS words, the last one shorter; line breaks inside stay."""
    ends = [word.end() for word in re.finditer(r"\S+", text)]
    cuts = [0, *ends[PASSAGE_WORDS - 1 : -1 : PASSAGE_WORDS], ends[-1]]
    return [
        Passage(f"{symbol}#{number}", symbol, inspect.cleandoc(text[start:end]).strip())
        for number, (start, end) in enumerate(pairwise(cuts), 1)
    ]


@cache
def documentation(file: Path = COMMITTED) -> Documentation:
    """The docstrings that ship with the project."""
    return Documentation(**json.loads(gzip.decompress(file.read_bytes())))


def write(docs: Documentation, file: Path = COMMITTED) -> None:
    """Write docstrings where `documentation` reads them: the same bytes for the same texts."""
    text = json.dumps({"versions": docs.versions, "docstrings": docs.docstrings}, ensure_ascii=False, indent=0)
    write_atomically(file, gzip.compress(text.encode(), mtime=0))


def write_passages(docs: Documentation, file: Path = FOLDER / "passages.jsonl") -> None:
    """Write the passages, a line each, for indexes and datastores."""
    rows = [json.dumps(vars(passage), ensure_ascii=False) for passage in docs.passages.values()]
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, "\n".join(rows) + "\n")


def read_installed(packages: dict[str, str] = PACKAGES) -> Documentation:
    """The docstrings of what is installed.

    Args:
        packages: module by distribution.

    Raises:
        FileNotFoundError: a package is not installed.
    """
    versions = {name: version(name) for name in packages}
    return Documentation(versions, read_docstrings([source_folder(module) for module in packages.values()]))


def version(distribution: str) -> str:
    """Raises:
    FileNotFoundError: it is not installed.
    """
    try:
        # a local label (2.13.0+cpu) says how it was built, and its Python files are the same
        return metadata.version(distribution).partition("+")[0]
    except metadata.PackageNotFoundError:
        raise FileNotFoundError(
            f"the documentation of {distribution} is read, which is not installed: "
            f"`pip install -c constraints.txt {distribution}`"
        ) from None


def source_folder(module: str) -> Path:
    """Where a package's source files lie; it is not imported."""
    spec = find_spec(module)
    assert spec and spec.submodule_search_locations, f"{module}: a distribution without its package"
    return Path(next(iter(spec.submodule_search_locations)))


def counts(docs: Documentation) -> dict[str, dict[str, int]]:
    """Docstrings, words and passages of each package, and of all."""
    table: dict[str, dict[str, int]] = {}
    for symbol, text in docs.docstrings.items():
        for name in (symbol.partition(".")[0], "all"):
            row = table.setdefault(name, {"docstrings": 0, "words": 0, "passages": 0})
            row["docstrings"] += 1
            row["words"] += len(text.split())
            row["passages"] += len(split(symbol, text))
    return table


def read_docstrings(folders: Sequence[Path]) -> dict[str, str]:
    """The docstrings of at least MIN_WORDS words below package folders, by symbol, sorted.

    Examples (sessions after >>>, and sections of them) are left out: most of it is numbers that a session printed, and
    nobody learns from 100 words of these what a function does. So are templates that a package fills when it is
    imported, and files that cannot be parsed (syntax of another Python). A text that several symbols have is kept for
    the shortest name, the first of these in the alphabet.
    """
    first: dict[str, str] = {}
    for folder in folders:
        for symbol, text in _Package(folder).docstrings():
            if _UNFILLED.search(text):
                continue
            if len((prose := _SESSION.sub("\n", text + "\n").strip()).split()) >= MIN_WORDS:
                first.setdefault(symbol, prose)
    owners: dict[str, str] = {}
    for symbol in sorted(first, key=lambda name: (len(name), name)):
        owners.setdefault(first[symbol], symbol)
    return {symbol: text for text, symbol in sorted(owners.items(), key=lambda pair: pair[1])}


class _Package:
    """The docstrings of one package folder."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._name = folder, folder.name
        #: Public package -> the modules from which it takes a name, or all names under "*".
        self._exports: dict[str, dict[str, list[str]]] = {}

    def docstrings(self) -> Iterator[tuple[str, str]]:
        """Pairs of symbol and cleaned text, in the order of the files."""
        files = sorted(path for path in self._folder.rglob("*.py") if not SKIPPED & set(self._parts(path)))
        for path in files:
            if path.name == "__init__.py" and (tree := parsed(path.read_bytes())):
                self._exports[self._module(path)] = imported(tree, self._module(path))
        for path in files:
            module, source = self._module(path), path.read_bytes()
            if not self._is_read(module) or (tree := parsed(source)) is None:
                continue
            found = [(module, ast.get_docstring(tree) or ""), *self._members(tree, module)]
            if any(mark in source for mark in (b"add_newdoc", b"add_docstr", b".__doc__ =")):  # walking takes long
                found += self._added(tree, module)
            yield from (pair for pair in found if f"{pair[0]}.".startswith(f"{self._name}.") and "._" not in pair[0])

    def _is_read(self, module: str) -> bool:
        """Whether a module is public, or a public package takes names from it or from a package that it is in."""
        if "._" not in module:
            return True
        public = [names for package, names in self._exports.items() if "._" not in package]
        sources = {source for names in public for taken in names.values() for source in taken} - {self._name}
        return any(f"{module}.".startswith(f"{source}.") for source in sources)

    def _parts(self, path: Path) -> tuple[str, ...]:
        return path.relative_to(self._folder).parts

    def _module(self, path: Path) -> str:
        parts = [part.removesuffix(".py") for part in self._parts(path)]
        return ".".join([self._name, *(parts[:-1] if parts[-1] == "__init__" else parts)])

    def _members(self, tree: ast.AST, module: str, owner: str = "") -> Iterator[tuple[str, str]]:
        """Classes and functions that users may call, those in classes and in if and try blocks too."""
        for node in ast.iter_child_nodes(tree):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                if node.name.startswith("_"):
                    continue
                name = f"{owner}.{node.name}" if owner else self._public(module, node)
                if text := ast.get_docstring(node):
                    yield name, text
                if isinstance(node, ast.ClassDef):
                    yield from self._members(node, module, name)
            elif isinstance(node, ast.If | ast.Try | ast.With):
                yield from self._members(node, module, owner)

    def _public(self, module: str, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
        """The name that users know a module's class or function by."""
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Call) and _dotted(decorator.func).endswith("set_module"):
                return f"{_text(decorator.args[0]) or module}.{node.name}"
        return self._exported(module, node.name)

    def _exported(self, module: str, name: str) -> str:
        """`name` in the outermost package that takes it from `module` or from a package that `module` is in; else in
        the package of a private module, if that takes all names of such modules; else in `module`.
        """
        parts = module.split(".")
        for stop in range(1, len(parts) + 1):
            package = ".".join(parts[:stop])
            taken = self._exports.get(package, {})
            sources = [source for source in (*taken.get(name, ()), *taken.get("*", ())) if source != package]
            if any(f"{module}.".startswith(f"{source}.") for source in sources):
                return f"{package}.{name}"
        package, _, last = module.rpartition(".")
        stars = self._exports.get(package, {}).get("*", ())
        if last.startswith("_") and any(source.startswith(f"{package}._") for source in stars):
            return f"{package}.{name}"
        return f"{module}.{name}"

    def _added(self, tree: ast.Module, module: str) -> Iterator[tuple[str, str]]:
        """Texts that are given to an object elsewhere: numpy's and scipy's add_newdoc, torch's add_docstr, and what is
        assigned to __doc__.
        """
        for node in ast.walk(tree):
            value = node.value if isinstance(node, ast.Assign | ast.Expr) else None
            target = node.targets[0] if isinstance(node, ast.Assign) else None
            if isinstance(target, ast.Attribute) and target.attr == "__doc__" and value is not None:
                symbol = self._exported(module, _dotted(target.value))
                yield symbol, inspect.cleandoc(_text(value) or self._composed(symbol))
            if not isinstance(value, ast.Call) or not value.args:
                continue
            called = _dotted(value.func).rpartition(".")[2]
            if called == "add_newdoc":
                yield from self._newdoc([*map(_literal, value.args)], module)
            elif called in ("add_docstr", "_add_docstr", "add_docstr_all", "_add_docstr_all"):
                if isinstance(target, ast.Name):
                    symbol = f"{module}.{target.id}"
                elif called.endswith("_all"):
                    symbol = f"{self._name}.Tensor.{_text(value.args[0])}"
                else:
                    symbol = _dotted(value.args[0])
                text = _text(value.args[1]) if len(value.args) > 1 else ""
                yield symbol, inspect.cleandoc(self._composed(symbol) if text is None else text)

    def _newdoc(self, given: list[Any], module: str) -> Iterator[tuple[str, str]]:
        """add_newdoc(name, text), or (place, name, text) where text may be (member, text) or a list of such pairs."""
        if len(given) == 2:
            given = [module.rpartition(".")[0], *given]
        place, name, texts = (*given, None)[:3]
        if not isinstance(place, str) or not isinstance(name, str) or name.startswith("_"):
            return
        symbol = self._exported(place, name)
        for text in texts if isinstance(texts, list) else [texts]:
            member, text = text if isinstance(text, tuple) and len(text) == 2 else ("", text)
            if isinstance(text, str) and not str(member).startswith("_"):
                yield (f"{symbol}.{member}" if member else symbol), inspect.cleandoc(text)

    def _composed(self, symbol: str) -> str:
        """The docstring of an object that has to be imported for it; "" if it has none."""
        package, *names = symbol.split(".")
        if package != self._name:
            return ""
        try:
            found: Any = importlib.import_module(package)
            for name in names:
                found = getattr(found, name)
        except (ImportError, AttributeError):
            return ""
        return found.__doc__ if isinstance(found.__doc__, str) else ""


def parsed(source: bytes) -> ast.Module | None:
    """None for a file that is no Python of this version."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError):
        return None


def imported(tree: ast.Module, package: str) -> dict[str, list[str]]:
    """The modules from which a package's __init__ takes each name ("*": all of a module's names)."""
    names: dict[str, list[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            outer = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            source = ".".join([*outer, *([node.module] if node.module else [])])
            for alias in node.names:
                if alias.asname in (None, alias.name):
                    names.setdefault(alias.name, []).append(source)
    return names


def _dotted(node: ast.expr) -> str:
    """`a.b.c` of such an expression; "" of any other."""
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        return None


def _text(node: ast.expr) -> str | None:
    """The string that an expression spells out; None of any other."""
    found = _literal(node)
    return found if isinstance(found, str) else None
