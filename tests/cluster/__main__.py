"""``python -m tests.cluster [CHECK …]``: checks on machines of their own, all or those named; as root, on Linux. The exit code is the
number of checks that did not hold."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback

from tests.cluster.checks import CHECKS
from tests.cluster.machines import lab


def main(names: list[str]) -> int:
    """Run the checks one after the other."""
    unknown = [name for name in names if name not in CHECKS]
    if unknown or os.geteuid() != 0:
        print(f"no check {unknown[0]!r}; there are {', '.join(CHECKS)}" if unknown else "namespaces need root")
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the machines are switched off then too
    failed = 0
    for name in names or CHECKS:
        began = time.monotonic()
        with lab() as machines:
            try:
                said = CHECKS[name](machines)
            except Exception:  # whatever does not hold, the others are checked
                failed += 1
                said = f"DOES NOT HOLD\n{traceback.format_exc()}"
        print(f"{name}: {said} ({time.monotonic() - began:.0f} s)", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
