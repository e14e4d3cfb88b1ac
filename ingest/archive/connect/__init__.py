"""Archives that S3 sink connectors of Kafka Connect wrote. An object holds records of one topic partition, from the
offset in its name on. There is no manifest, so missing objects at the ends can't be detected.

Confluent's objects hold values only, one line or Parquet row each, with keys and headers in separate objects. A
record's offset is that of the object plus the line's number, provided that no offset is missing. Aiven's objects hold
records with the fields that its configuration lists.

    <topic>/partition=0/<topic>+0+0000000000.json         <topic>-0-0.gz
    <topic>/partition=0/<topic>+0+0000000000.keys.json
    <topic>/tombstone/<topic>+0+0000000017.keys.json      null tombstones: keys without values
"""

from ingest.archive.connect.layout import ConnectorArchive
from ingest.archive.connect.listing import TopicSelection

__all__ = ["ConnectorArchive", "TopicSelection"]
