"""`Section`: the base class of every table of the settings. It knows none of them."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """One table of the settings file."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, validate_default=True)
