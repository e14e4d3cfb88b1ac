"""Topics, partitions, offsets and settings of a Kafka cluster, by its admin API. No record is read here.

A `KafkaAdmin` keeps one client, so that a request needs no new connection.
"""

from __future__ import annotations

import difflib
import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ClusterMetadata,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)

from ingest.errors import ConfigError, IngestError, SourceRefused, Unreachable
from ingest.sources.kafka_properties import librdkafka_properties

if TYPE_CHECKING:
    from ingest.sources.contract import Offsets

# The methods of OffsetSpec have no type annotations.
_OFFSET_SPEC: Any = OffsetSpec
_ATTEMPT_SECONDS = 1.0
_PAUSE_SECONDS = 0.1
_METADATA_SECONDS = 5.0
_NO_SUCH_TIME = -1
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
_OWN_TOPICS = frozenset({"__consumer_offsets", "__share_group_state", "__transaction_state"})
_DENIED = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError.ILLEGAL_SASL_STATE,
        KafkaError._SSL,
    }
)
_FORBIDDEN = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED})
_GONE = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})

# Without a handler, librdkafka writes to stderr at every attempt to connect.
_librdkafka_log = logging.getLogger(f"{__name__}.librdkafka")
_librdkafka_log.addHandler(logging.NullHandler())


