"""Services that moto has not, added to its server as far as runbooks and a bake ask them."""

import json
import re
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any
from uuid import uuid4

from moto import backend_index
from moto.core.base_backend import BackendDict, BaseBackend

REGION = "us-east-1"
Answer = tuple[int, dict[str, str], str]
Handler = Callable[[Any, str, Any], Answer]


def answer(content: Mapping[str, Any], status: int = 200) -> Answer:
    """Return an answer in JSON."""
    return status, {"Content-Type": "application/json"}, json.dumps(content)


def add_service(name: str, paths: Mapping[str, Handler]) -> None:
    """Make a service known to moto's server in this process, which finds it by its modules' names."""
    plain = name.replace("-", "")
    package, models, urls = (ModuleType(f"moto.{plain}{part}") for part in ("", ".models", ".urls"))
    pattern = rf"https?://{name}\.(.+)\.amazonaws\.com"
    setattr(urls, "url_bases", [pattern])  # noqa: B010
    setattr(urls, "url_paths", {"{0}" + path: handler for path, handler in paths.items()})  # noqa: B010
    sys.modules |= {each.__name__: each for each in (package, models, urls)}
    backend = type(f"{plain}Backend", (BaseBackend,), {"__module__": models.__name__})
    backends: Any = BackendDict(backend, plain, use_boto3_regions=False, additional_regions=[REGION])
    for module in (package, models):
        setattr(module, f"{plain}_backends", backends)
    backend_index.backend_url_patterns.append((name, re.compile(pattern)))


def _shift(request: Any, full_url: str, headers: Any) -> Answer:
    """Begin a zonal shift; nothing is shifted."""
    del full_url, headers
    asked = json.loads(request.data)
    kept = {name: asked[name] for name in ("resourceIdentifier", "awayFrom", "comment")}
    times = {"startTime": 0, "expiryTime": 7200}
    return answer({"zonalShiftId": str(uuid4()), "status": "ACTIVE", **times, **kept}, 201)


def _health(request: Any, full_url: str, headers: Any) -> Answer:
    """Tell of no event of AWS's own."""
    del request, full_url, headers
    return answer({"events": []})


def add_small_services() -> None:
    """Make the services of runbooks known to moto's server."""
    add_service("arc-zonal-shift", {"/zonalshifts$": _shift})
    add_service("health", {"/$": _health})
