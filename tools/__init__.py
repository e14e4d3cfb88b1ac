"""Programs of the build. Nothing here is installed."""
