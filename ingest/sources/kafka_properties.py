"""Translates Kafka client properties under their Java names for Spark, and for librdkafka, which names some
otherwise."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ingest.errors import ConfigError

# Properties with the same name and meaning in both clients. Those not named in this module only concern Spark's reader.
_ALIKE = frozenset(
    {
        "bootstrap.servers",
        "client.dns.lookup",
        "client.id",
        "client.rack",
        "metadata.max.age.ms",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "sasl.kerberos.service.name",
        "sasl.mechanism",
        "security.protocol",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.password",
    }
)
_PASSWORD_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_LOGIN = re.compile(r"\s*\S*\.?(?:Plain|Scram)LoginModule\s+\w+\s+(?P<options>.*?);?\s*", re.DOTALL)
_OPTION = re.compile(r"""([\w.$-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))""", re.DOTALL)


def spark_options(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the options of Spark's Kafka reader and writer for the Java client's `properties`."""
    return {f"kafka.{name}": value for name, value in properties.items()}


def librdkafka_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns librdkafka's properties for the same connection as the Java client's `properties`.

    Those that only concern reading and writing records are left out. Raises ConfigError for a login, certificate or
    protocol that librdkafka doesn't support.
    """
    translated = {key: value for key, value in properties.items() if key in _ALIKE}
    if translated.get("ssl.endpoint.identification.algorithm") == "":
        translated["ssl.endpoint.identification.algorithm"] = "none"
    if properties.get("security.protocol", "PLAINTEXT").upper().startswith("SASL_"):
        translated |= _login(properties)
    return translated | _trusted(properties) | _own_certificate(properties)


def _login(properties: Mapping[str, str]) -> dict[str, str]:
    mechanism = properties.get("sasl.mechanism", "GSSAPI")
    if mechanism not in _PASSWORD_MECHANISMS:
        raise ConfigError(
            f"source.kafka: sasl.mechanism {mechanism} can't be used to ask Kafka for offsets",
            f"use one of {', '.join(_PASSWORD_MECHANISMS)}, or TLS with a client certificate",
        )
    login = _LOGIN.fullmatch(properties.get("sasl.jaas.config", ""))
    options = dict(_option(match) for match in _OPTION.finditer(login["options"])) if login else {}
    if not {"username", "password"} <= options.keys():
        raise ConfigError(
            f"source.kafka: sasl.jaas.config holds no user name and password for {mechanism}",
            "write it as: org.apache.kafka.common.security.plain.PlainLoginModule required "
            'username="…" password="${KAFKA_PASSWORD}";',
        )
    return {"sasl.username": options["username"], "sasl.password": options["password"]}


def _option(match: re.Match[str]) -> tuple[str, str]:
    key, double, single, bare = match.groups()
    if bare is not None:
        return key, bare
    return key, re.sub(r"\\(.)", r"\1", double if double is not None else single, flags=re.DOTALL)


def _trusted(properties: Mapping[str, str]) -> dict[str, str]:
    if "ssl.truststore.certificates" in properties:
        return {"ssl.ca.pem": properties["ssl.truststore.certificates"]}
    location = properties.get("ssl.truststore.location")
    if location is None:
        return {}
    if properties.get("ssl.truststore.type", "JKS").upper() != "PEM":
        raise ConfigError(
            "source.kafka: ssl.truststore.location is a Java keystore, which only Java reads",
            "export its certificates with `keytool -exportcert -rfc` and set ssl.truststore.type: PEM",
        )
    return {"ssl.ca.location": location}


def _own_certificate(properties: Mapping[str, str]) -> dict[str, str]:
    if "ssl.keystore.certificate.chain" in properties and "ssl.keystore.key" in properties:
        return {
            "ssl.certificate.pem": properties["ssl.keystore.certificate.chain"],
            "ssl.key.pem": properties["ssl.keystore.key"],
        }
    location = properties.get("ssl.keystore.location")
    if location is None:
        return {}
    kind = properties.get("ssl.keystore.type", "JKS").upper()
    if kind == "PEM":
        return {"ssl.certificate.location": location, "ssl.key.location": location}
    if kind == "PKCS12":
        return {
            "ssl.keystore.location": location,
            "ssl.keystore.password": properties.get("ssl.keystore.password", ""),
        }
    raise ConfigError(
        f"source.kafka: ssl.keystore.type {kind} is read only by Java",
        "convert it with `keytool -importkeystore -deststoretype PKCS12` and set ssl.keystore.type: PKCS12",
    )
