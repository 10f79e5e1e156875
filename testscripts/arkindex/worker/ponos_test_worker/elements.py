"""Makes the list of elements that the worker after it reads."""

import json
import os
from pathlib import Path


def main():
    elements = [
        {"id": f"00000000-0000-4000-8000-00000000000{i}", "name": f"page {i}", "type": "page"}
        for i in (1, 2)
    ]
    target = Path(os.environ["PONOS_DATA"], "current", "elements.json")
    target.write_text(json.dumps(elements))
    print(f"{len(elements)} elements listed")
