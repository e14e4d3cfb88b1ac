"""The values of an erased subject that were collected from its events: in a sealed file, from the request to the
certificate."""
