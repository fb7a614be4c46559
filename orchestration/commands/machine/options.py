"""The command line's options that say what to place a model on. Nothing heavy is imported here."""

from __future__ import annotations

from typing import Any


def add_target(parser: Any, required: bool) -> None:
    """The options that say what to place on."""
    parser.add_argument("--on", required=required, metavar="DEVICES", help="cpu:0,cpu:1,cpu:0-1,cuda:0 (torch), or openvino")
    parser.add_argument("--memory", action="append", default=[], metavar="DEVICE=SIZE", help="use no more, as cuda:0=4GB; may be repeated")
    parser.add_argument("--input-shape", action="append", default=[], metavar="NAME=SIZES", help="concrete sizes, as img=1,3,224,224")
    parser.add_argument("--size", action="append", default=[], metavar="NAME=VALUE", help="a size of a known model, as batch=4")
    parser.add_argument(
        "--instances", type=int, default=1, metavar="N", help="split OpenVINO's CPU into N instances that share its cores (1)"
    )
    parser.add_argument("--fresh", action="store_true", help="measure operations anew, whatever is kept")
