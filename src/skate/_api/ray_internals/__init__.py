"""Replacements of private modules of Ray that packages import.

Each module has the same path as in Ray and only the names that packages use. `skate._base.alias.names.INTERNALS` lists
the modules.
"""
