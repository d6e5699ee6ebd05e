"""Counts what a server does, and writes it in the text format of Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from prowess.jsontypes import JsonObject

__all__ = ["METRICS_TYPE", "Metrics"]

METRICS_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"
_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class Metrics:
    """Counters since the start. Labels are routes, methods and statuses, so that their number is bounded."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._buckets: dict[str, list[int]] = {}
        self._seconds: Counter[str] = Counter()

    def note(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count one request."""
        self._requests[route, method, status] += 1
        buckets = self._buckets.get(route)
        if buckets is None:
            buckets = self._buckets[route] = [0] * (len(_BUCKETS) + 1)
        buckets[bisect_left(_BUCKETS, seconds)] += 1
        self._seconds[route] += seconds  # pyright: ignore[reportArgumentType] - a Counter of floats works

    def counted(self) -> JsonObject:
        """All counters, for `add` in another process."""
        return {
            "requests": [[*labels, count] for labels, count in self._requests.items()],
            "buckets": self._buckets,
            "seconds": dict(self._seconds),
        }

    def add(self, counted: JsonObject) -> None:
        """Count what another process has counted."""
        for route, method, status, count in counted.get("requests", ()):
            self._requests[route, method, status] += count
        for route, buckets in counted.get("buckets", {}).items():
            before = self._buckets.get(route, [0] * len(buckets))
            self._buckets[route] = [one + other for one, other in zip(before, buckets, strict=True)]
        for route, seconds in counted.get("seconds", {}).items():
            self._seconds[route] += seconds

    def text(self, gauges: Mapping[str, tuple[str, float]]) -> bytes:
        """All counters, with the current gauges, each with its help and its value."""
        return "".join(f"{line}\n" for line in self._lines(gauges)).encode()

    def _lines(self, gauges: Mapping[str, tuple[str, float]]) -> Iterable[str]:
        yield "# HELP prowess_http_requests_total Requests answered."
        yield "# TYPE prowess_http_requests_total counter"
        for (route, method, status), count in sorted(self._requests.items()):
            yield f'prowess_http_requests_total{{route="{route}",method="{method}",status="{status}"}} {count}'
        yield "# HELP prowess_http_request_seconds Time from the head of a request to the end of its answer."
        yield "# TYPE prowess_http_request_seconds histogram"
        for route, buckets in sorted(self._buckets.items()):
            total = 0
            for bound, count in zip((*_BUCKETS, "+Inf"), buckets, strict=True):
                total += count
                yield f'prowess_http_request_seconds_bucket{{route="{route}",le="{bound}"}} {total}'
            yield f'prowess_http_request_seconds_sum{{route="{route}"}} {self._seconds[route]:.6f}'
            yield f'prowess_http_request_seconds_count{{route="{route}"}} {total}'
        for name, (text, value) in gauges.items():
            yield f"# HELP {name} {text}"
            yield f"# TYPE {name} gauge"
            yield f"{name} {value:g}"
