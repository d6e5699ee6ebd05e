"""Request and response envelopes."""
