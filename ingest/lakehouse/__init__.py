"""The tables of a lakehouse: bronze, silver, tombstones, quarantine, accounts, catalog."""
