"""Which function makes which shape of table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from orchestration.analysis.load import SweepRecord
from orchestration.analysis.notes import reason
from orchestration.analysis.table import Table
from orchestration.report.paper.by_graph import proposed, search_time, speedup
from orchestration.report.paper.contrasts import ablation, generalization
from orchestration.report.paper.giph import by_depth, by_network, by_step, by_training, distribution, final, pairwise, relocation
from orchestration.report.paper.outputs import outputs
from orchestration.report.paper.runtimes import evaluations, hours, runtimes
from orchestration.report.paper.study import Scored, Study

TABLES: Mapping[str, Callable[[Study], Table]] = {
    "final": final, "by-step": by_step, "by-depth": by_depth, "by-network": by_network, "pairwise": pairwise,
    "by-training": by_training, "distribution": distribution, "relocation": relocation, "speedup": speedup,
    "search-time": search_time, "outputs": outputs, "ablation": ablation, "generalization": generalization, "runtimes": runtimes,
    "evaluations": evaluations, "hours": hours, "proposed": proposed,
}  # fmt: skip


def study_tables(record: SweepRecord, section: Mapping[str, Any], notes: list[str] | None = None) -> list[Table]:
    """The tables that a sweep's ``report`` section asks for; none without ``tables``.

    Args:
        section: as `orchestration.report.paper.section.report_section` gives it, with the tables that come by themselves.
        notes: takes a sentence for each table that cannot be made; without it the first of them is raised.

    Raises:
        InputError: if a table cannot be made and ``notes`` is None.
    """
    scored, made = Scored(record), []
    for entry in section.get("tables") or ():
        try:
            study = Study.of_entry(record, entry, scored)
            made.append(TABLES[study.entry["shape"]](study))
        except Exception as error:  # whatever is wrong with one table, a host that does not answer say, the others stand
            if notes is None:
                raise
            notes.append(f"no table {entry.get('title') or entry.get('shape')!r}: {reason(error)}")
    return made
