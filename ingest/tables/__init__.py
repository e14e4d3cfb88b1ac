"""Delta tables of the lakehouse: bronze, silver, tombstones, quarantine, accounts, and the catalog of them."""
