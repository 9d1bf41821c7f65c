"""The original as a judge: one long-lived process that answers JSON lines, for ``tests/tests/differential``.

    {"op": "config", "yaml": TEXT}
    {"op": "read", "exports": [[STEP, BASE64], ..]}
    {"op": "export", "yaml": TEXT, "exports": [[STEP, BASE64], ..], "stdout": TEXT, "exit_code": N or null}
    {"op": "env", "env": {NAME: VALUE}}

What ``amd-aorta`` 0.3.0 says is answered as it is. That release has no rollout mode and no ``save_detailed``: those
keys, variables and exports are judged by ``rollout_model`` and taken away before the original sees the rest.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import logging
import math
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

import rollout_model as model
from aorta.workloads import tokenspeed_serve as original

SCRIPT = Path(original._SCRIPTS_DIR) / original._BENCH_SCRIPT
TOKEN = "7-1"
ROLLOUT_KEYS = ("rollout", "save_detailed", *model.SAMPLING_KEYS)
ROLLOUT_VARIABLES = ("TS_ROLLOUT", "TS_SAVE_DETAILED", *model.SAMPLING_VARIABLES)

# ------------------------------------------------------------------ configuration


class Trial:
    """A validated configuration: the original's workload, and what the rollout keys mean."""

    def __init__(self, text: str) -> None:
        cfg = yaml.safe_load(text)
        plain = {key: value for key, value in cfg.items() if key not in ROLLOUT_KEYS}
        rollout = cfg.get("rollout") is True
        if rollout:
            plain.pop("ignore_eos", None)
        w = self.workload = original.TokenSpeedServeWorkload(plain)
        w._validated_config()
        self.rollout = model.config(cfg, w._dataset, w._output_len)
        if rollout:
            w._ignore_eos = False
        w._run_token, w._port, w._control_port = TOKEN, 8000, 8001
        # What `run` would still refuse before anything is started.
        self.env = w._container_env()
        original.docker_env_flags(self.env)
        w._reject_owned_docker_args(owned_env=set(self.env) | w._secret_env_names())

    def respects_eos(self) -> bool:
        w = self.workload
        return self.rollout["rollout"] or (w._dataset == "sharegpt" and not w._ignore_eos)

    def expectation(self) -> dict[str, Any]:
        return {
            "num_prompts": self.workload._num_prompts,
            "dataset": self.workload._dataset,
            "output_len": self.workload._output_len,
            "rollout_samples": self.rollout.get("rollout_samples", 1),
            "floor": self.rollout.get("min_mean_output_tokens", 0),
        }

    def resolved(self) -> dict[str, Any]:
        w = self.workload
        out = {f"env.{name}": value for name, value in self.env.items()}
        out |= {f"rollout.{key}": value for key, value in self.rollout.items()}
        out |= {
            "image": w._image,
            "docker_args": w._docker_args,
            "timeout_sec": w._timeout,
            "work_dir": str(w._work_root),
            "hf_home": str(w._hf_home) if w.config.get("hf_home") else None,
            "hf_token_env": w._hf_token_env,
            "shm_size": w._shm_size,
            "network": w._network,
            "exclusive_gpus": w._exclusive_gpus,
            "run_as_current_user": w._run_as_current_user,
            "keep_work_dir": w._keep_work_dir,
            "port": w._port_request,
            "control_port": w._control_port_request,
            "gates": [[key, bound] for key, bound in w._gates.items()],
            "dataset_path": None if w._dataset_path is None else str(w._dataset_path),
        }
        return out


def judge_config(request: dict[str, Any]) -> dict[str, Any]:
    return {"ok": True, "value": Trial(request["yaml"]).resolved()}


# ------------------------------------------------------------------ exports


def _script_audit() -> Any:
    """The Python that the script runs on each export, taken from the script."""
    source = SCRIPT.read_text(encoding="utf-8")
    body = source.split("<<'PY'\n", 1)[1].split("\nPY\n", 1)[0]
    return compile(body, str(SCRIPT), "exec")


SCRIPT_AUDIT = _script_audit()


