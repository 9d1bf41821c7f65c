"""Lets the TokenSpeed wheel's bench import on a machine without torch and CUDA.

The bench needs one thing of the engine runtime: whether ModelScope is used. Everything else that runs is the
wheel's own code. Loaded through a .pth file, so it is there before the tool's first import.
"""

import sys
import types


class _Flag:
    def get(self) -> bool:
        return False


def install() -> None:
    module = types.ModuleType("tokenspeed.runtime.utils.env")
    module.envs = types.SimpleNamespace(TOKENSPEED_USE_MODELSCOPE=_Flag())
    sys.modules.setdefault("tokenspeed.runtime.utils.env", module)


install()
