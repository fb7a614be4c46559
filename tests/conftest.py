"""Settings of all tests: Hypothesis draws the same examples every run, and no example fails for compiling or a busy machine."""

from hypothesis import settings

settings.register_profile("placewright", deadline=None, derandomize=True)
settings.load_profile("placewright")
