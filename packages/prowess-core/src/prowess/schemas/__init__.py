"""Pure functions on JSON Schema 2020-12 documents, held as plain dicts.

They are independent of Python types, pydantic and protocols. No function changes its argument; a result may share
parts with it, so treat both as frozen.
"""
