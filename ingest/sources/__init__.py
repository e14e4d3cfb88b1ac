"""Sources of changelogs. `contract` defines what every source guarantees."""
