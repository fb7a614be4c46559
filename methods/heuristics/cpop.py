"""CPOP: Critical Path on a Processor (Topcuoglu, Hariri and Wu 2002, section 4.2).

All tasks of the critical path go to the one processor that runs it fastest, the others, by falling upward plus downward rank,
to the device of their earliest finish with insertion (`methods.placing.list_scheduling.cpop`). Path tasks that the processor may not
run, or has no memory for, are treated like the others.
"""

from __future__ import annotations

import numpy as np

from methods.contract.fixed_list import FixedList
from methods.placing.constraints import fit_memory
from methods.placing.list_scheduling import cpop


class Cpop(FixedList):
    """The one placement of CPOP: the critical path on its best device, the rest by earliest finish."""

    seeded = False

    def placement(self, index: int) -> np.ndarray:
        return fit_memory(self.problem, cpop(self.problem).device[None, :])[0]

    def report(self) -> dict[str, float]:
        """The makespan of the schedule that CPOP itself plans, seconds."""
        return {"planned_makespan": cpop(self.problem).makespan}
