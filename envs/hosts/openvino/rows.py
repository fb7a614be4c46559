"""What the measuring process answers about one placement; shared by both ends."""

from __future__ import annotations

from typing import Any

import numpy as np

from envs.problem.measurement import Outcome


def ended(outcome: Outcome, note: str = "", **more: Any) -> dict[str, Any]:
    """An answer: outcome, note, raw samples [s], seconds to compile, pieces on one device each, agreement of the outputs."""
    row = {
        "outcome": int(outcome),
        "note": note,
        "samples": np.empty(0),
        "compile_seconds": 0.0,
        "segments": 0,
        "agreement": None,
        "trace": None,
    }
    return {**row, **more}
