"""Names that a source's column can't have: those of system columns in tables, in Delta's change data feed, and during
the merge."""

from __future__ import annotations

import re

_OF_TABLES = "_position _source_ts _column_positions _valid_from _valid_to _until _arrived _other_key"
_OF_DELTA = "_metadata _change_type _commit_version _commit_timestamp"
_OF_CHANGES = "_deleted _event _code _reason _moved _new_key _moved_to _location _key _before _broken _corrupt"
_OF_CHANGES += " _imageless _partial _at _target _named"
_OF_VERDICTS = "_action _tied _won _buried _over_row _over_tombstone _row _tombstone _pending_row _pending_action"
_OF_VERDICTS += " _file _layered _there _moved_at _carried _dead _alive _plain _buries _nth _known _why"
_OF_BAGS = "_side _content _cancelled _place _number _settled _said _run _first"
_OF_LIVES = "_life _next _wanted _other"
RESERVED_NAMES = frozenset(" ".join((_OF_TABLES, _OF_DELTA, _OF_CHANGES, _OF_VERDICTS, _OF_BAGS, _OF_LIVES)).split())
_NUMBERED = re.compile(r"_(old|before|brought|lasting|compared|other)_\d+")


def is_reserved(name: str) -> bool:
    """Returns true if the name is reserved, in any case: Delta's column names are case-insensitive."""
    folded = name.lower()
    return folded in RESERVED_NAMES or _NUMBERED.fullmatch(folded) is not None
