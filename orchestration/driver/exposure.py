"""Who else could reach a Ray cluster, in words. Ray listens on every interface of a machine; a token keeps others out."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterable
from pathlib import Path

TOKEN = Path(".ray") / "auth_token"
"""Where Ray keeps a token of its own making, below the home folder."""


def notes(addresses: Iterable[str]) -> list[str]:
    """Warnings about a cluster of nodes at these addresses: that it asks for no token, or that others can read this user's."""
    beyond = [a for a in addresses if not _loopback(a)]
    if not beyond:
        return []
    if os.environ.get("RAY_AUTH_MODE") != "token":  # Ray sets it when it starts a cluster, unless somebody has switched it off
        return [
            f"Ray listens at {beyond[0]} and asks for no token: whoever reaches it can run programs as this user; "
            "unset RAY_AUTH_MODE, or set it to token here and where the cluster was started"
        ]
    if "RAY_AUTH_TOKEN" in os.environ:
        return []
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / TOKEN)
    if _read_by_others(path):
        return [f"other users of this machine can read {path}, and with it use Ray as this user; chmod 600 {path}"]
    return []


def _loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def _read_by_others(path: Path) -> bool:
    """Whether somebody of another name could open a file: it can be read, and all folders above it be entered."""
    try:
        return bool(path.stat().st_mode & 0o044) and all(folder.stat().st_mode & 0o011 for folder in path.resolve().parents)
    except OSError:
        return False
