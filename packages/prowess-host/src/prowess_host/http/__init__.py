"""The project over HTTP: MCP of both eras, envelopes, health, metrics. Only `prowess serve` imports it.

`binding` and `replies` are the MCP binding, independent of the server: they turn headers and bytes into decisions and
events. `app` connects the binding to a project, and `server` runs the app.
"""
