"""Replaces `ray._private`."""
