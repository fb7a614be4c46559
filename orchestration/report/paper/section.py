"""The report section of a sweep's definition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from orchestration.folder.definition_copy import merged_definition, saved_definition
from orchestration.report.paper.contrasts import with_defaults


def report_section(sweep: Path, folder: Path) -> dict[str, Any]:
    """The ``report`` section of a sweep given by its YAML file; by name or folder that of the definition as it ran.

    Its ``tables`` hold those too that come by themselves, for ablations and for graphs held out.
    """
    definition = saved_definition(folder) if sweep.suffix not in (".yaml", ".yml") else merged_definition(sweep)
    section = definition.get("report")
    return {**(section if isinstance(section, dict) else {}), "tables": with_defaults(definition)}
