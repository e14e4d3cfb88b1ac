"""The changelog algebra: DataFrame → DataFrame and plain values. No session, no I/O, no clock, no configuration."""
