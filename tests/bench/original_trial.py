"""Runs one trial of the original workload class with a client that starts its script as a plain process.

    original_trial.py CONFIG.json RESULT.json      (docker must be `fake-docker` of this folder, first on PATH)
"""

import dataclasses
import json
import sys
from pathlib import Path

from aorta.workloads import tokenspeed_serve


def main() -> None:
    config = json.loads(Path(sys.argv[1]).read_text())
    # There is no GPU here, for either side.
    tokenspeed_serve._GPU_KFD_NODE = Path("/dev/null")
    trial = tokenspeed_serve.TokenSpeedServeWorkload(config)
    trial.setup()
    result = trial.run()
    trial.cleanup()
    Path(sys.argv[2]).write_text(json.dumps(dataclasses.asdict(result), default=str))


if __name__ == "__main__":
    main()
