"""Nothing that is read can bring code along: no call evaluates text, unpickles, or trusts a checkpoint."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from ngram_trie.store.files import PROJECT

FORBIDDEN = {"eval", "exec", "pickle.load", "pickle.loads", "joblib.load", "marshal.loads", "os.system"}
FOLDERS = ("ngram_trie", "baselines", "data", "scripts")
FILES = [path for folder in FOLDERS for path in (PROJECT / folder).rglob("*.py")]


def dangerous(source: str) -> Iterator[str]:
    """The calls that could run code out of what they are given."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
        wrong = (
            name in FORBIDDEN
            or given.get("trust_remote_code", "False") != "False"
            or given.get("allow_pickle", "False") != "False"
            or given.get("shell", "False") != "False"
            or (name == "torch.load" and given.get("weights_only") != "True")
        )
        if wrong:
            yield f"line {node.lineno}: {ast.unparse(node)}"


@pytest.mark.parametrize(
    "source",
    ["eval(x)", "pickle.load(f)", "torch.load(f)", "f(trust_remote_code=True)", "np.load(f, allow_pickle=True)"],
)
def test_such_a_call_is_found(source: str) -> None:
    assert list(dangerous(source))


def test_there_is_none() -> None:
    assert len(FILES) > 100
    calls = [(path.name, call) for path in FILES for call in dangerous(path.read_text(encoding="utf-8"))]
    # machine code, which numba made for this user and keeps as a pickle
    assert [(name, call.partition(" ")[2].partition(" ")[2]) for name, call in calls] == [
        ("inlining.py", "pickle.loads(data)")
    ]
