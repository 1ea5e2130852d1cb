"""Object stores with other credentials than those that the environment has.

A URL, ``s3://``, ``gs://``, ``az://`` or another, opens a store with the credentials that obstore finds
in the environment. A store with others is mounted::

    cloud.mount("s3://bucket", obstore.store.S3Store("bucket", region="eu-central-1", ...))
    await saver.save(session, "s3://bucket/runs/model.ckpt", 10)
"""

from __future__ import annotations

from typing import Any

mounted: dict[str, Any] = {}
"""URLs to the stores behind all URLs that begin with them."""


def mount(url: str, store: Any) -> None:
    """Use this obstore store for all URLs that begin with ``url`` (``scheme://bucket``)."""
    mounted[url.rstrip("/")] = store
