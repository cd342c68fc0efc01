"""The node's decisions as a pure state machine: messages in, messages out; no I/O, no clock."""
