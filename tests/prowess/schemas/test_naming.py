"""Fields are called like the types they hold, in camel case."""

from __future__ import annotations

import pytest

from prowess.schemas.naming import camel_case


@pytest.mark.parametrize(
    ("type_name", "field"),
    [
        pytest.param("LocationData", "locationData", id="U-17 LocationData"),
        pytest.param("LLH", "llh", id="U-18 LLH"),
        pytest.param("GPS", "gps", id="U-18 GPS"),
        *(
            pytest.param(type_name, field, id=f"U-22 {type_name}")
            for type_name, field in {
                "CalculationResult": "calculationResult",
                "HTTPServer": "httpServer",
                "URLParser": "urlParser",
                "HTTP2": "http2",
                "X509Cert": "x509Cert",
                "IOError2": "ioError2",
                "MyURL": "myURL",
                "ID": "id",
                "Vec3": "vec3",
                "snake_case": "snake_case",
                "_Foo": "_Foo",
            }.items()
        ),
        pytest.param("Page[int]", "page", id="parameters of a generic are left out"),
        pytest.param("A", "a", id="one letter"),
        pytest.param("", "", id="no name"),
    ],
)
def test_type_names_become_field_names(type_name: str, field: str) -> None:
    """The first word becomes lower case, also when it is a run of capitals."""
    assert field == camel_case(type_name)
