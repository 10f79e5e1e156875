"""Write numbers into an artifact."""

import os
import time
from pathlib import Path

artifact = Path(os.environ["PONOS_DATA"]) / "current" / "numbers.txt"
with artifact.open("w") as f:
    for n in range(1, 11):
        print(n, file=f)
        time.sleep(0.05)
print("wrote", artifact.name)
