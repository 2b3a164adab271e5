"""Processes that fork from one which has imported everything already, so that each begins at once.

A test file that is run as a program ends with `serve(tasks)`. `Forks` starts it, and `Forks.start`
asks it for a process that does one of the tasks as if it had just been started: with standard
streams of its own, the usual signals, and the usual end of the interpreter.
"""

import gc
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

TESTS = Path(__file__).resolve().parents[1]
STREAMS = ("stdin", "stdout", "stderr")


class Fork:
    """One process, with the test's ends of its pipes."""

    def __init__(self, link: socket.socket, pid: int, pipes: Mapping[str, IO[str]]) -> None:
        self._link, self.pid, self._pipes = link, pid, pipes
        self._status: int | None = None

    def __getattr__(self, name: str) -> IO[str]:
        """The pipe of a stream."""
        return self._pipes[name]

    def until(self, word: str, stream: str = "stdout") -> None:
        """Reads to the first line with a word in it."""
        for line in self._pipes[stream]:
            if word in line:
                return
        raise AssertionError(self._pipes["stderr"].read())

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self) -> int:
        """The status of the process, as `subprocess` has it, once it has ended."""
        if self._status is None:
            self._status = int(_ask(self._link, {"wait": self.pid}))
        return self._status

    def communicate(self, text: str = "") -> tuple[str, str]:
        """What the process prints, and its errors, until it ends; these must be short."""
        if "stdin" in self._pipes:
            self._pipes["stdin"].write(text)
            self._pipes["stdin"].close()
        said = tuple(
            self._pipes[name].read() if name in self._pipes else "" for name in STREAMS[1:]
        )
        self.wait()
        return said[0], said[1]

    def __enter__(self) -> "Fork":
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is None:
            self.send_signal(signal.SIGKILL)
            self.wait()
        for pipe in self._pipes.values():
            pipe.close()


def _ask(link: socket.socket, request: dict[str, Any], files: list[int] | None = None) -> Any:
    socket.send_fds(link, [json.dumps(request).encode()], files or [])
    answer = link.recv(1 << 16)
    assert answer, "the process that forks has ended"
    return json.loads(answer)


class Forks:
    """The program that forks; `environment` is that of all its processes, `settings` of Popen."""

    def __init__(self, program: str, environment: Mapping[str, str], **settings: Any) -> None:
        self._link, there = socket.socketpair()
        self._link.settimeout(120)
        paths = os.pathsep.join([str(TESTS), *filter(None, [environment.get("PYTHONPATH")])])
        with there:
            self._process = subprocess.Popen(
                [sys.executable, program, str(there.fileno())],
                env={**environment, "PYTHONPATH": paths},
                pass_fds=[there.fileno()],
                **settings,
            )

    def start(self, task: str, *words: object, cwd: Path = TESTS, **streams: str | None) -> Fork:
        """A process that does a task.

        Args:
            task: The name of the task.
            words: What it is called with.
            cwd: The working directory.
            streams: What a standard stream is instead of a pipe: None if it is closed, the path of
                a file, or "gone" for a pipe that nobody reads.
        """
        pipes: dict[str, IO[str]] = {}
        files: dict[str, int] = {}
        for name in STREAMS:
            kind = streams.get(name, "pipe")
            if kind in ("pipe", "gone"):
                ends = os.pipe()
                own, files[name] = ends[::-1] if name == "stdin" else ends
                if kind == "gone":
                    os.close(own)
                else:
                    pipes[name] = os.fdopen(own, "w" if name == "stdin" else "r", encoding="utf-8")
            elif kind is not None:
                files[name] = os.open(kind, os.O_RDWR)
        request = {"task": task, "words": [str(word) for word in words], "cwd": str(cwd)}
        pid = int(_ask(self._link, {**request, "streams": list(files)}, list(files.values())))
        for file in files.values():
            os.close(file)
        return Fork(self._link, pid, pipes)

    def end(self) -> None:
        self._link.close()
        self._process.wait(timeout=60)


def serve(tasks: Mapping[str, Callable[..., object]]) -> None:
    """Forks for as long as the test asks for it; each fork does its task and returns from here."""
    link = socket.socket(fileno=int(sys.argv[1]))
    gc.freeze()  # what all have in common is not looked at, and so not copied, by each
    while True:
        request, files, _, _ = socket.recv_fds(link, 1 << 16, len(STREAMS))
        if not request:
            return
        asked = json.loads(request)
        if "wait" in asked:
            answer = os.waitstatus_to_exitcode(os.waitpid(asked["wait"], 0)[1])
        else:
            answer = os.fork()
            if not answer:
                break
            for file in files:
                os.close(file)
        link.sendall(json.dumps(answer).encode())
    link.close()
    os.chdir(asked["cwd"])
    given = dict(zip(asked["streams"], files, strict=True))
    for number, name in enumerate(STREAMS):
        stream = None
        if name in given:
            os.dup2(given[name], number)
            os.close(given[name])
            mode, buffering = ("r" if number == 0 else "w"), (1 if name == "stderr" else -1)
            stream = os.fdopen(number, mode, buffering, encoding="utf-8", closefd=False)
        else:
            os.close(number)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    # A process started in the background may have been told to ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    tasks[asked["task"]](*asked["words"])
