"""The service's files as OpenSearch's User Behavior Insights has them: lines for `POST /_bulk`.

Plans go into `ubi_queries` and events into `ubi_events`, each with an id of its own, so that what is sent again is
there once. Ids of shoppers stay the hashes that the files have, and words are there only where the files have them.
Source: opensearch-project/user-behavior-insights, src/main/resources/queries-mapping.json and events-mapping.json.
"""

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

QUERIES, EVENTS = "ubi_queries", "ubi_events"
APPLICATION = "peakplan"
_OF_PLANS = ("experiment", "arm", "missed", "release", "model", "shop", "source", "mode", "intent", "vertical")
_OURS = {"record", "caller", "time", "event_id", "timestamp"}


def bulk_lines(files: Sequence[Path]) -> Iterator[str]:
    """Yield an action and a document for every plan and event of these files, gzipped or not, as JSON."""
    for path in files:
        with _opened(path) as lines:
            for line in lines:
                record = json.loads(line)
                if record.get("record") == "plan":
                    yield from _pair(QUERIES, f"{record['caller']}/{record['request_id']}", _query(record))
                elif record.get("record") == "event":
                    name = f"{record['caller']}/{record['query_id']}/{record['event_id']}"
                    yield from _pair(EVENTS, name, _event(record))


def _opened(path: Path) -> IO[str]:
    return gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8")


def _pair(index: str, name: str, document: Mapping[str, Any]) -> tuple[str, str]:
    action = {"index": {"_index": index, "_id": name}}
    return json.dumps(action, ensure_ascii=False), json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def _query(plan: Mapping[str, Any]) -> dict[str, Any]:
    document: dict[str, Any] = {"query_id": plan["request_id"], "timestamp": _time(plan["time"])}
    document["application"] = APPLICATION
    if "question" in plan:
        document["user_query"] = plan["question"]
    if "client_id" in plan:
        document["client_id"] = plan["client_id"]
    # A map of strings in OpenSearch's own Java.
    document["query_attributes"] = {name: _said(plan[name]) for name in _OF_PLANS if plan.get(name) is not None}
    return document


def _said(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _event(event: Mapping[str, Any]) -> dict[str, Any]:
    document = {name: value for name, value in event.items() if name not in _OURS}
    return {"application": APPLICATION, **document, "timestamp": _time(event.get("timestamp") or event["time"])}


def _time(given: str | float) -> str:
    """Return a time as `strict_date_time` has it; what a shop gave without a zone is read as UTC."""
    at = datetime.fromisoformat(given) if isinstance(given, str) else datetime.fromtimestamp(given, UTC)
    at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
