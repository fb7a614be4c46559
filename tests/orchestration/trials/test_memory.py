"""What a trial's process does with memory that was freed, in a process of its own."""

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, torch
from orchestration.trials.memory import keep_freed_memory
keep_freed_memory()
ones = torch.ones(2**20)
for _ in range(4):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    kept = [torch.relu(ones) for _ in range(40)]
    del kept
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_blocks_that_were_freed_cost_no_page_faults():
    out = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True).stdout
    first, *_, last = map(int, out.split())
    assert first > 10_000, "4 MB are 1,000 pages"
    assert last < first / 5
