"""Running what ``placewright export`` wrote: ``placewright.runtime.load(FOLDER)`` gives a callable like the module."""

from envs.hosts.engine.placed import PlacedModule, load

__all__ = ["PlacedModule", "load"]
