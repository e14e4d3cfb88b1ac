"""Generates the insurer's tables from a seed: members, their accident claims, and their changes.

A seed gives the same rows and changes on every machine. People and numbers are invented.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

Row = Mapping[str, Any]
Table = Literal["members", "accident_claims"]

SCHEMA = "claims"
MEMBERS = f"{SCHEMA}.members"
ACCIDENT_CLAIMS = f"{SCHEMA}.accident_claims"
MEMBER_COUNT = 250
CLAIM_COUNT = 1_000

DDL = """
CREATE SCHEMA claims;
CREATE TYPE claims.claim_status AS ENUM ('reported', 'in_review', 'approved', 'rejected', 'paid');
CREATE TABLE claims.members (
    id             bigint PRIMARY KEY,
    member_number  uuid NOT NULL,
    full_name      text NOT NULL,
    birth_date     date NOT NULL,
    email          varchar(120),
    active         boolean NOT NULL,
    preferences    jsonb NOT NULL,
    yearly_premium numeric(12, 2) NOT NULL,
    joined_at      timestamptz NOT NULL,
    revision       integer NOT NULL
);
CREATE TABLE claims.accident_claims (
    id             bigint PRIMARY KEY,
    claim_number   uuid NOT NULL,
    member_id      bigint NOT NULL REFERENCES claims.members (id),
    status         claims.claim_status NOT NULL,
    happened_on    date NOT NULL,
    happened_at    time,
    reported_at    timestamptz NOT NULL,
    inspected_at   timestamp,
    amount_claimed numeric(12, 2) NOT NULL,
    amount_paid    numeric(12, 2),
    injured        boolean NOT NULL,
    damaged_parts  text[] NOT NULL,
    latitude       double precision,
    longitude      double precision,
    details        jsonb NOT NULL,
    photo_digest   bytea,
    description    text,
    revision       integer NOT NULL
);
"""

_GIVEN = (
    "Ada",
    "Björn",
    "Chloé",
    "Dmitri",
    "Élodie",
    "Farid",
    "Grace",
    "Hiro",
    "Inés",
    "Jürgen",
    "Kofi",
    "Łucja",
)
_FAMILY = (
    "Abebe",
    "Bianchi",
    "Çelik",
    "Dubois",
    "Eriksen",
    "García",
    "Hoffmann",
    "Ivanova",
    "Nakamura",
    "O'Neill",
)
_PARTS = ("bumper", "door", "windscreen", "bonnet", "wing", "headlight", "mirror", "wheel", "roof")
_ACCIDENTS = (
    "rear-ended at a red light",
    "slid on ice — hit a barrier",
    "door opened into traffic",
    "hail",
    "deer on the road; driver unhurt",
    "parked car scratched, culprit unknown",
)
_WEATHER = ("clear", "rain", "snow", "fog")
_STATUSES = ("reported", "in_review", "approved", "rejected", "paid")
_EPOCH = datetime(2025, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Change:
    """A statement on one row. `values`: all columns of an insert, the changed ones of an update, none of a delete."""

    op: Literal["insert", "update", "delete"]
    table: Table
    id: int
    values: Row


class ClaimsBook:
    """The generator's state: the members, the claims, and the random changes that follow."""

    def __init__(self, seed: int, members: int = MEMBER_COUNT, claims: int = CLAIM_COUNT) -> None:
        self._random = random.Random(seed)
        self._revisions: dict[Table, dict[int, int]] = {"members": {}, "accident_claims": {}}
        self._last: dict[Table, int] = {"members": 0, "accident_claims": 0}
        self.members = [self._member() for _ in range(members)]
        self.accident_claims = [self._claim() for _ in range(claims)]

    def ids(self, table: Table) -> list[int]:
        """Returns the ids of the rows that exist, sorted."""
        return sorted(self._revisions[table])

    def transactions(self) -> Iterator[list[Change]]:
        """Yields transactions of one to five statements, without end."""
        while True:
            yield [self._change() for _ in range(self._random.choice((1, 1, 1, 2, 3, 5)))]

    def new_claim(self) -> Change:
        """Returns the insert of a claim that `transactions` never changes."""
        row = dict(self._claim())
        del self._revisions["accident_claims"][row["id"]]
        return Change("insert", "accident_claims", row["id"], row)

    def closing(self) -> list[Change]:
        """Returns a last update of each table: once silver shows it, all earlier changes have arrived."""
        return [self._touched(table) for table in ("members", "accident_claims")]

    def _change(self) -> Change:
        drawn = self._random.random()
        if drawn < 0.38:
            return self._inserted("accident_claims", self._claim())
        if drawn < 0.75:
            return self._claim_updated()
        if drawn < 0.88:
            return self._deleted()
        if drawn < 0.93:
            return self._inserted("members", self._member())
        return self._touched("members")

    def _inserted(self, table: Table, row: Row) -> Change:
        return Change("insert", table, row["id"], row)

    def _claim_updated(self) -> Change:
        draw = self._random
        change = self._touched("accident_claims")
        status = draw.choice(_STATUSES[1:])
        paid = self._amount() if status == "paid" else None
        values = {**change.values, "status": status, "amount_paid": paid}
        if draw.random() < 0.3:
            values["description"] = draw.choice((*_ACCIDENTS, None))
        return Change("update", "accident_claims", change.id, values)

    def _touched(self, table: Table) -> Change:
        live = self._revisions[table]
        chosen = self._random.choice(list(live))
        live[chosen] += 1
        values: dict[str, Any] = {"revision": live[chosen]}
        if table == "members":
            values |= {"active": self._random.random() < 0.9, "yearly_premium": self._amount()}
        return Change("update", table, chosen, values)

    def _deleted(self) -> Change:
        live = self._revisions["accident_claims"]
        chosen = self._random.choice(list(live))
        del live[chosen]
        return Change("delete", "accident_claims", chosen, {})

    def _member(self) -> Row:
        draw = self._random
        given, family = draw.choice(_GIVEN), draw.choice(_FAMILY)
        number = self._next("members")
        return {
            "id": number,
            "member_number": self._uuid(),
            "full_name": f"{given} {family}",
            "birth_date": date(1940, 1, 1) + timedelta(days=draw.randrange(24_000)),
            "email": None if draw.random() < 0.1 else f"member{number}@example.org",
            "active": draw.random() < 0.95,
            "preferences": {"language": draw.choice(("de", "en", "fr")), "letters": draw.random() < 0.3},
            "yearly_premium": self._amount(),
            "joined_at": _EPOCH - timedelta(seconds=draw.randrange(300_000_000)),
            "revision": 0,
        }

    def _claim(self) -> Row:
        draw = self._random
        reported = _EPOCH + timedelta(microseconds=draw.randrange(30_000_000_000_000))
        located = draw.random() < 0.7
        inspected = reported.replace(tzinfo=None) + timedelta(hours=draw.randrange(1, 400))
        return {
            "id": self._next("accident_claims"),
            "claim_number": self._uuid(),
            "member_id": draw.choice(list(self._revisions["members"])),
            "status": "reported",
            "happened_on": reported.date() - timedelta(days=draw.randrange(10)),
            "happened_at": None if draw.random() < 0.2 else (_EPOCH + self._within_a_day()).time(),
            "reported_at": reported,
            "inspected_at": inspected if draw.random() < 0.5 else None,
            "amount_claimed": self._amount(),
            "amount_paid": None,
            "injured": draw.random() < 0.15,
            "damaged_parts": draw.sample(_PARTS, draw.randrange(4)),
            "latitude": draw.uniform(43.0, 55.0) if located else None,
            "longitude": draw.uniform(-4.0, 15.0) if located else None,
            "details": {"weather": draw.choice(_WEATHER), "others": draw.randrange(3), "police": None},
            "photo_digest": draw.randbytes(32) if draw.random() < 0.4 else None,
            "description": draw.choice((*_ACCIDENTS, None)),
            "revision": 0,
        }

    def _next(self, table: Table) -> int:
        self._last[table] += 1
        self._revisions[table][self._last[table]] = 0
        return self._last[table]

    def _uuid(self) -> UUID:
        return UUID(bytes=self._random.randbytes(16), version=4)

    def _amount(self) -> Decimal:
        return Decimal(self._random.randrange(2_000, 3_000_000)) / 100

    def _within_a_day(self) -> timedelta:
        return timedelta(microseconds=self._random.randrange(86_400_000_000))
