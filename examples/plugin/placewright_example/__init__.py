"""An example of a package that adds to Placewright from outside its tree."""
