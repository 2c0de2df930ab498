"""The inventory's JSON schema, by which editors complete and check the file while it is written."""

import json
from typing import Any

from orchestrator.config.inventory.document import InventoryDocument


def json_schema() -> str:
    """The schema of `hostinventory.yaml`, as a document of JSON."""
    schema: dict[str, Any] = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return json.dumps(schema | InventoryDocument.model_json_schema(), indent=2, ensure_ascii=False) + "\n"
