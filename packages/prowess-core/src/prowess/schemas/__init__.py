"""Pure functions on JSON Schema 2020-12 documents held as plain dicts.

Nothing here knows Python types, pydantic or any wire. No function changes its argument; a result may share
parts with it, so treat both as frozen.
"""
