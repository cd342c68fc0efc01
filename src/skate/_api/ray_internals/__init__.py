"""Private modules of Ray that packages touch, as far as they mean something in Skate.

Each stands under the path that it has in Ray, offers only the names that are asked for, and is found when
`skate._base.alias.names.INTERNALS` lists it.
"""
