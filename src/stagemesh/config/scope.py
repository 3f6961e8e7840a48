"""What the command line is read against: the stages of the pipeline, all fields, all plug-ins."""

from __future__ import annotations

from collections.abc import Mapping

from stagemesh.config.catalog import Catalog
from stagemesh.config.fields import StageField
from stagemesh.config.stages import Stages
from stagemesh.spec.frozen import frozen


@frozen
class Scope:
    """What names can mean."""

    stages: Stages
    """Stages of the pipeline, or any name where it is not known."""
    fields: Mapping[str, StageField]
    """Stage fields by name."""
    catalog: Catalog
    """Declarations of axes and engines."""
