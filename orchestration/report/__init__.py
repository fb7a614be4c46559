"""Comparing what trials reached: collecting, summarising, formatting. Nothing here runs a trial."""
