"""The demonstration: an insurer's claims in Postgres, streamed into silver and held against their source."""
