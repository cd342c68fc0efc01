"""Python and nothing else, for the limits of start-up time and memory."""

import sys

print("READY", flush=True)
sys.stdin.read()
