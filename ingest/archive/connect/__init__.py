"""What S3 sink connectors of Kafka Connect have written: objects of a topic partition that begin at the offset in
their name. Nothing beside them says what else there should be.

Confluent's holds values alone, a line or a Parquet row each, and keys and headers in objects beside; so an offset is
that of the object and a line's number, as long as no offset was left out. Aiven's holds records with the fields that it
was told to write.

    <topic>/partition=0/<topic>+0+0000000000.json         <topic>-0-0.gz
    <topic>/partition=0/<topic>+0+0000000000.keys.json
    <topic>/tombstone/<topic>+0+0000000017.keys.json      null tombstones: keys without values
"""

from ingest.archive.connect.layout import SunkByConnector
from ingest.archive.connect.listing import Wanted

__all__ = ["SunkByConnector", "Wanted"]
