"""Where changelogs come from. `contract` says what every source promises."""
