"""The rollout rules, written down a second time from the seed and the serving contract (A.4, A.5, B.3, D.3, D.4, E.6, H,
I.2; review findings B) by someone who had not read the Rust of this repository. amd-aorta 0.3.0 predates the mode, so
this is what the differential test has beside it for everything under ``rollout: true``.

Nothing here reads a file or knows the other side. A refusal is an exception; a verdict is a word.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

SAMPLING_KEYS = ("rollout_samples", "temperature", "top_p", "min_mean_output_tokens", "sampling_backend")
SAMPLING_VARIABLES = (
    "TS_ROLLOUT_SAMPLES",
    "TS_TEMPERATURE",
    "TS_TOP_P",
    "TS_MIN_MEAN_OUTPUT_TOKENS",
    "TS_SAMPLING_BACKEND",
)
BACKENDS = ("triton", "triton_full")
MAX_SAMPLES = 1024

# D.3 and the list of neighbours that would defeat a reservation.
OWNED_BENCH_ALWAYS = ("--save-detailed", "--input-len", "--output-len", "--append-result")
OWNED_BENCH_ROLLOUT = ("--extra-body", "--extra-request-body")
OWNED_SERVE_ROLLOUT = ("--sampling-backend",)


class Refused(Exception):
    """A configuration or usage error."""


# ------------------------------------------------------------------ configuration (E.1, E.2, E.6)


def _flag(config: dict[str, Any], key: str, default: bool) -> bool:
    value = config.get(key, default)
    if type(value) is not bool:
        raise Refused(f"{key} must be a bool")
    return value


def _whole(config: dict[str, Any], key: str, default: int, low: int, high: int | None) -> int:
    value = config.get(key, default)
    if isinstance(value, str):
        # The seed: the host requires the same plain unsigned decimal as the container, and rejects, not normalises.
        if not re.fullmatch(r"0|[1-9][0-9]*", value, re.ASCII):
            raise Refused(f"{key} must be an integer")
        value = int(value)
    elif isinstance(value, float):
        if not math.isfinite(value) or not value.is_integer():
            raise Refused(f"{key} must be a whole number")
        value = int(value)
    elif type(value) is not int:
        raise Refused(f"{key} must be an integer")
    if value < low or (high is not None and value > high):
        raise Refused(f"{key} out of range")
    return value


def _number(key: str, value: Any, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Refused(f"{key} must be a number")
    try:
        number = float(value)
    except OverflowError:
        raise Refused(f"{key} is too large") from None
    if not math.isfinite(number) or not 0 < number <= high:
        raise Refused(f"{key} must be in (0, {high}]")
    return number


def config(cfg: dict[str, Any], dataset: str, output_len: int) -> dict[str, Any]:
    """What the rollout keys of a ``workload_config`` mean; ``dataset`` and ``output_len`` are already resolved."""
    rollout = _flag(cfg, "rollout", False)
    save_detailed = _flag(cfg, "save_detailed", rollout)
    if not rollout:
        for key in SAMPLING_KEYS:
            if key in cfg:  # present, even as null
                raise Refused(f"{key} requires rollout: true")
        return {"rollout": False, "save_detailed": save_detailed}
    if _flag(cfg, "ignore_eos", False):
        raise Refused("rollout and ignore_eos: true cannot both mean what they say")
    samples = _whole(cfg, "rollout_samples", 4, 1, MAX_SAMPLES)
    temperature = _number("temperature", cfg.get("temperature", 1.0), 2.0)
    top_p = None if cfg.get("top_p") is None else _number("top_p", cfg["top_p"], 1.0)
    floor = _whole(cfg, "min_mean_output_tokens", 8, 0, None)
    backend = cfg.get("sampling_backend", "triton")
    if backend not in BACKENDS:
        raise Refused("sampling_backend")
    if dataset == "random" and floor > output_len:
        raise Refused("no run could satisfy a floor above output_len")
    if samples > 1 and floor > 0 and not save_detailed:
        raise Refused("the per-request fallback cannot carry a floor at more than one sample")
    return {
        "rollout": True,
        "save_detailed": save_detailed,
        "rollout_samples": samples,
        "temperature": temperature,
        "top_p": top_p,
        "min_mean_output_tokens": floor,
        "sampling_backend": backend,
    }


# ------------------------------------------------------------------ environment (A.1, A.4, A.5)


def _plain_decimal(name: str, text: str, high: float) -> float:
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", text, re.ASCII):
        raise Refused(f"{name} must be a plain decimal number")
    value = float(text)
    if not 0 < value <= high:
        raise Refused(f"{name} must be in (0, {high}]")
    return value


def _strict_unsigned(name: str, text: str, low: int, high: int) -> int:
    if not re.fullmatch(r"0|[1-9][0-9]*", text, re.ASCII) or not low <= int(text) <= high:
        raise Refused(name)
    return int(text)


def _zero_or_one(env: dict[str, str], name: str) -> bool:
    value = env.get(name) or "0"
    if value not in ("0", "1"):
        raise Refused(f"{name} must be 0 or 1")
    return value == "1"


def refuse_owned(words: list[str], owned: tuple[str, ...]) -> None:
    """D.4: a word that is an owned flag, or a proper prefix of one."""
    for word in words:
        name = word.split("=", 1)[0]
        if name.startswith("--") and len(name) > 2:
            for flag in owned:
                if flag.startswith(name):
                    raise Refused(f"may not set {flag}")


def environment(env: dict[str, str], serve_extras: list[str], bench_extras: list[str]) -> dict[str, Any]:
    """What the rollout variables mean. An empty string counts as unset."""
    rollout = _zero_or_one(env, "TS_ROLLOUT")
    save_detailed = _zero_or_one(env, "TS_SAVE_DETAILED")
    refuse_owned(bench_extras, OWNED_BENCH_ALWAYS)
    if not rollout:
        for name in SAMPLING_VARIABLES:
            if env.get(name):
                raise Refused(f"{name} requires TS_ROLLOUT=1")
        return {"rollout": False, "save_detailed": save_detailed}
    refuse_owned(bench_extras, OWNED_BENCH_ROLLOUT)
    refuse_owned(serve_extras, OWNED_SERVE_ROLLOUT)
    samples = _strict_unsigned("TS_ROLLOUT_SAMPLES", env.get("TS_ROLLOUT_SAMPLES") or "1", 1, MAX_SAMPLES)
    if not env.get("TS_TEMPERATURE"):
        raise Refused("TS_ROLLOUT=1 requires TS_TEMPERATURE")
    temperature = _plain_decimal("TS_TEMPERATURE", env["TS_TEMPERATURE"], 2.0)
    top_p = _plain_decimal("TS_TOP_P", env["TS_TOP_P"], 1.0) if env.get("TS_TOP_P") else None
    floor_text = env.get("TS_MIN_MEAN_OUTPUT_TOKENS") or "0"
    if not re.fullmatch(r"[0-9]+", floor_text, re.ASCII):
        raise Refused("TS_MIN_MEAN_OUTPUT_TOKENS must be a non-negative integer")
    floor = int(floor_text)
    if (env.get("TS_IGNORE_EOS") or "1") == "1":
        raise Refused("TS_ROLLOUT=1 is incompatible with TS_IGNORE_EOS=1")
    backend = env.get("TS_SAMPLING_BACKEND") or "triton"
    if backend not in BACKENDS:
        raise Refused("TS_SAMPLING_BACKEND")
    if samples > 1 and floor > 0 and not save_detailed:
        raise Refused("the per-request fallback cannot carry a floor at more than one sample")
    output_len = env.get("TS_OUTPUT_LEN") or "128"
    if (env.get("TS_DATASET") or "random") == "random" and output_len.isascii() and output_len.isdigit():
        if floor > int(output_len):
            raise Refused("no run could satisfy a floor above TS_OUTPUT_LEN")
    body: dict[str, Any] = {"ignore_eos": False, "n": samples, "temperature": temperature}
    if top_p is not None:
        body["top_p"] = top_p
    return {"rollout": True, "save_detailed": save_detailed, "sampling_backend": backend, "extra_body": body}


# ------------------------------------------------------------------ exports (H; review findings B-01, B-02)

OK = "ok"
UNUSABLE = "result_json_unusable"
SHORTFALL = "served_request_shortfall"
BASIS = "rollout_length_basis_unusable"
TOO_SHORT = "rollout_output_too_short"

CORE = (
    "duration",
    "output_throughput",
    "request_throughput",
    "total_token_throughput",
    "mean_ttft_ms",
    "median_ttft_ms",
)


def _usable(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:  # B-02: an integer beyond a double is an unusable value, not an error
        return False


def _entry(value: Any) -> bool:
    return _usable(value) and value >= 0 and float(value).is_integer()


def lengths(doc: dict[str, Any], completed: int, samples: int, cap: int | None) -> tuple[str, list[float]]:
    """The shape of ``output_lens`` (``absent``, ``per_choice``, ``per_request``, ``broken``) and its entries."""
    if "output_lens" not in doc:
        return "absent", []
    entries = doc["output_lens"]
    if not isinstance(entries, list) or not all(_entry(entry) for entry in entries):
        return "broken", []
    if len(entries) == completed * samples:
        shape, bound = "per_choice", cap
    elif len(entries) == completed:
        shape, bound = "per_request", None if cap is None else cap * samples
    else:
        return "broken", []
    if not entries or (bound is not None and max(entries) > bound):
        return "broken", []
    return shape, [float(entry) for entry in entries]


def judge(doc: dict[str, Any], expect: dict[str, Any], host: bool) -> str:
    """The one verdict on a parsed export. ``expect``: num_prompts, dataset, output_len, rollout_samples, floor."""
    completed, failed = doc.get("completed"), doc.get("failed")
    if type(completed) is not int or type(failed) is not int:
        return UNUSABLE
    if failed != 0 or completed != expect["num_prompts"]:
        return SHORTFALL
    samples, floor = expect["rollout_samples"], expect["floor"]
    cap = expect["output_len"] if expect["dataset"] == "random" else None
    total = doc.get("total_output_tokens")
    shape, entries = lengths(doc, completed, samples, cap)
    if shape == "broken":
        return UNUSABLE
    if host:
        required = list(CORE)
        # B-01: 0 or a fraction is no number of tokens.
        if not (_usable(total) and total > 0 and float(total).is_integer()):
            return UNUSABLE
        if float(total) > completed:
            required += ["mean_tpot_ms", "median_tpot_ms"]
        for name in required:
            if not _usable(doc.get(name)) or doc[name] <= 0:
                return UNUSABLE
    if floor == 0:
        return OK
    if shape == "absent" and samples == 1:
        if type(total) is not int or not _usable(total) or total <= 0:
            return UNUSABLE
        return TOO_SHORT if total / completed < floor else OK
    if shape != "per_choice":
        return BASIS
    return TOO_SHORT if sum(entries) / len(entries) < floor else OK


# ------------------------------------------------------------------ published lengths (I.2)


def _percentile(pool: list[float], percent: float) -> float:
    at = (len(pool) - 1) * percent / 100
    below = math.floor(at)
    above = min(below + 1, len(pool) - 1)
    return pool[below] + (pool[above] - pool[below]) * (at - below)


def length_metrics(docs: list[dict[str, Any]], expect: dict[str, Any]) -> dict[str, Any]:
    """The metrics that EOS-respecting cells add; ``docs`` are the trial's parsed exports.

    Validity of ``output_lens`` is asked only where the request counts are sound (seed), so that a step that fell short
    carries no array that could be published.
    """
    samples, cap = expect["rollout_samples"], expect["output_len"] if expect["dataset"] == "random" else None
    out: dict[str, Any] = {}
    means: list[float] = []
    pool: list[float] = []
    every_array = bool(docs)
    for doc in docs:
        completed, total = doc.get("completed"), doc.get("total_output_tokens")
        if type(completed) is int and _usable(completed) and completed > 0:
            if _usable(total):
                means.append(float(total) / completed)
            shape, entries = lengths(doc, completed, samples, cap)
            sound = type(doc.get("failed")) is int and doc["failed"] == 0 and completed == expect["num_prompts"]
            every_array = every_array and sound and shape in ("per_choice", "per_request")
            pool += entries
        else:
            every_array = False
    if docs and len(means) == len(docs):
        out["mean_output_tokens_per_request"] = sum(means) / len(means)
    if every_array and pool:
        pool.sort()
        mean = sum(pool) / len(pool)
        out["generated_tokens_count"] = len(pool)
        out["generated_tokens_mean"] = mean
        out["generated_tokens_min"] = pool[0]
        out["generated_tokens_max"] = pool[-1]
        if len(pool) > 1:
            out["generated_tokens_std"] = math.sqrt(sum((x - mean) ** 2 for x in pool) / (len(pool) - 1))
        for percent in (50, 90, 99):
            out[f"generated_tokens_p{percent}"] = _percentile(pool, percent)
    return out


def parse(text: str) -> Any:
    """H.1: NaN and infinities are read, the last of equal keys wins."""
    return json.loads(text)
