"""Types of columns that neither a schema nor a declaration gives."""
