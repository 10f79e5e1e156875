"""Go wrong."""

import sys

print("this task goes wrong", file=sys.stderr)
sys.exit(3)
