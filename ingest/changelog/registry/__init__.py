"""Records whose schemas are in a registry: Avro, JSON Schema and Connect's own schemas, as Debezium's JSON."""
