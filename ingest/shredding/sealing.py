"""Events of tables with shredded columns: the values of these, in either image, become sealed text before anything is
kept. All else of an event stays what its JSON says.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ingest.changelog.envelope import EVENT, NO_CHANGE_EVENT
from ingest.changelog.values.unavailable import disguises
from ingest.shredding.cipher import is_sealed, sealed
from ingest.shredding.data_keys import KEY, KEY_ID, OWNER, DataKeys
from ingest.shredding.owners import Shredded
from ingest.suppression.keyed_hash import INNER, OUTER, keyed_hash_column

AFTER, BEFORE = "after", "before"
_OTHER = {AFTER: BEFORE, BEFORE: AFTER}
_MEMBERS = "map<string,variant>"
_NOBODY, _UNREADABLE = "\0", "\0unreadable"
"""In place of a key: of a row that leads to no subject, and of a value that is no JSON object with distinct names."""
_PAYLOAD = "payload"
_WHOLE = "value"
"""In place of a column: of a value that is sealed as a whole."""


@dataclass(frozen=True)
class Sealing:
    """Of one pipeline. `keys`: of its subjects. `placeholder`: of values that were not sent, which stay."""

    shredded: Shredded
    keys: DataKeys
    placeholder: str

    def __call__(self, events: DataFrame) -> DataFrame:
        """`EVENT` rows → the same, sealed."""
        # A value without an envelope is sealed whole: nothing in it tells which parts are personal.
        lost = F.coalesce(F.col("problem").isin(*NO_CHANGE_EVENT), F.lit(False))
        mine = F.coalesce(F.col("source_table").isin(*self.shredded.columns), F.lit(False)) | lost
        read = events.withColumn("_v", F.when(mine & ~lost, F.try_parse_json(F.col("value").cast("string"))))
        root = F.when(F.col("wrapped"), _member(F.col("_v"), f"$.{_PAYLOAD}", "variant")).otherwise(F.col("_v"))
        read = read.withColumn("_root", root).withColumns(
            {f"_{image}": _member(F.col("_root"), f"$.{image}", _MEMBERS) for image in _OTHER}
        )
        read = read.withColumn("_unreadable", mine & F.col("_v").isNull() & F.col("value").isNotNull())
        owned = self.keys.secret(read).withColumns({f"_owner_{image}": self._owner(image) for image in _OTHER})
        owned = owned.drop(INNER, OUTER)
        keyed = self._keyed(owned)
        value = F.when(F.col("_unreadable"), self._whole()).when(F.col("_v").isNotNull(), self._rewritten())
        return keyed.withColumn("value", F.coalesce(value.cast("binary"), "value")).select(*EVENT.names)

    def _owner(self, image: str) -> Column:
        """The keyed hash of whose image it is; null where there is none."""
        parent, text = F.lit(None).cast("string"), F.lit(None).cast("string")
        for table, owner in self.shredded.owners.items():
            mine = F.col("source_table") == table
            held = _member(_named(F.col(f"_{image}"), owner.column), "$", "string")
            parent = F.when(mine, F.lit(owner.table)).otherwise(parent)
            text = F.when(mine, F.coalesce(held, F.lit(_NOBODY))).otherwise(text)
        found = F.when(F.col(f"_{image}").isNotNull(), keyed_hash_column(parent, text))
        unreadable = F.when(F.col("_unreadable"), keyed_hash_column(F.col("source_table"), F.lit(_UNREADABLE)))
        return F.coalesce(found, unreadable) if image == AFTER else found

    def _keyed(self, owned: DataFrame) -> DataFrame:
        both = F.explode(F.array_compact(F.array("_owner_after", "_owner_before")))
        keys = self.keys.of(owned.select(both.alias(OWNER)).distinct())
        # Any key will do where there is no image: rows without one would all go to one task.
        owned = owned.withColumns(
            {f"_owner_{one}": F.coalesce(f"_owner_{one}", f"_owner_{other}") for one, other in _OTHER.items()}
        )
        for image in _OTHER:
            key = F.struct(KEY_ID, KEY).alias(f"_key_{image}")
            owned = owned.join(keys.select(F.col(OWNER).alias(f"_owner_{image}"), key), f"_owner_{image}", "left")
        return owned

    def _whole(self) -> Column:
        table, key = F.col("source_table"), F.col("_key_after")
        text = sealed(F.col("value").cast("string"), table, F.lit(_WHOLE), key[KEY_ID], key[KEY])
        return F.to_json(F.struct(text.alias("sealed")))

    def _rewritten(self) -> Column:
        images = {image: F.to_variant_object(self._sealed(image)) for image in _OTHER}

        def told(name: Column, value: Column) -> Column:
            changed = value
            for image, new in images.items():
                changed = F.when((name == image) & F.col(f"_{image}").isNotNull(), new).otherwise(changed)
            return changed

        root = F.to_variant_object(F.transform_values(F.col("_root").cast(_MEMBERS), told))

        def outer(name: Column, value: Column) -> Column:
            return F.when(name == _PAYLOAD, root).otherwise(value)

        around = F.to_variant_object(F.transform_values(F.col("_v").cast(_MEMBERS), outer))
        return F.to_json(F.when(F.col("wrapped"), around).otherwise(root))

    def _sealed(self, image: str) -> Column:
        """The members of an image."""
        key, table = F.col(f"_key_{image}"), F.col("source_table")
        missing = sorted(disguises(self.placeholder))

        def held(name: Column, value: Column) -> Column:
            json = F.to_json(value)
            text = _member(value, "$", "string")
            stays = F.is_variant_null(value) | F.coalesce(is_sealed(text), F.lit(False))
            new = F.when(json.isin(*missing), F.lit(self.placeholder)).otherwise(
                sealed(json, table, name, key[KEY_ID], key[KEY])
            )
            return F.when(self._shreds(name) & ~stays, new.cast("variant")).otherwise(value)

        return F.transform_values(F.col(f"_{image}"), held)

    def _shreds(self, name: Column) -> Column:
        """Whether a member of this name is of a shredded column, in whatever case: it may have been renamed."""
        tables: dict[str, list[str]] = {}
        for table, columns in sorted(self.shredded.columns.items()):
            for column in sorted(columns):
                tables.setdefault(column.lower(), []).append(table)
        found = F.lit(False)
        for column, those in tables.items():
            found = F.when(F.lower(name) == column, F.col("source_table").isin(*those)).otherwise(found)
        return found


def _named(image: Column, column: str) -> Column:
    """The member of a column, which may have been renamed to another case."""
    alike = F.map_values(F.map_filter(image, lambda name, _: F.lower(name) == column.lower()))
    return F.coalesce(F.try_element_at(image, F.lit(column)), F.try_element_at(alike, F.lit(1)))


def _member(value: Column, path: str, kind: str) -> Column:
    return F.try_variant_get(value, path, kind)
