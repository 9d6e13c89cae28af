"""What Lighthouse says of the page, of /docs and of the site, for accessibility and best practice.

    make lighthouse        # builds the site, starts the service; docs/figures/lighthouse.json; six minutes

Each page is judged as a phone and as a desktop show it, light and dark. Less than 95 of 100 anywhere is an error, with
what was found.
"""

import functools
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.serving import PORT, running_service
from service.settings import Settings

FIGURE = Path("docs/figures/lighthouse.json")
LEAST = 95
_PROGRAM = Path("website/lighthouse/node_modules/lighthouse/cli/index.js")
_SITE = Path("build/site")
_CATEGORIES = ("accessibility", "best-practices")
_CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)
_SECONDS = 180  # for one page; only a failure takes this long


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def scores(report: dict[str, Any]) -> dict[str, int]:
    """Return a report's categories, of 100. Raises RuntimeError where one could not be judged."""
    found = {name: report["categories"][name]["score"] for name in _CATEGORIES}
    if None in found.values():
        raise RuntimeError(f"Lighthouse could not judge {report['requestedUrl']}: {report.get('runtimeError')}")
    return {name: round(100 * score) for name, score in found.items()}


def objections(report: dict[str, Any]) -> list[str]:
    """Return what a report finds wrong, a line each."""
    counted = {ref["id"] for name in _CATEGORIES for ref in report["categories"][name]["auditRefs"] if ref["weight"]}
    audits = (report["audits"][name] for name in sorted(counted))
    return [f"{audit['id']}: {audit['title']}" for audit in audits if (audit["score"] or 0) < 1 and _applies(audit)]


def _applies(audit: dict[str, Any]) -> bool:
    return audit["scoreDisplayMode"] in ("binary", "numeric", "error")


def judge(url: str, *, desktop: bool, dark: bool) -> dict[str, Any]:
    """Run Lighthouse on a page and return its report. Raises RuntimeError with its last words where there is none."""
    node, chromium = shutil.which("node"), next(filter(None, map(shutil.which, _CHROMIUM)), None)
    if node is None or chromium is None:
        raise RuntimeError("Lighthouse needs Node.js and Chromium: apt-get install nodejs chromium")
    command = [node, str(_PROGRAM), url, f"--only-categories={','.join(_CATEGORIES)}", "--output=json", "--quiet"]
    command += [f"--chrome-flags={_FLAGS}{' --force-dark-mode' * dark}", *(["--preset=desktop"] if desktop else [])]
    environment = {**os.environ, "CHROME_PATH": chromium}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_SECONDS, check=False)
    if done.returncode:
        raise RuntimeError(f"Lighthouse failed on {url}: {done.stderr.strip()[-500:]}")
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on a free port of the loopback."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def main() -> int:
    """Judge every page and write the scores."""
    if not _SITE.is_dir() or not _PROGRAM.is_file():
        print(f"error: {_SITE} or {_PROGRAM} is not there: make lighthouse builds both", file=sys.stderr)
        return 1
    pages: dict[str, Any] = {}
    version, wrong = "", []
    with running_service(Settings()), served(_SITE) as site:
        service = f"http://127.0.0.1:{PORT}"
        addresses = {
            "page": f"{service}/",
            "/docs": f"{service}/docs",
            "site": f"{site}/index.html",
            "site, gallery": f"{site}/gallery.html",
            "site, settings": f"{site}/settings.html",
        }
        for name, url in addresses.items():
            for desktop, dark in product((False, True), repeat=2):
                report = judge(url, desktop=desktop, dark=dark)
                version = report["lighthouseVersion"]
                shown = f"{'desktop' if desktop else 'phone'}{', dark' * dark}"
                pages.setdefault(name, {})[shown] = found = scores(report)
                wrong += [f"{name}, {shown}: {line}" for line in objections(report)]
                print(name, shown, found, flush=True)
    print(*wrong, sep="\n")
    figure = {"command": "make lighthouse", "lighthouse": version, "pages": pages, "objections": sorted(set(wrong))}
    FIGURE.write_text(json.dumps(figure, indent=1) + "\n", encoding="utf-8")
    least = min(score for page in pages.values() for found in page.values() for score in found.values())
    return int(least < LEAST)


if __name__ == "__main__":
    sys.exit(main())
