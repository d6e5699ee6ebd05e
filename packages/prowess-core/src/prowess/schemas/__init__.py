"""Pure functions on JSON Schema 2020-12 documents, held as plain dicts.

They do not depend on Python types, pydantic or protocols. No function changes its argument. A result may share parts with
it, so treat both as frozen.
"""
