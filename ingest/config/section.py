"""The base of every section of a pipeline file: frozen, without unknown keys, and its values never quoted in an
error."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from ingest.names import TableName

Text = Annotated[str, Field(min_length=1)]
Table = Annotated[str, AfterValidator(TableName)]


class Section(BaseModel):
    """The base class of all sections."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)
