"""The demo: an insurer's claims in Postgres are streamed into silver, which is then compared with its source."""
