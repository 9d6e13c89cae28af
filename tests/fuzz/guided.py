"""One target, led by coverage: `python -m tests.fuzz.guided TARGET SECONDS FOLDER`, with atheris (libFuzzer).

An input is a conversation: its utterances in UTF-8, a zero byte between them. The committed corpus seeds it, words that
cost or mean much are its dictionary, and the work that a byte costs counts as coverage: libFuzzer keeps what comes
nearer to a number that it never reaches. What fails goes into the corpus.
"""

import json
import subprocess
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["service", "peakplan_client"]):
    from rehearsal.bench.question_cost import CORPUS, PIECES
    from service.api.models import MAX_HISTORY, MAX_TEXT_CHARACTERS
    from tests.fuzz.search import FoundError, check
    from tests.fuzz.targets import BUDGETS, TARGETS, Conversation

_NEVER = 2**20  # operations for a byte; seconds on the wall, which check() counts on the processor instead
_MOST_BYTES = 4 * 1024
_INSTRUMENTED = 2  # times the operations: what atheris adds to the code counts, too. A find is tried again without


def written(conversation: Conversation) -> bytes:
    """Return a conversation as libFuzzer changes it."""
    return b"\0".join(text.encode("utf-8", "replace") for text in conversation)


def read(data: bytes) -> list[str]:
    """Return the conversation that bytes stand for."""
    texts = data.split(b"\0", MAX_HISTORY)
    return [text.decode("utf-8", "replace")[:MAX_TEXT_CHARACTERS] for text in texts]


@atheris.instrument_func
def _is_dearest(operations_a_byte: int) -> bool:
    return operations_a_byte == _NEVER


def _is_dear_only_here(name: str, conversation: Conversation) -> bool:
    """Tell whether a find is none in a process whose code atheris has not made longer."""
    command = [sys.executable, "-m", "tests.fuzz.search", name, "-"]
    done = subprocess.run(command, input=json.dumps(conversation), capture_output=True, text=True, check=False)
    return done.returncode == 0


def main() -> None:
    """Search until the time is up; exit with the conversation that failed."""
    name, seconds, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    folder.mkdir(parents=True, exist_ok=True)
    for number, line in enumerate(CORPUS.read_text(encoding="utf-8").splitlines()):
        (folder / f"seed-{number}").write_bytes(written(json.loads(line)))
    words = folder.with_suffix(".dict")
    quoted = ("".join(f"\\x{byte:02x}" for byte in piece.encode()) for piece in (*PIECES, "Find Type Any ", "\0"))
    words.write_text("".join(f'"{each}"\n' for each in quoted), encoding="ascii")

    def try_input(data: bytes) -> None:
        conversation = read(data)
        count = 0
        try:
            count = check(name, conversation, ceiling)
        except FoundError as found:
            if _is_dear_only_here(name, found.conversation):
                return
            with CORPUS.open("a", encoding="utf-8") as corpus:
                corpus.write(json.dumps(found.conversation) + "\n")
            raise
        _is_dearest(count // max(1, len(data)))

    ceiling = _INSTRUMENTED * BUDGETS[name]
    TARGETS[name](["x"])  # reads lists, whose operations nobody counts
    options = [f"-max_total_time={seconds}", f"-max_len={_MOST_BYTES}", f"-dict={words}", "-use_value_profile=1",
               f"-timeout={_NEVER}", "-print_final_stats=1", "-rss_limit_mb=4096",
               f"-artifact_prefix={folder}/"]  # fmt: skip
    atheris.Setup([sys.argv[0], *options, str(folder)], try_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
