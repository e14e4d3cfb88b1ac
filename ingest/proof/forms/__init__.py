"""The forms of a value: every way in which a connector, Spark or Delta writes a value of its type, and the encodings of
a text. Pure."""

from ingest.proof.forms.typed_forms import Form, forms_of
from ingest.proof.forms.value_types import ValueType, inferred_type

__all__ = ["Form", "ValueType", "forms_of", "inferred_type"]
