"""Crypto-shredding: personal columns are encrypted under a key of their subject, from bronze on. Whoever destroys the
key has made every copy of them unreadable, also those that nobody knows of."""
