"""The events of a batch by table: group statistics, placement, schemas, and the rules of a pipeline."""
