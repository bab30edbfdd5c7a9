"""Files of installed packages: found without running the package, and in one line what is missing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ngram_trie.store.files import PINNED, PROJECT, NotInstalled, cache_folder, package_file, replacing


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "some_package"
    (folder / "part").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise SystemExit('the package was imported')")
    (folder / "part" / "words.txt").write_text("a word")
    monkeypatch.syspath_prepend(str(tmp_path))
    return folder


def test_a_file_of_a_package_is_found_and_nothing_of_it_is_run(package: Path) -> None:
    assert package_file("package:some_package/part/words.txt").read_text() == "a word"
    assert "some_package" not in sys.modules


def test_any_other_text_is_a_path() -> None:
    assert package_file("some/folder") == Path("some/folder")
    assert package_file("/package:a/b") == Path("/package:a/b")


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        (
            "package:other_package/a.bin",
            NotInstalled,
            "package other_package is not installed: pip install --no-deps other-package",
        ),
        (
            "package:some_package/none.txt",
            FileNotFoundError,
            "package:some_package/none.txt: the installed package some_package holds no such file: another version of "
            "it?",
        ),
    ],
)
def test_what_is_missing_is_one_line(package: Path, name: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error) as raised:
        package_file(name)
    assert str(raised.value).startswith(said) and "\n" not in str(raised.value)


def test_what_to_install_is_what_the_constraints_pin() -> None:
    pinned = (PROJECT / "constraints.txt").read_text().splitlines()
    for package, install in PINNED.items():
        name = install.partition("==")[0]
        assert name == package.replace("_", "-")
        same = [line for line in pinned if line.partition("==")[0] == name]
        assert same in ([], [install])  # those with hashes or apart are pinned elsewhere


def test_a_file_that_could_not_be_written_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    path.write_text("old")
    with pytest.raises(OSError, match=r"No space left on device: .*kept\.json") as error, replacing(path) as unfinished:
        unfinished.write_text("half")
        raise OSError(28, "No space left on device")
    assert error.value.filename == str(path)
    assert [each.name for each in tmp_path.iterdir()] == ["kept.json"] and path.read_text() == "old"


def test_a_user_without_a_home_has_a_folder_for_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """No HOME and no entry in passwd, as in some containers."""
    for name in ("HOME", "NGRAM_TRIE_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    assert cache_folder() == cache_folder() and cache_folder().is_dir()
