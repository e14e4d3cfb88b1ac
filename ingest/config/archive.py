"""The configuration of a pipeline's archive."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from ingest.config.properties import Properties, PropertiesField
from ingest.config.section import Section
from ingest.names import BUCKET_URI, bucket_and_prefix

_CLIENT_OPTIONS = (
    "endpoint_url",
    "region_name",
    "aws_access_key_id",
    "aws_secret_access_key",
    "aws_session_token",
    "verify",
)


def _bucket_uri(text: str) -> str:
    bucket_and_prefix(text)
    return text


BucketUri = Annotated[str, AfterValidator(_bucket_uri), Field(json_schema_extra={"pattern": BUCKET_URI})]


class Archive(Section):
    """The archive, which keeps the raw changelog for ever."""

    uri: BucketUri = Field(
        description="A bucket of S3-compatible storage, optionally with a prefix, such as s3://bucket/changelogs."
    )
    s3: PropertiesField = Field(
        default_factory=Properties,
        description="Options of boto3's client under its own names: endpoint_url, region_name, aws_access_key_id, … "
        "For options that are left out, boto3's own defaults apply.",
    )
    layout: Literal["ingest", "confluent", "aiven"] = Field(
        default="ingest",
        description="Who writes the archive. ingest: `ingest archive run`. confluent, aiven: their S3 sink connector, "
        "into the folder of uri, which is then only read.",
    )
    gaps: Literal["stop", "ignore"] = Field(
        default="stop",
        description="What to do if a connector's objects leave offsets out. stop: fail with an error. ignore: take it "
        "that the topic has none there (it is compacted, or written in transactions), or that they are "
        "lost.",
    )

    @model_validator(mode="after")
    def _require_known_offsets(self) -> Self:
        if self.gaps == "ignore" and self.layout != "aiven":
            raise ValueError(
                f"can't ignore gaps with the layout {self.layout}, which derives offsets from the records' order"
            )
        return self

    @model_validator(mode="after")
    def _require_client_options(self) -> Self:
        for key in self.s3:
            if key not in _CLIENT_OPTIONS:
                raise ValueError(f"s3 holds {key!r}, which is none of {', '.join(_CLIENT_OPTIONS)}")
        return self
