"""Where data sets are looked for, and what is said when they are not there or not right."""

import gzip
import hashlib
from pathlib import Path
from typing import Any

import pytest

from dspn.errors import DataError
from experiments.datasets import data_directory as directory_of
from experiments.datasets import (
    read_arabic_digits,
    read_japanese_vowels,
    read_ozone,
    read_pen_digits,
    read_pen_trajectories,
    read_vicon,
)
from experiments.datasets.real.files import DataFile, Source, cache_directory, verified_contents
from experiments.datasets.real.vicon import SOURCE as VICON

TEXTS = {"one.txt": b"1 2 3\n", "deep/two.txt": b"4 5 6\n" * 1000}
SOURCE = Source(
    "Tiny",
    "tiny",
    "a shelf",
    tuple(
        DataFile(name, len(text), hashlib.sha256(text).hexdigest()) for name, text in TEXTS.items()
    ),
)


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A data directory with the two files, the second compressed."""
    folder = tmp_path / "tiny"
    (folder / "deep").mkdir(parents=True)
    (folder / "one.txt").write_bytes(TEXTS["one.txt"])
    (folder / "deep" / "two.txt.gz").write_bytes(gzip.compress(TEXTS["deep/two.txt"]))
    return tmp_path


# Directories


def test_the_directory_given_comes_first_then_the_variable_then_the_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DSPN_DATA", "/from/variable")
    assert directory_of(tmp_path) == tmp_path
    assert directory_of(str(tmp_path)) == tmp_path
    assert directory_of() == Path("/from/variable")
    monkeypatch.setenv("DSPN_DATA", "")
    assert directory_of().name == "dspn"
    monkeypatch.delenv("DSPN_DATA")
    assert directory_of().name == "dspn"


@pytest.mark.parametrize(
    ("platform", "environment", "expected"),
    [
        ("linux", {}, "/home/me/.cache/dspn"),
        ("linux", {"XDG_CACHE_HOME": "/var/cache/me"}, "/var/cache/me/dspn"),
        ("linux", {"XDG_CACHE_HOME": "relative"}, "/home/me/.cache/dspn"),
        ("linux", {"XDG_CACHE_HOME": ""}, "/home/me/.cache/dspn"),
        ("freebsd14", {}, "/home/me/.cache/dspn"),
        ("darwin", {"XDG_CACHE_HOME": "/elsewhere"}, "/home/me/Library/Caches/dspn"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/dspn"),
        ("win32", {}, "/home/me/AppData/Local/dspn"),
    ],
)
def test_the_cache_is_where_the_platform_has_it(
    platform: str, environment: dict[str, str], expected: str
) -> None:
    assert cache_directory(platform, environment, Path("/home/me")) == Path(expected)


@pytest.mark.parametrize("wrong", [3, b"bytes", ["list"]])
def test_a_directory_that_is_no_path_is_refused(wrong: Any) -> None:
    with pytest.raises(DataError, match="`directory` must be the path of a folder"):
        directory_of(wrong)


# Contents


def test_contents_are_read_plain_or_compressed(tiny: Path) -> None:
    assert list(verified_contents(SOURCE, tiny)) == list(TEXTS.values())


def test_the_variable_names_the_directory(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSPN_DATA", str(tiny))
    assert len(list(verified_contents(SOURCE))) == 2


@pytest.mark.parametrize(
    ("read", "named"),
    [
        (read_ozone, ["ozLevel", "eighthr.data", "ozone", "dataset/172"]),
        (read_pen_digits, ["PenDigits", "pendigits.tra, pendigits.tes", "dataset/81"]),
        (read_pen_trajectories, ["pendigits-orig.tra, pendigits-orig.tes", "dataset/81"]),
        (read_arabic_digits, ["ArabicDigits", "Train_Arabic_Digit.txt", "dataset/195"]),
        (read_japanese_vowels, ["JapaneseVowels", "ae.train, ae.test", "dataset/128"]),
        (read_vicon, ["Vicon", "sub1/aggressive/Elbowing.txt", "196 more", "semnan-university-ai"]),
    ],
)
def test_missing_files_are_named_with_their_folder_and_origin(
    read: Any, named: list[str], tmp_path: Path
) -> None:
    with pytest.raises(DataError) as found:
        read(tmp_path / "nowhere")
    message = str(found.value)
    for text in [*named, str(tmp_path / "nowhere"), "`directory`", "DSPN_DATA"]:
        assert text in message


def test_only_what_is_missing_is_named(tiny: Path) -> None:
    (tiny / "tiny" / "one.txt").unlink()
    with pytest.raises(DataError, match=r"data set Tiny needs the files one\.txt in the folder"):
        list(verified_contents(SOURCE, tiny))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"1 2 4\n", "must have the SHA-256 .* but has .* a shelf"),
        (b"1 2\n", "must hold 6 bytes, but holds 4"),
        (b"", "must hold 6 bytes, but holds 0"),
        (b"1 2 3\n" * 1000, "must hold 6 bytes, but holds more"),
    ],
)
def test_damaged_files_are_refused(tiny: Path, content: bytes, message: str) -> None:
    (tiny / "tiny" / "one.txt").write_bytes(content)
    with pytest.raises(DataError, match=message):
        list(verified_contents(SOURCE, tiny))


def test_damaged_archives_are_refused(tiny: Path) -> None:
    path = tiny / "tiny" / "deep" / "two.txt.gz"
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"no archive", b"\x1f\x8b" + whole[5:]):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"two\.txt\.gz cannot be read: .*; get it again"):
            list(verified_contents(SOURCE, tiny))


def test_an_archive_of_something_else_is_refused_without_unpacking_all_of_it(tiny: Path) -> None:
    path = tiny / "tiny" / "deep" / "two.txt.gz"
    path.write_bytes(gzip.compress(bytes(50_000_000)))
    with pytest.raises(DataError, match="must hold 6000 bytes, but holds more"):
        list(verified_contents(SOURCE, tiny))


def test_vicon_has_two_hundred_recordings_of_ten_people() -> None:
    paths = [file.path for file in VICON.files]
    assert len(set(paths)) == 200
    assert {path.split("/")[0] for path in paths} == {f"sub{i}" for i in range(1, 11)}
    assert len({file.sha256 for file in VICON.files}) == 200
