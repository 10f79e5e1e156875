"""Fails, and says so."""

import sys


def main():
    print("nothing will come of it", flush=True)
    sys.exit(3)
