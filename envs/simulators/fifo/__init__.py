"""The event simulator of GiPH's kind: every device takes its tasks first in, first out."""
