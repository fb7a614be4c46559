"""GiPH: the method and its policy."""
