"""Holds a sweep's matrix against AORTA itself.

    aorta_agrees.py matrix DIR      our trial documents through AORTA's aggregation, compared with our matrix.json,
                                    matrix.md and perf.md
    aorta_agrees.py same A B        two matrices have the same keys, in the same order, and the same shape
    aorta_agrees.py recipes FILE... each recipe through AORTA's parser and resolver; a warning is a failure

Prints what differs, a line each, and exits 1 where something does.
"""

from __future__ import annotations

import json
import logging
import math
import re
import sys
import tempfile
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from aorta.triage import confound, matrix, output, recipe

#: Arithmetic in another order may differ in the last digits of a double.
RELATIVE = 1e-12

differences: list[str] = []


def differ(path: str, ours: Any, theirs: Any) -> None:
    """Notes where two JSON values differ."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in {**ours, **theirs}:
            if key not in ours or key not in theirs:
                differences.append(f"{path}.{key}: only {'ours' if key in ours else 'AORTA'}")
            else:
                differ(f"{path}.{key}", ours[key], theirs[key])
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            differ(f"{path}[{index}]", mine, other)
    elif isinstance(ours, float) and isinstance(theirs, float):
        if not math.isclose(ours, theirs, rel_tol=RELATIVE, abs_tol=1e-12):
            differences.append(f"{path}: {ours!r} and {theirs!r}")
    elif type(ours) is not type(theirs) or ours != theirs:
        differences.append(f"{path}: {ours!r} and {theirs!r}")


def trial(path: str) -> SimpleNamespace:
    document = json.loads(Path(path).read_text())
    return SimpleNamespace(
        exit_status=document["exit_status"],
        wall_clock_sec=document["wall_clock_sec"],
        result=document["result"],
    )


def check_matrix(folder: Path) -> None:
    ours = json.loads((folder / "matrix.json").read_text())
    loaded = recipe.load_recipe(folder / "recipe.resolved.yaml")
    steps = {cell.name: cell.effective_steps(loaded.steps) for cell in loaded.cells}
    stats = []
    for cell in ours["cells"]:
        stats.append(
            matrix.aggregate_cell(
                name=cell["name"],
                mitigations=tuple(cell["mitigations"]),
                environment=cell["environment"],
                extra_env=cell["extra_env"],
                resolved_env_vars=cell["resolved_env_vars"],
                trials=[trial(path) for path in cell["trial_paths"]],
                effective_steps=steps[cell["name"]],
                trial_paths=cell["trial_paths"],
                workload_config=cell["workload_config"],
                stop_after_note=cell["stop_after_note"],
                resumed=cell["resumed"],
            )
        )
    skip = {s.name for s in stats if confound.is_did_not_run_cell(s)}
    baseline = confound.resolve_baseline(loaded.cells, loaded.confound.baseline_cell, skip_names=skip)
    if ours["baseline_cell"] != baseline.name:
        differences.append(f"baseline: {ours['baseline_cell']} and {baseline.name}")
    tags = confound.classify_all(stats, baseline.name, loaded.confound.threshold)
    # AORTA's own writer over the same trials: the whole documents, not a list of keys that somebody remembered.
    scratch = tempfile.TemporaryDirectory()
    theirs_path = Path(scratch.name) / "matrix.json"
    output.write_matrix_json(
        theirs_path,
        recipe=loaded,
        cell_stats=stats,
        baseline_name=baseline.name,
        confound_tags=tags,
        run_timestamp=ours["run_timestamp"],
        warnings=ours["warnings"],
        resolved_recipe_path=folder / "recipe.resolved.yaml",
    )
    theirs = json.loads(theirs_path.read_text())
    same_order("matrix", ours, theirs)
    for document in (ours, theirs):
        # Of the writer, not of the trials.
        del document["runtime_provenance"], document["trial_isolation"], document["trial_isolation_requested"]
        del document["recipe_source"]["path"], document["recipe_source"]["sha256"]
    differ("matrix", ours, theirs)
    base_stats = next(s for s in stats if s.name == baseline.name)
    tables(folder / "matrix.md", lambda path: output.write_matrix_md(
        path, recipe=loaded, cell_stats=stats, baseline=base_stats, confound_tags=tags,
        warnings=ours["warnings"], run_timestamp=ours["run_timestamp"]))
    tables(folder / "perf.md", lambda path: output.write_perf_report(
        path, recipe=loaded, cell_stats=stats, baseline=base_stats, run_timestamp=ours["run_timestamp"]))


def tables(ours: Path, write: Any) -> None:
    """Titles, headings, warnings, hints and tables agree to the character; prose is everybody's own."""
    with tempfile.TemporaryDirectory() as scratch:
        theirs = Path(scratch) / ours.name
        write(theirs)
        mine, other = said(ours), said(theirs)
    for index in range(max(len(mine), len(other))):
        pair = [text[index] if index < len(text) else "(nothing)" for text in (mine, other)]
        if pair[0] != pair[1]:
            differences.append(f"{ours.name}:\n  ours  {pair[0]}\n  AORTA {pair[1]}")


def said(path: Path) -> list[str]:
    hint = re.compile(r"- \*\*.*\*\* \(\d+/\d+ trials\): ")
    kept = []
    for line in path.read_text().splitlines():
        # The recipe's path is where it was loaded from; quotes below the tables are prose.
        quote = line.startswith(">") and path.name == "matrix.md"
        if line.startswith(("#", "|", "**")) or quote or hint.match(line):
            kept.append(re.sub(r"^\*\*Recipe\*\*.*", "**Recipe**", line))
    return kept


def same_order(path: str, ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    if list(ours) != list(theirs):
        differences.append(f"{path}: keys {list(ours)} and {list(theirs)}")
    for mine, other in zip(ours["cells"], theirs["cells"], strict=False):
        if list(mine) != list(other):
            differences.append(f"{path}.cells: keys {list(mine)} and {list(other)}")


def shape(value: Any) -> Any:
    """Types and keys; figures differ from run to run, counts do not."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(inner) for inner in value]
    return type(value).__name__ if isinstance(value, float) else value


def check_same(first: Path, second: Path) -> None:
    ours, theirs = (json.loads(path.read_text()) for path in (first, second))
    same_order("matrix", ours, theirs)
    for document in (ours, theirs):
        for key in ("run_timestamp", "warnings", "recipe_source", "runtime_provenance", "trial_isolation"):
            del document[key]
        for cell in document["cells"]:
            # Between two runs the speed of a busy machine may differ.
            for key in ("trial_paths", "confound", "step_time_ratio"):
                del cell[key]
    differ("matrix", shape(ours), shape(theirs))


def check_recipes(paths: list[Path]) -> None:
    from aorta.registry import get_mitigation

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            differences.append(f"{record.name} warns: {record.getMessage()}")

    logging.getLogger().addHandler(Collect(logging.WARNING))
    for path in paths:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                loaded = recipe.load_recipe(path)
                for cell in loaded.cells:
                    for name in cell.mitigations:
                        get_mitigation(name)
            except Exception as error:  # noqa: BLE001 - whatever it is, the recipe does not load
                differences.append(f"{path}: {type(error).__name__}: {error}")
        differences.extend(f"{path}: warning: {warning.message}" for warning in caught)


def main() -> int:
    match sys.argv[1:]:
        case ["matrix", folder]:
            check_matrix(Path(folder))
        case ["same", first, second]:
            check_same(Path(first), Path(second))
        case ["recipes", *paths] if paths:
            check_recipes([Path(path) for path in paths])
        case _:
            print(__doc__, file=sys.stderr)
            return 64
    print("\n".join(differences), end="\n" if differences else "")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
