"""Translators: one module an engine, each with `request(search, mapping, ...)` that needs no library of the engine."""


def number(value: float) -> str:
    """Return a number in digits, never rounded to six of them and never with an exponent."""
    return f"{value:.6f}".rstrip("0").rstrip(".")
