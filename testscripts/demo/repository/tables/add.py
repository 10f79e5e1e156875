"""Add up the numbers that another task has left."""

import os
from pathlib import Path

data = Path(os.environ["PONOS_DATA"])
total = sum(map(int, (data / "write" / "numbers.txt").read_text().split()))
(data / "current" / "total.txt").write_text(f"{total}\n")
print("the total is", total)
