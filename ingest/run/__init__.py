"""The one path: capture into bronze, merge into silver, in whatever mode somebody triggers it."""
