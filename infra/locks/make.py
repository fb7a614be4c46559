"""Writes the lock files of the image: every package at the version of constraints.txt, with the hashes of its files. ``make lock``."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
EXTRAS = ("--extra", "postgres", "--extra", "s3", "--extra", "auth")
PLATFORM = ("--python-version", "3.11", "--python-platform", "x86_64-unknown-linux-gnu")


def main() -> None:
    """Resolve once, and part what comes with CUDA from the rest, so that an image without it leaves it out."""
    pins = re.findall(r"^([\w.-]+)==", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    pinned = {re.sub(r"[-_.]+", "-", name).lower() for name in pins}
    command = [
        Path(sys.executable).with_name("uv"), "pip", "compile", "pyproject.toml", *EXTRAS, "--constraint", "constraints.txt",
        "--generate-hashes", "--no-header", "--no-annotate", "--quiet", *PLATFORM,
    ]  # fmt: skip
    text = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    entries = {entry.split("==")[0]: entry for entry in re.split(r"\n(?=\w)", text.strip())}
    cuda = {name for name in entries if name == "torch" or name not in {*pinned, "setuptools"}}
    for file, names in (("requirements.txt", entries.keys() - cuda), ("torch-cuda.txt", cuda)):
        (HERE / file).write_text("\n".join(entries[name] for name in sorted(names)) + "\n")
        print(f"{file}: {len(names)} packages")


if __name__ == "__main__":
    main()