class KafkaAdmin:
    """An admin client of one cluster. `properties` are Kafka client properties under their Java names.

    Every method raises Unreachable after `timeout` seconds without an answer, and SourceRefused as soon as the cluster
    refuses the user. The constructor does not connect; it raises ConfigError for properties that can't be used.
    """

    def __init__(self, properties: Mapping[str, str], timeout: float = 10.0) -> None:
        self._servers = properties.get("bootstrap.servers", "")
        self._timeout = timeout
        self._isolation = (
            IsolationLevel.READ_COMMITTED
            if properties.get("isolation.level") == "read_committed"
            else IsolationLevel.READ_UNCOMMITTED
        )
        self._errors: list[KafkaError] = []
        self._partitions: dict[str, tuple[int, ...]] = {}
        self._unavailable: dict[str, KafkaError] = {}
        self._metadata_at = float("-inf")
        client_settings: dict[str, Any] = {**librdkafka_properties(properties), "error_cb": self._errors.append}
        try:
            self._client = AdminClient(client_settings, logger=_librdkafka_log)
        except KafkaException:
            # librdkafka's message quotes the refused value, which may be a secret.
            raise ConfigError(
                "source.kafka: the Kafka client refuses a value, or can't read a file, among "
                f"{', '.join(sorted(client_settings.keys() - {'error_cb'}))}",
                "correct it; the values are those of Kafka's documentation, the files PEM or PKCS12",
            ) from None

    def brokers(self) -> tuple[str, ...]:
        """Returns the brokers of the cluster as host:port, sorted."""
        found = self._metadata().brokers.values()
        return tuple(sorted(f"{broker.host}:{broker.port}" for broker in found))

    def topics(self, topics: Sequence[str] | None = None, pattern: str | None = None) -> tuple[str, ...]:
        """Returns the given topics, or those whose whole name matches `pattern`, sorted. Always queries the cluster.

        Raises SourceRefused where a given topic is absent, or no topic matches.
        """
        if topics is not None:
            self._await_topics(frozenset(topics).__contains__)
            self._check_present(topics)
            return tuple(sorted(topics))
        expression = re.compile(pattern or "")
        self._await_topics(lambda topic: expression.fullmatch(topic) is not None and topic not in _OWN_TOPICS)
        found = tuple(sorted(t for t in self._partitions if expression.fullmatch(t) and t not in _OWN_TOPICS))
        if not found:
            raise SourceRefused(
                f"none of the {len(self._partitions)} topics that {self._servers} shows matches {pattern!r}",
                f"{self._suggestion(pattern or '')}start the connector, correct source.topic_pattern, or let the "
                "user describe the topics",
            )
        return found

    def present(self, topics: Iterable[str]) -> tuple[str, ...]:
        """Returns those of the topics that the newest metadata show, sorted."""
        return tuple(sorted(topic for topic in topics if topic in self._partitions))

    def partitions(self, topics: Iterable[str]) -> dict[str, tuple[int, ...]]:
        """Returns topic → its partitions, at most a few seconds old. Raises SourceRefused for an absent topic."""
        wanted = tuple(topics)
        is_stale = time.monotonic() - self._metadata_at > _METADATA_SECONDS
        if is_stale or any(topic not in self._partitions for topic in wanted):
            self._await_topics(frozenset(wanted).__contains__)
        self._check_present(wanted)
        return {topic: self._partitions[topic] for topic in wanted}

    def beginning_offsets(self, topics: Iterable[str]) -> Offsets:
        """Returns topic → partition → the first offset that is still available."""
        return self._offsets(tuple(topics), _OFFSET_SPEC.earliest())

    def end_offsets(self, topics: Iterable[str]) -> Offsets:
        """Returns topic → partition → the offset of the next record to be written."""
        return self._offsets(tuple(topics), _OFFSET_SPEC.latest())

    def offsets_at(self, topics: Iterable[str], moment: datetime) -> Offsets:
        """Returns topic → partition → the first offset whose timestamp is `moment` (aware) or later, else the end."""
        if moment.tzinfo is None:
            raise ValueError("a moment without a time zone names no point in time")
        wanted = tuple(topics)
        # First the ends: a record that arrives between the two requests must not be skipped.
        ends = self.end_offsets(wanted)
        found = self._offsets(wanted, _OFFSET_SPEC.for_timestamp(int(moment.timestamp() * 1000)))
        return {
            topic: {p: ends[topic][p] if o == _NO_SUCH_TIME else o for p, o in partitions.items()}
            for topic, partitions in found.items()
        }

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Returns topic → topic id, which differs after a topic is recreated; no entries before Kafka 2.8."""
        deadline = time.monotonic() + self._timeout
        while True:
            self._clear_errors()
            requested = TopicCollection(sorted(topics))
            answers = self._client.describe_topics(requested, request_timeout=self._timeout)
            try:
                ids = {topic: str(answer.result().topic_id) for topic, answer in answers.items()}
            except KafkaException as exception:
                self._raise_denied(exception.args[0])
                if time.monotonic() >= deadline:
                    raise self._unreachable(exception.args[0]) from None
                time.sleep(_PAUSE_SECONDS)
            else:
                return {topic: id_ for topic, id_ in ids.items() if id_ != _NO_ID}

    def properties(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """Returns topic → its settings under Kafka's own names."""
        requested = [ConfigResource(ResourceType.TOPIC, topic) for topic in sorted(topics)]
        self._clear_errors()
        answers = self._client.describe_configs(requested, request_timeout=self._timeout)
        try:
            described = {place.name: answer.result() for place, answer in answers.items()}
        except KafkaException as exception:
            self._raise_denied(exception.args[0])
            raise self._unreachable(exception.args[0]) from None
        return {
            topic: {name: str(entry.value) for name, entry in settings.items()} for topic, settings in described.items()
        }

    def _await_topics(self, is_wanted: Callable[[str], bool]) -> None:
        """Refreshes the metadata until it is complete for all wanted topics. During a leader election a topic carries
        an error instead of its partitions, and would look absent."""
        deadline = time.monotonic() + self._timeout
        while True:
            self._metadata()
            errors = [error for topic, error in self._unavailable.items() if is_wanted(topic)]
            if not errors:
                return
            if time.monotonic() >= deadline:
                raise self._unreachable(errors[0])
            time.sleep(_PAUSE_SECONDS)

    def _metadata(self) -> ClusterMetadata:
        """Fetches the cluster's metadata in one request. The attempts are short, since an authentication error is
        reported only between them."""
        self._clear_errors()
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                metadata = self._client.list_topics(timeout=min(_ATTEMPT_SECONDS, self._timeout))
            except KafkaException as exception:
                self._raise_denied(exception.args[0])
                if time.monotonic() >= deadline:
                    raise self._unreachable() from None
            else:
                break
        errors = {name: topic.error for name, topic in metadata.topics.items() if topic.error}
        self._unavailable = {name: e for name, e in errors.items() if e.code() not in _GONE | _FORBIDDEN}
        self._partitions = {
            name: tuple(sorted(topic.partitions)) for name, topic in metadata.topics.items() if not topic.error
        }
        self._metadata_at = time.monotonic()
        return metadata

    def _offsets(self, topics: Sequence[str], spec: OffsetSpec) -> Offsets:
        deadline = time.monotonic() + self._timeout
        while True:
            offsets, failures = self._request_offsets(self.partitions(topics), spec)
            if not failures:
                return offsets
            for topic, error in failures.items():
                self._raise_denied(error, topic)
            if time.monotonic() >= deadline:
                raise self._unreachable(next(iter(failures.values())))
            # The leader moved or the topic was recreated: expire the metadata.
            self._metadata_at = float("-inf")
            time.sleep(_PAUSE_SECONDS)

    def _request_offsets(
        self, partitions: Mapping[str, Sequence[int]], spec: OffsetSpec
    ) -> tuple[Offsets, dict[str, KafkaError]]:
        """Sends one request to each leader. Returns the offsets, and topic → error of the partitions without one."""
        self._clear_errors()
        requested = {TopicPartition(topic, p): spec for topic, ps in partitions.items() for p in ps}
        offsets: Offsets = {topic: {} for topic in partitions}
        failures: dict[str, KafkaError] = {}
        if not requested:
            return offsets, failures
        answers = self._client.list_offsets(requested, isolation_level=self._isolation, request_timeout=self._timeout)
        for place, answer in answers.items():
            try:
                offsets[place.topic][place.partition] = int(answer.result().offset)
            except KafkaException as exception:
                failures[place.topic] = exception.args[0]
        return offsets, failures

    def _clear_errors(self) -> None:
        self._client.poll(0)
        self._errors.clear()

    def _raise_denied(self, error: KafkaError, topic: str | None = None) -> None:
        """Raises SourceRefused if the cluster refused the user, in `error` or when connecting."""
        self._client.poll(0)
        denied = next((e for e in (error, *self._errors) if e.code() in _DENIED), None)
        if denied is not None:
            raise SourceRefused(
                f"Kafka at {self._servers} refuses the connection: {_reason(denied)}",
                "a wrong password, user, certificate or mechanism: correct sasl.jaas.config, sasl.mechanism, "
                "security.protocol or ssl.* in source.kafka",
            )
        if error.code() in _FORBIDDEN:
            raise SourceRefused(
                f"Kafka at {self._servers} does not let the user describe {topic or 'the cluster'}",
                "grant the user Describe and Read on the topic",
            )

    def _unreachable(self, error: KafkaError | None = None) -> IngestError:
        specific = [e for e in self._errors if e.code() != KafkaError._ALL_BROKERS_DOWN]
        reason = error or (specific[-1] if specific else None)
        return Unreachable(
            f"Kafka at {self._servers} gave no answer within {self._timeout:g} s"
            + (f": {_reason(reason)}" if reason else ""),
            "check that it runs and can be reached, and that bootstrap.servers and security.protocol fit its listener",
        )

    def _check_present(self, topics: Iterable[str]) -> None:
        absent = [topic for topic in topics if topic not in self._partitions]
        if absent:
            raise SourceRefused(
                f"there is no topic {absent[0]!r} on {self._servers}, or the user may not see it",
                f"{self._suggestion(absent[0])}start its connector, create the topic, correct source.topics, or "
                "grant Describe on it",
            )

    def _suggestion(self, topic: str) -> str:
        near = difflib.get_close_matches(topic, self._partitions, n=3)
        return f"did you mean {' or '.join(repr(name) for name in near)}? Else " if near else ""


def lag(end: Offsets, captured: Offsets) -> Offsets:
    """Returns topic → partition → the number of offsets by which `captured` (next offsets) is behind `end`.

    For a partition that was never captured, all its offsets. A negative number means that the topic is shorter than
    what was captured: it has been recreated.
    """
    return {
        topic: {p: offset - captured.get(topic, {}).get(p, 0) for p, offset in partitions.items()}
        for topic, partitions in end.items()
    }


def _reason(error: KafkaError) -> str:
    """Returns librdkafka's message without the broker's name before it and the timing after it."""
    return re.sub(r"^\S+: | \(after \d+ms in state \w+\)", "", error.str())
