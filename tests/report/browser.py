"""A real browser without a window: what a reader sees, and whether the page asks the network for anything."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    # No name outside is ever resolved, neither for the page nor for the browser itself.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]
# What the browser tries on its own account, whatever page is open.
_OF_THE_BROWSER = ("google.com", "googleapis.com", "gvt1.com", "gstatic.com")


def chromium() -> str:
    """The browser; it must be there, because a report nobody opened is not tested."""
    found = shutil.which("chromium")
    assert found, "no chromium: run `make browser`, which installs it, or `make test`, which does so first"
    return found


def browse(page: Path, *arguments: str, width: int = 1280, height: int = 900) -> str:
    """Open a page and return what the browser prints."""
    return opened(page, *arguments, width=width, height=height).stdout


def opened(page: Path, *arguments: str, width: int = 1280, height: int = 900) -> subprocess.CompletedProcess[str]:
    """Open a page and return what the browser prints and complains of."""
    with tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True) as profile:
        done = subprocess.run(
            [
                chromium(),
                *FLAGS,
                f"--user-data-dir={profile}",
                f"--window-size={width},{height}",
                *arguments,
                page.as_uri(),
            ],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-2000:]
    return done


def requests_made(page: Path, folder: Path) -> set[str]:
    """The addresses that opening a page asked for, from the browser's own log of its network."""
    log = folder / "network.json"
    browse(page, f"--log-net-log={log}", "--dump-dom")
    return requests_in(log)


def requests_in(log: Path) -> set[str]:
    """The addresses in a log of the browser's network."""
    text = log.read_text(encoding="utf-8", errors="replace")
    try:
        events: list[dict[str, Any]] = json.loads(text)["events"]
    except json.JSONDecodeError:  # the browser may stop before it closes the list
        events = json.loads(text.rstrip().rstrip(",") + "]}")["events"]
    addresses = {str((event.get("params") or {}).get("url", "")) for event in events}
    outside = {address for address in addresses if address.startswith(("http:", "https:", "ws:", "wss:", "ftp:"))}
    return {address for address in outside if not (urlsplit(address).hostname or "").endswith(_OF_THE_BROWSER)}
