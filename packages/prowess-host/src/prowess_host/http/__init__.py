"""The project over HTTP: MCP of both eras, envelopes, health, metrics. Imported by `prowess serve` alone.

`binding` and `replies` are the MCP binding: headers and bytes in, decisions and events out, without a server. `app` joins
it with a project, and `server` runs the app.
"""
