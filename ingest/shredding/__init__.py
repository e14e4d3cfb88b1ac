"""Crypto-shredding: personal columns are encrypted under a key of their subject before bronze is written. Destroying
that key makes every copy of the values unreadable, known or not."""
