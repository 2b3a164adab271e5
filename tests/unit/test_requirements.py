"""Locked versions and the floors in pyproject.toml agree; the wheel holds the library alone."""

import re
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

_REPOSITORY = Path(__file__).resolve().parents[2]


def needed() -> list[Requirement]:
    project = tomllib.loads((_REPOSITORY / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    texts = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    texts += [each for each in (*extras["docs"], *extras["dev"]) if not each.startswith("dspn[")]
    return [Requirement(each) for each in texts]


def lock() -> str:
    text = (_REPOSITORY / "requirements-dev.lock").read_text()
    return re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")


def test_every_locked_line_pins_one_version_by_hashes() -> None:
    line = re.compile(r"[a-z0-9-]+==[^ ;]+( ;[^\\]*?)?(\s+--hash=sha256:[0-9a-f]{64})+\s*")
    lines = lock().splitlines()

    assert len(lines) > 80
    assert [each for each in lines if not line.fullmatch(each)] == []
    assert not any(each.startswith("torch==") for each in lines)


@pytest.mark.parametrize("python", ["3.11.9", "3.12.1", "3.13.0"])
@pytest.mark.parametrize("system", ["linux", "darwin"])
def test_the_lock_has_one_version_of_all_that_pyproject_asks_for(python: str, system: str) -> None:
    environment = {
        "python_version": python.rpartition(".")[0],
        "python_full_version": python,
        "sys_platform": system,
        "platform_python_implementation": "CPython",
    }
    pins: dict[str, list[str]] = {}
    for each in lock().splitlines():
        pin = Requirement(each.partition("--hash")[0])
        if pin.marker is None or pin.marker.evaluate(environment):
            pins.setdefault(pin.name, []).append(str(pin.specifier).removeprefix("=="))

    assert [name for name, versions in pins.items() if len(versions) > 1] == []
    for requirement in needed():
        (version,) = pins.get(requirement.name, ["absent"])
        assert version != "absent", requirement
        assert requirement.specifier.contains(version), (requirement, version)


def test_the_wheel_has_the_library_and_nothing_of_the_experiments(tmp_path: Path) -> None:
    builders = pytest.importorskip("hatchling.builders.wheel")
    (wheel,) = builders.WheelBuilder(str(_REPOSITORY)).build(directory=str(tmp_path))
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        extras = re.findall(r"^Provides-Extra: (.+)$", archive.read(metadata).decode(), re.M)
    packages = {"/".join(name.split("/")[:2]) for name in names if name.startswith("dspn/")}
    assert {name.split("/")[0] for name in names} == {"dspn", metadata.split("/")[0]}
    assert "dspn/models" in packages
    assert not packages & {"dspn/baselines", "dspn/datasets", "dspn/experiments"}
    assert "lstm" not in extras
