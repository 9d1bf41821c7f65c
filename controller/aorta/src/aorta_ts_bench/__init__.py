"""Runs one ts-bench trial per AORTA trial. No benchmark logic here: the controller decides everything."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, ClassVar

from aorta.workloads import Workload, WorkloadResult

__all__ = ["TsBenchWorkload"]

#: Names the controller when it is not on PATH.
CONTROLLER_VARIABLE = "TS_BENCH_CONTROLLER"

#: Exit statuses under which nothing was measured (design, section 2).
CONFIG_ERROR, HOST_ERROR = 64, 69

#: Seconds that validation may take; it starts nothing.
DRY_RUN_LIMIT_SEC = 120

#: Seconds to wait for an interrupted controller, which promises to be done in four (design, section 6).
CLEANUP_LIMIT_SEC = 30

_RESULT_FIELDS = {field.name for field in dataclasses.fields(WorkloadResult)}


class TsBenchWorkload(Workload):
    """TokenSpeed serving benchmark, run by the ts-bench controller."""

    trial_isolation_supported: ClassVar[frozenset[str]] = frozenset({"in_process", "process"})

    def setup(self) -> None:
        """Validates the trial and this host; raises before anything is started."""
        self._controller = _find_controller()
        self._request = _encode(self.config)
        with tempfile.TemporaryDirectory(prefix="ts-bench-") as folder:
            document = Path(folder) / "result.json"
            try:
                done = subprocess.run(
                    [self._controller, "run", "--config", "-", "--result", str(document), "--dry-run"],
                    input=self._request,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    timeout=DRY_RUN_LIMIT_SEC,
                    check=False,
                )
            except subprocess.TimeoutExpired as late:
                raise RuntimeError(f"ts_bench: validation took more than {DRY_RUN_LIMIT_SEC} s") from late
            if done.returncode != 0:
                raise _refusal(done.returncode, document, _tail(done.stderr))

    def run(self) -> WorkloadResult:
        """Runs the trial; a failed trial is a result, a controller without a result is an exception."""
        with tempfile.TemporaryDirectory(prefix="ts-bench-") as folder:
            document = Path(folder) / "result.json"
            command = [self._controller, "run", "--config", "-", "--result", str(document), "--follow-parent"]
            with self._log() as log, _forwarding() as forward:
                child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=log)
                forward.to(child)
                try:
                    child.communicate(self._request)
                except BaseException:
                    # KeyboardInterrupt among them. Later than this it cleans up alone: it follows its parent.
                    child.send_signal(signal.SIGTERM)
                    with suppress(subprocess.TimeoutExpired):
                        child.wait(CLEANUP_LIMIT_SEC)
                    raise
            if child.returncode in (CONFIG_ERROR, HOST_ERROR):
                raise _refusal(child.returncode, document, "")
            return _result(document, child.returncode)

    @contextmanager
    def _log(self) -> Iterator[IO[bytes] | None]:
        """The controller's own words: beside AORTA's logs when it saves them, else where AORTA's go."""
        prefix = self.config.get("_aorta_log_prefix")
        if not (self.config.get("_aorta_save_logs") and prefix):
            yield None
            return
        with open(f"{prefix}.subprocess.stderr.log", "ab") as log:
            yield log


class _Forward:
    """Passes SIGTERM and SIGHUP on to the controller, also when they come before it exists."""

    def __init__(self) -> None:
        self.noted: int | None = None
        self._child: subprocess.Popen[bytes] | None = None

    def to(self, child: subprocess.Popen[bytes]) -> None:
        self._child = child
        if self.noted is not None:
            child.send_signal(signal.SIGTERM)

    def handle(self, number: int, _frame: object) -> None:
        self.noted = self.noted or number
        if self._child is not None:
            self._child.send_signal(signal.SIGTERM)


@contextmanager
def _forwarding() -> Iterator[_Forward]:
    """While the trial runs, AORTA's process outlives a signal just long enough for the controller to clean up.

    Off the main thread no handler can be set; there the controller's own watch over its parent has to do.
    """
    forward = _Forward()
    signals = (signal.SIGTERM, signal.SIGHUP)
    main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, forward.handle) for number in signals} if main else {}
    try:
        yield forward
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if forward.noted is not None:
            # Whoever sent it must see death by that signal.
            signal.signal(forward.noted, signal.SIG_DFL)
            os.kill(os.getpid(), forward.noted)


def _find_controller() -> str:
    named = os.environ.get(CONTROLLER_VARIABLE)
    if named:
        if os.access(named, os.X_OK):
            return named
        raise RuntimeError(f"ts_bench: {CONTROLLER_VARIABLE}={named!r} is not an executable file")
    found = shutil.which("controller")
    if found:
        return found
    raise RuntimeError(f"ts_bench: no controller; put it on PATH or name it in {CONTROLLER_VARIABLE}")


def _encode(config: dict[str, Any]) -> bytes:
    try:
        return json.dumps({"config": config}, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        culprit = next((key for key, value in config.items() if not _is_json(value)), "?")
        raise ValueError(f"ts_bench: {culprit} cannot be written as JSON ({error}); quote it in the recipe") from error


def _is_json(value: object) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True


def _read(document: Path) -> dict[str, Any] | None:
    try:
        read = json.loads(document.read_bytes())
    except (OSError, ValueError):
        return None
    return read if isinstance(read, dict) else None


def _refusal(status: int, document: Path, words: str) -> Exception:
    """The error of a trial that was refused, naming the key and the remedy."""
    kind = ValueError if status == CONFIG_ERROR else RuntimeError
    error = (_read(document) or {}).get("error")
    if not isinstance(error, dict):
        return kind(f"ts_bench: controller exited {status} without a document; {words or 'it said nothing'}")
    text = str(error.get("message", "refused"))
    key = error.get("key")
    if key and str(key) not in text:
        text = f"{key}: {text}"
    hint = error.get("hint")
    return kind(f"{text} ({hint})" if hint else text)


def _result(document: Path, status: int) -> WorkloadResult:
    read = _read(document)
    if read is None or "passed" not in read:
        raise RuntimeError(f"ts_bench: controller ended with status {status} and left no result")
    return WorkloadResult(**{key: value for key, value in read.items() if key in _RESULT_FIELDS})


def _tail(words: bytes) -> str:
    return words.decode(errors="replace").strip()[-2000:]
