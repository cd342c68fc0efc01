"""Replaces `ray._common`."""
