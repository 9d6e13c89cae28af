"""Stub until the list is there."""


def correct(text: str) -> str:
    return text
