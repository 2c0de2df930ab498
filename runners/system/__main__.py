"""`python -m runners.system`: prints what is known about this system as JSON."""

import json

from runners.contract import encode
from runners.system import collect, hot_columns, hw_id, read_conditions, system_id


def main() -> None:
    fingerprint = collect()
    document = {
        "hw_id": hw_id(fingerprint),
        "system_id": system_id(fingerprint),
        "columns": hot_columns(fingerprint),
        "fingerprint": encode(fingerprint),
        "conditions": read_conditions(),
    }
    print(json.dumps(document, indent=2))


if __name__ == "__main__":
    main()
