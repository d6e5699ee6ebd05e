"""From a returned value to a payload with `content` and `isError`."""
