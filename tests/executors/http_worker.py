"""An HTTP worker over the standard library: ``python http_worker.py PORT TOKEN``.

It continues while there is no server, and is sometimes late.
"""

from __future__ import annotations

import json
import random
import sys
import time
import urllib.error
import urllib.request
from typing import Any


def post(path: str, body: Any) -> tuple[int, Any]:
    """Return the status and the answer of a request."""
    port, token = sys.argv[1:]
    headers = {"authorization": f"Bearer {token}"}
    data = json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.loads(answer.read() or b"{}")
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, {}
    except OSError:  # no server yet, or no more
        return 0, {}


def main() -> None:
    while True:
        status, lease = post("/lease", {"wait_secs": 2})
        if status != 200:
            time.sleep(0 if status == 204 else 0.05)
            continue
        time.sleep(1 if random.random() < 0.03 else 0.02 * random.random())
        post(f"/leases/{lease['lease']}/complete", {"value": lease["element"]})


if __name__ == "__main__":
    main()