def _agent_verdict(trial: Trial, path: Path) -> str:
    out, argv = io.StringIO(), sys.argv
    sys.argv = ["-", str(path), str(trial.workload._num_prompts)]
    try:
        with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
            exec(SCRIPT_AUDIT, {"__name__": "__main__"})
    finally:
        sys.argv = argv
    word = out.getvalue().split(" ", 1)[0].strip()
    verdict = {"OK": model.OK, "SHORTFALL": model.SHORTFALL, "UNPARSEABLE": model.UNUSABLE}[word]
    if verdict == model.OK and trial.respects_eos():
        doc = model.parse(path.read_text(encoding="utf-8"))
        return model.judge(doc, trial.expectation(), host=False)
    return verdict


def _rollout_details(trial: Trial, details: list[dict[str, Any]], records: list[Any]) -> list[dict[str, Any]]:
    """The record part of the details by the model, the rest by the original."""
    records_part = (model.UNUSABLE, model.SHORTFALL)
    kept = [d for d in details if d["reason"] not in records_part or "exit_code" in d]
    gates = [d for d in kept if "gate" in d]
    before = [d for d in kept if "gate" not in d]
    verdicts = [(r.step, model.judge(r.doc, trial.expectation(), host=True)) for r in records]
    return before + [{"reason": v, "step": step} for step, v in verdicts if v != model.OK] + gates


def judge_reading(request: dict[str, Any]) -> dict[str, Any]:
    """Null for each export that the original's reader takes, its words for the others."""
    answers = []
    with tempfile.TemporaryDirectory() as directory:
        w = original.TokenSpeedServeWorkload({})
        w._out_dir, w._run_token = Path(directory), TOKEN
        for step, text in request["exports"]:
            path = w._out_dir / f"bench.{TOKEN}.step{step}.json"
            path.write_bytes(base64.b64decode(text))
            try:
                answers.append(None if w._collect_step_records() else "unreadable")
            except OverflowError:  # Read, and then too large to be a number: B-02 is about the value.
                answers.append(None)
            except Exception as crash:  # noqa: BLE001 - the original has no words for it
                answers.append(f"crash: {type(crash).__name__}")
            path.unlink()
    return {"ok": True, "value": answers}


def judge_export(request: dict[str, Any]) -> dict[str, Any]:
    trial = Trial(request["yaml"])
    w = trial.workload
    with tempfile.TemporaryDirectory() as directory:
        w._out_dir = Path(directory)
        agent = []
        for step, text in request["exports"]:
            path = w._out_dir / f"bench.{TOKEN}.step{step}.json"
            path.write_bytes(base64.b64decode(text))
            agent.append(_agent_verdict(trial, path))
        records = w._collect_step_records()
        result = w._build_result(
            records=records,
            exit_code=request["exit_code"],
            timed_out=request["exit_code"] is None,
            elapsed=40.0,
            stdout=request["stdout"],
            stderr="",
        )
    details, metrics, first = result.failure_details, dict(result.metrics), result.first_failure_iteration
    # Contract I.2: what was asked for, null outside the mode.
    metrics["rollout"] = trial.rollout["rollout"]
    metrics |= {key: trial.rollout.get(key) for key in model.SAMPLING_KEYS}
    if trial.respects_eos():
        details = _rollout_details(trial, details, records)
        first = original._first_failure_step(details, main_work_started=bool(result.main_work_started))
        metrics |= model.length_metrics([r.doc for r in records], trial.expectation())
    for volatile in ("server_log", "result_files"):
        metrics.pop(volatile, None)
    facts = ("reason", "step", "gate", "metric", "observed", "bound", "exit_code")
    value = {
        "agent": agent,
        "details": [{key: d[key] for key in facts if key in d} for d in details],
        "passed": not details,
        "first_failure_iteration": first if details else None,
        "total_iterations": result.total_iterations,
        "executed_iterations": result.executed_iterations,
        "configured_iterations": result.configured_iterations,
        "main_work_started": result.main_work_started,
        "step_times_ms": result.step_times_ms,
        "metrics": metrics,
    }
    return {"ok": True, "value": value}


# ------------------------------------------------------------------ environment

