"""Sealing of events: values of shredded columns, in both images, are encrypted before bronze is written. All other JSON
of an event stays as it is."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ingest.changelog.envelope import EVENT, WITHOUT_ENVELOPE
from ingest.shredding.cipher import is_sealed, seal
from ingest.shredding.data_keys import KEY, KEY_ID, OWNER, DataKeys
from ingest.shredding.owners import Shredded
from ingest.suppression.keyed_hash import INNER, OUTER, keyed_hash_column
from ingest.values.unavailable import placeholder_encodings

AFTER, BEFORE = "after", "before"
_OTHER_IMAGE = {AFTER: BEFORE, BEFORE: AFTER}
_MEMBERS = "map<string,variant>"
_NO_OWNER, _UNREADABLE = "\0", "\0unreadable"
"""In place of an owner's key: for rows without a subject, and for values that are no JSON object with distinct member
names."""
_PAYLOAD = "payload"
_WHOLE_VALUE = "value"
"""In place of a column, for values that are sealed as a whole."""


@dataclass(frozen=True)
class Sealing:
    """The sealing of one pipeline's events. `placeholder`: Debezium's placeholder for unavailable values, which is not
    encrypted."""

    shredded: Shredded
    keys: DataKeys
    placeholder: str

    def __call__(self, events: DataFrame) -> DataFrame:
        """Takes `EVENT` rows and returns them sealed."""
        # A value without an envelope is sealed as a whole, because its personal parts can't be told apart.
        has_no_envelope = F.coalesce(F.col("problem").isin(*WITHOUT_ENVELOPE), F.lit(False))
        is_sealed_table = F.coalesce(F.col("source_table").isin(*self.shredded.columns), F.lit(False)) | has_no_envelope
        parsed = events.withColumn(
            "_v", F.when(is_sealed_table & ~has_no_envelope, F.try_parse_json(F.col("value").cast("string")))
        )
        root = F.when(F.col("wrapped"), _variant_member(F.col("_v"), f"$.{_PAYLOAD}", "variant")).otherwise(F.col("_v"))
        parsed = parsed.withColumn("_root", root).withColumns(
            {f"_{image}": _variant_member(F.col("_root"), f"$.{image}", _MEMBERS) for image in _OTHER_IMAGE}
        )
        parsed = parsed.withColumn("_unreadable", is_sealed_table & F.col("_v").isNull() & F.col("value").isNotNull())
        with_owners = self.keys.with_hmac_blocks(parsed).withColumns(
            {f"_owner_{image}": self._owner(image) for image in _OTHER_IMAGE}
        )
        with_owners = with_owners.drop(INNER, OUTER)
        with_keys = self._with_keys(with_owners)
        value = F.when(F.col("_unreadable"), self._sealed_value()).when(
            F.col("_v").isNotNull(), self._rewritten_value()
        )
        return with_keys.withColumn("value", F.coalesce(value.cast("binary"), "value")).select(*EVENT.names)

    def _owner(self, image: str) -> Column:
        """Returns the keyed hash of the image's owner; null if there is no such image."""
        parent, text = F.lit(None).cast("string"), F.lit(None).cast("string")
        for table, owner in self.shredded.owners.items():
            in_table = F.col("source_table") == table
            owner_key = _variant_member(_member_of_column(F.col(f"_{image}"), owner.column), "$", "string")
            parent = F.when(in_table, F.lit(owner.table)).otherwise(parent)
            text = F.when(in_table, F.coalesce(owner_key, F.lit(_NO_OWNER))).otherwise(text)
        image_owner = F.when(F.col(f"_{image}").isNotNull(), keyed_hash_column(parent, text))
        unreadable = F.when(F.col("_unreadable"), keyed_hash_column(F.col("source_table"), F.lit(_UNREADABLE)))
        return F.coalesce(image_owner, unreadable) if image == AFTER else image_owner

    def _with_keys(self, events: DataFrame) -> DataFrame:
        owners = F.explode(F.array_compact(F.array("_owner_after", "_owner_before")))
        keys = self.keys.for_owners(events.select(owners.alias(OWNER)).distinct())
        # A missing owner takes the other image's, because null join keys would all go to one task.
        events = events.withColumns(
            {f"_owner_{one}": F.coalesce(f"_owner_{one}", f"_owner_{other}") for one, other in _OTHER_IMAGE.items()}
        )
        for image in _OTHER_IMAGE:
            key = F.struct(KEY_ID, KEY).alias(f"_key_{image}")
            events = events.join(keys.select(F.col(OWNER).alias(f"_owner_{image}"), key), f"_owner_{image}", "left")
        return events

    def _sealed_value(self) -> Column:
        table, key = F.col("source_table"), F.col("_key_after")
        text = seal(F.col("value").cast("string"), table, F.lit(_WHOLE_VALUE), key[KEY_ID], key[KEY])
        return F.to_json(F.struct(text.alias("sealed")))

    def _rewritten_value(self) -> Column:
        images = {image: F.to_variant_object(self._sealed_members(image)) for image in _OTHER_IMAGE}

        def new_image(name: Column, value: Column) -> Column:
            changed = value
            for image, new in images.items():
                changed = F.when((name == image) & F.col(f"_{image}").isNotNull(), new).otherwise(changed)
            return changed

        root = F.to_variant_object(F.transform_values(F.col("_root").cast(_MEMBERS), new_image))

        def new_payload(name: Column, value: Column) -> Column:
            return F.when(name == _PAYLOAD, root).otherwise(value)

        wrapped_root = F.to_variant_object(F.transform_values(F.col("_v").cast(_MEMBERS), new_payload))
        return F.to_json(F.when(F.col("wrapped"), wrapped_root).otherwise(root))

    def _sealed_members(self, image: str) -> Column:
        """Returns the members of an image with shredded ones sealed."""
        key, table = F.col(f"_key_{image}"), F.col("source_table")
        missing = sorted(placeholder_encodings(self.placeholder))

        def new_member(name: Column, value: Column) -> Column:
            json = F.to_json(value)
            text = _variant_member(value, "$", "string")
            stays = F.is_variant_null(value) | F.coalesce(is_sealed(text), F.lit(False))
            new = F.when(json.isin(*missing), F.lit(self.placeholder)).otherwise(
                seal(json, table, name, key[KEY_ID], key[KEY])
            )
            return F.when(self._is_shredded(name) & ~stays, new.cast("variant")).otherwise(value)

        return F.transform_values(F.col(f"_{image}"), new_member)

    def _is_shredded(self, name: Column) -> Column:
        """Returns True for names of shredded columns in any case: a rename may have changed only the case."""
        tables: dict[str, list[str]] = {}
        for table, columns in sorted(self.shredded.columns.items()):
            for column in sorted(columns):
                tables.setdefault(column.lower(), []).append(table)
        is_shredded = F.lit(False)
        for column, in_tables in tables.items():
            is_shredded = F.when(F.lower(name) == column, F.col("source_table").isin(*in_tables)).otherwise(is_shredded)
        return is_shredded


def _member_of_column(image: Column, column: str) -> Column:
    """Returns the member of a column, in any case of its name."""
    alike = F.map_values(F.map_filter(image, lambda name, _: F.lower(name) == column.lower()))
    return F.coalesce(F.try_element_at(image, F.lit(column)), F.try_element_at(alike, F.lit(1)))


def _variant_member(value: Column, path: str, kind: str) -> Column:
    return F.try_variant_get(value, path, kind)
