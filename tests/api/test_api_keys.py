import hashlib
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from service.api.api_keys import ApiKeys, ApiKeysError, Caller, parse_tokens


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def line(name: str, token: str, rest: str = "") -> str:
    return f"{name} {hashlib.sha256(token.encode()).hexdigest()} {rest}\n"


def test_a_token_names_its_caller() -> None:
    tokens = ApiKeys("# ours\n\n" + line("search", "one") + line("search", "two", "5.5"), None)
    assert tokens.required
    assert tokens.caller("Bearer one") == Caller("search")
    assert tokens.caller("bearer two") == Caller("search", 5.5)


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic one", "Bearer three", "one", "Bearer " + "x" * 600])
def test_anything_else_is_nobody(header: str) -> None:
    assert ApiKeys(line("search", "one"), None).caller(header) is None


def test_the_digest_itself_opens_nothing() -> None:
    digest = hashlib.sha256(b"one").hexdigest()
    assert ApiKeys(line("search", "one"), None).caller(f"Bearer {digest}") is None


def test_without_a_list_nothing_is_asked_for() -> None:
    assert not ApiKeys("", None).required


@pytest.mark.parametrize(
    "bad", ["search secret", "search " + "0" * 63, "two words " + "0" * 64, "x " + "0" * 64 + " fast"]
)
def test_a_line_that_cannot_be_read_is_named_and_not_quoted(bad: str) -> None:
    with pytest.raises(ApiKeysError, match="line 2") as caught:
        ApiKeys("# fine\n" + bad, None)
    assert "secret" not in str(caught.value)


def test_a_file_is_read_again_when_it_changes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, clock = tmp_path / "tokens", Clock()
    path.write_text(line("search", "old"), encoding="utf-8")
    tokens = ApiKeys("", path, clock)
    assert tokens.caller("Bearer old")

    def rewrite(text: str) -> None:
        """Rewrite the file as a careful operator does: another file takes the name."""
        fresh = tmp_path / "fresh"
        fresh.write_text(text, encoding="utf-8")
        os.replace(fresh, path)
        look()

    def look() -> None:
        """Let the file stay as it is between two checks."""
        for _ in range(2):
            clock.now += 2.0
            tokens.caller("Bearer any")

    rewrite(line("search", "new"))
    assert tokens.caller("Bearer new") == Caller("search")
    assert tokens.caller("Bearer old") is None
    with caplog.at_level(logging.ERROR):
        for text in ("nonsense", "", "\n \n"):
            rewrite(text)
            assert tokens.caller("Bearer new") == Caller("search")
        path.unlink()
        look()
        look()
        assert tokens.caller("Bearer new") == Caller("search")
    assert caplog.text.count("the old ones stay") == 4, "each once"
    assert "is empty" in vars(caplog.records[1])["reason"]
    rewrite("# nobody\n")
    assert tokens.caller("Bearer new") is None
    assert tokens.required


def test_a_file_that_is_written_in_place_locks_nobody_out(tmp_path: Path) -> None:
    path, clock = tmp_path / "tokens", Clock()
    written = [line(name, name) for name in ("search", "mobile", "newer")]
    path.write_text("".join(written[:2]), encoding="utf-8")
    tokens = ApiKeys("", path, clock)
    with path.open("w", encoding="utf-8") as file:
        for text in ("", *written):
            file.write(text)
            file.flush()
            clock.now += 2.0
            assert tokens.caller("Bearer mobile")
            assert tokens.caller("Bearer search")
    clock.now += 2.0
    assert tokens.caller("Bearer newer")


def test_the_command_makes_a_token_and_its_line() -> None:
    command = [sys.executable, "-m", "service.api.api_keys", "search"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    token, made = (words.rpartition(":  ")[2].strip() for words in printed)
    assert ApiKeys(made, None).caller(f"Bearer {token}") == Caller("search")


def test_a_rate_of_nothing_is_refused() -> None:
    """It once meant any number."""
    with pytest.raises(ApiKeysError, match=r"line 2: a rate of 0 admits nothing\. Remove the line"):
        parse_tokens(f"search {'0' * 64} 1\nmobile {'1' * 64} 0", "keys")
    with pytest.raises(ApiKeysError, match="rate of 0"):
        parse_tokens(f"mobile {'1' * 64} 0.00", "keys")