STUBS = {
    # Notes its arguments; the bench ends the script there, for nothing after it belongs to the environment's rules.
    "tokenspeed": """#!/bin/sh
case "$1" in
  version) echo stub;;
  serve) printf '%s\\0' "$@" > "$STUB_DIR/serve.part"; echo $$ > "$STUB_DIR/pid"; mv "$STUB_DIR/serve.part" "$STUB_DIR/serve"; exec sleep 30;;
  bench) printf '%s\\0' "$@" > "$STUB_DIR/bench"; read -r _ _ _ script _ < /proc/$PPID/stat; kill -KILL "$script";;
esac
""",
    # Ready as soon as the server's arguments are there.
    "curl": '#!/bin/sh\nwhile [ ! -e "$STUB_DIR/serve" ]; do :; done\necho 200\n',
    # No loop needs more than one turn here, and a huge count must not fill the memory.
    "seq": '#!/bin/sh\ncase "$2" in 0) ;; *) echo 1;; esac\n',
}


class Script:
    """The real script with stand-ins for what it starts."""

    def __init__(self) -> None:
        self.home = tempfile.TemporaryDirectory()
        self.bin = Path(self.home.name, "bin")
        self.bin.mkdir()
        for name, text in STUBS.items():
            (self.bin / name).write_text(text, encoding="utf-8")
            (self.bin / name).chmod(0o755)

    def run(self, env: dict[str, str]) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as stub_dir:
            made = {"PATH": f"{self.bin}:/usr/bin:/bin", "STUB_DIR": stub_dir, "LC_ALL": "C.UTF-8"}
            made["TS_OUT_DIR"] = f"{stub_dir}/out"
            made["TS_RUN_TOKEN"] = TOKEN
            client = subprocess.Popen(
                ["bash", str(SCRIPT)],
                env=made | env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                said = client.communicate(timeout=20)[0].decode(errors="replace")
            except subprocess.TimeoutExpired:
                os.killpg(client.pid, signal.SIGKILL)
                said = client.communicate()[0].decode(errors="replace") + "\n(no end within 20 s)"
            with contextlib.suppress(OSError, ValueError):
                os.kill(int(Path(stub_dir, "pid").read_text()), signal.SIGKILL)
            bench = Path(stub_dir, "bench")
            if client.returncode == 64:
                fail = [line for line in said.splitlines() if line.startswith("TS_BENCH_FAIL: ")]
                return {"ok": False, "error": fail[0] if fail else said, "made_out": os.path.exists(f"{stub_dir}/out")}
            if not bench.exists():
                return {"ok": False, "error": f"crash: exit {client.returncode}: {said[-400:]}"}
            words = [Path(stub_dir, name).read_bytes().decode().split("\0")[:-1] for name in ("serve", "bench")]
            words = [[word.replace(stub_dir, "<dir>") for word in argv] for argv in words]
            return {"ok": True, "value": {"serve": words[0], "bench": words[1]}}


def _words(text: str | None) -> list[str]:
    with contextlib.suppress(ValueError):
        items = json.loads(text or "[]")
        if isinstance(items, list) and all(isinstance(item, str) for item in items):
            return items
    return []


def judge_env(request: dict[str, Any], script: Script) -> dict[str, Any]:
    env = request["env"]
    rollout = model.environment(env, _words(env.get("TS_SERVE_ARGS")), _words(env.get("TS_BENCH_ARGS")))
    plain = {name: value for name, value in env.items() if name not in ROLLOUT_VARIABLES}
    if rollout["rollout"]:
        plain["TS_IGNORE_EOS"] = "1"
    answer = script.run(plain)
    if answer["ok"]:
        answer["value"]["rollout"] = rollout
    return answer


# ------------------------------------------------------------------ the line


def _plain(value: Any) -> Any:
    """What strict JSON can hold; the rest as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"float {value}"
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return f"integer of {value.bit_length()} bits"
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def main() -> None:
    logging.disable(logging.CRITICAL)
    script = Script()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if request["op"] == "config":
                answer = judge_config(request)
            elif request["op"] == "read":
                answer = judge_reading(request)
            elif request["op"] == "export":
                answer = judge_export(request)
            else:
                answer = judge_env(request, script)
        except (ValueError, model.Refused) as refusal:
            answer = {"ok": False, "error": str(refusal)}
        except Exception as crash:  # noqa: BLE001 - the original has no words for it
            answer = {"ok": False, "error": f"crash: {type(crash).__name__}: {crash}"[:400]}
        sys.stdout.write(json.dumps(_plain(answer), allow_nan=False) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
