"""HEFT: Heterogeneous Earliest Finish Time with insertion (Topcuoglu, Hariri and Wu 2002, section 4.1).

Tasks by falling upward rank, each on the device of its earliest finish. The schedule itself (`methods.placing.list_scheduling.heft`)
may use orders that a FIFO device does not, so the measured makespan can differ from the planned one, which `report` gives.
Devices without memory for a task are skipped; if none has room, the finished placement is repaired.
"""

from __future__ import annotations

import numpy as np

from methods.contract.fixed_list import FixedList
from methods.placing.constraints import fit_memory
from methods.placing.list_scheduling import heft


class Heft(FixedList):
    """The one placement of HEFT: by upward rank, each where it finishes first."""

    seeded = False

    def placement(self, index: int) -> np.ndarray:
        return fit_memory(self.problem, heft(self.problem).device[None, :])[0]

    def report(self) -> dict[str, float]:
        """The makespan of the schedule that HEFT itself plans, seconds."""
        return {"planned_makespan": heft(self.problem).makespan}
