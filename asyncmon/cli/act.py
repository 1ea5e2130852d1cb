"""``asyncmon stop|save|pause|resume URL``: control a run through its monitor."""

from __future__ import annotations

import argparse
import json
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import quote, urlsplit

from asyncmon.cli.monitor import TOKEN, add_token_option, read_token
from asyncmon.cli.output import add_json_option, complain, write_json, write_line
from asyncmon.system.usage_error import UsageError

DESCRIPTION = """\
Control a run of another process through its monitor: request a stop, save a checkpoint and wait for it,
pause before the next step, or resume."""

EPILOG = """\
exit status: 0 done; 1 rejected or not reachable, with the reason on standard error; 2 wrong
arguments."""

_DONE = {"stop": "is asked to stop", "save": "has saved", "pause": "pauses", "resume": "goes on"}
_SECS = 30.0
_SAVE_SECS = 3600.0


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("url", metavar="URL", help="the URL of the monitor's page")
    add("--run", dest="id", metavar="ID", help="the run; optional if there is a single session")
    add("--reason", help="the reason of a stop or a pause")
    add_token_option(parser)
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Send the request, and return 0.

    Raises:
        ValueError: the URL is invalid, the run is ambiguous, or the monitor rejects the request.
        OSError: the monitor cannot be reached.
    """
    url, _, token = options.url.partition("#token=")
    if token:
        complain(
            "The token in the URL is visible to all users of this machine, in the list of processes: "
            f"give --token-file FILE or set {TOKEN}."
        )
    monitor = _Monitor(url, read_token(options) or token)
    action, given = options.command, options.id
    if options.reason and action not in ("stop", "pause"):
        raise UsageError(f"--reason is for a stop or a pause; {action} takes none.")
    if given is None:
        given = _only_session(monitor.ask("api/runs")["runs"])
    body = {"reason": options.reason} if options.reason else {}
    answer = monitor.ask(f"api/runs/{quote(given, safe='')}/{action}", body)
    if options.json:
        write_json({"run": given, "action": action, **answer})
    else:
        write_line(f"{given} {_DONE[action]}{' ' + answer['path'] if 'path' in answer else ''}")
    return 0


def _only_session(rows: list[dict[str, Any]]) -> str:
    live = [row for row in rows if row["kind"] == "live" and row["state"] != "closed"]
    if len(live) == 1:
        return str(live[0]["id"])
    found = ", ".join(f"{row['id']} ({row['kind']}, {row['state']})" for row in rows) or "no run"
    raise ValueError(
        f"There is not one session that is open: give --run ID. The monitor shows {found}."
    )


class _Monitor:
    """A client of a monitor over HTTP. Blocking."""

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"{url!r} is no URL of a monitor: http://127.0.0.1:6060/ would be one.")
        self._base = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self._token = token
        self._opener = urllib.request.build_opener(_NoRedirects)

    def ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """Return the response to a GET, or to a POST if there is a body."""
        headers = {"authorization": f"Bearer {self._token}"} if self._token else {}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._base}/{path}", data, headers)
        try:
            with self._opener.open(request, timeout=_SAVE_SECS if data else _SECS) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise ValueError(_sentence(error, self._base)) from None
        except urllib.error.URLError as error:
            raise ConnectionError(f"{self._base} does not answer: {error.reason}.") from None
        except ValueError:
            raise ValueError(f"{self._base} answers, but is no monitor of asyncmon.") from None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follow no redirect: it would receive the token."""

    def redirect_request(self, *args: Any) -> None:
        return None


def _sentence(error: urllib.error.HTTPError, base: str) -> str:
    try:
        return str(json.load(error)["error"])
    except (ValueError, KeyError, TypeError):
        return f"{base} answers {error.code} {error.reason}; is it the URL of a monitor?"
