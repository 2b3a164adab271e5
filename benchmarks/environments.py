"""An environment for each peer under .bench, because what they depend on clashes."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = ROOT / ".bench"
PEERS: Final = ("hmmlearn", "pomegranate", "dynamax")

_INSTALL_LIMIT_S: Final = 1800
_VERSION_OF: Final = "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))"


@final
@dataclass(frozen=True)
class Environment:
    """The interpreter that runs a peer, or the reason why there is none."""

    name: str
    python: str | None
    version: str | None
    problem: str | None = None


def _requirements(name: str) -> Path:
    return Path(__file__).parent / "requirements" / f"{name}.txt"


def pinned_version(name: str) -> str:
    """The version of the peer itself that its requirements name."""
    for line in _requirements(name).read_text().splitlines():
        if line.startswith(f"{name}=="):
            return line.split("==")[1].strip()
    raise ValueError(f"requirements/{name}.txt must pin {name} with '=='.")


def _version(name: str, python: str) -> str | None:
    if not Path(python).exists():
        return None
    found = subprocess.run([python, "-c", _VERSION_OF, name], capture_output=True, text=True)
    return found.stdout.strip() if found.returncode == 0 else None


def _interpreter(name: str) -> str:
    inside = "Scripts/python.exe" if sys.platform == "win32" else "bin/python"
    return str(FOLDER / name / inside)


def _install(name: str, python: str) -> str | None:
    """What went wrong, if anything."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / ".gitignore").write_text("*\n")
    commands = [[python, "-m", "pip", "install", "-q", "-r", str(_requirements(name))]]
    if not Path(python).exists():
        commands.insert(0, [sys.executable, "-m", "venv", str(FOLDER / name)])
    for command in commands:
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_LIMIT_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{type(error).__name__} while installing"
        if done.returncode != 0:
            return (done.stderr.strip().splitlines() or ["installation failed"])[-1][:300]
    return None


def environment(name: str, *, install: bool) -> Environment:
    """The peer's environment, made if need be; without `install`, its own or the present one."""
    pin, own = pinned_version(name), _interpreter(name)
    if _version(name, own) == pin:
        return Environment(name, own, pin)
    if not install:
        if _version(name, sys.executable) == pin:
            return Environment(name, sys.executable, pin)
        return Environment(name, None, None, f"{name} {pin} is not installed")
    problem = _install(name, own)
    if problem is None and _version(name, own) == pin:
        return Environment(name, own, pin)
    return Environment(name, None, None, problem or f"{name} {pin} is not there after installing")
