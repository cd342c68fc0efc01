"""What the engines on this machine share: counting resources, making calls, wording errors, tables."""
