"""Write the names of TF1 into asyncmon/tf1/names/names.txt.

Usage: ``python tests/tf1/names/make_table.py [WHEEL]``, with a wheel of TensorFlow (``pip download
--no-deps tensorflow-cpu``) or with TensorFlow installed.

The names are those in ``tf.compat.v1`` of TensorFlow 2, whose ``__init__`` files are parsed and not
imported, and those in ``extra_names.txt`` beside this script: tf.contrib, names from before 1.0, and
the modules that TensorFlow takes from Keras.
"""

from __future__ import annotations

import ast
import sys
import zipfile
from collections.abc import Iterable
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from pathlib import Path

TABLE = Path(__file__).parents[3] / "asyncmon/tf1/names/names.txt"
EXTRA = Path(__file__).with_name("extra_names.txt")
API = "_api/v2/compat/v1"

SPACES = [
    "", "app", "bitwise", "compat", "debugging", "dtypes", "errors", "gfile", "image", "initializers",
    "io", "io.gfile", "layers", "linalg", "logging", "losses", "manip", "math", "metrics", "nest", "nn",
    "nn.rnn_cell", "python_io", "queue", "random", "sets", "spectral", "strings", "summary", "train",
    "version",
]  # fmt: skip
"""The namespaces whose names are listed; the others are in the table as a name of their parent."""

LATER = {
    "NoneTensorSpec", "check_pinned", "compat.v1", "compat.v2", "image.decode_jxl", "image.decode_webp",
    "io.decode_jxl", "io.decode_webp",
}  # fmt: skip
"""Names that releases after TF1 added to ``tf.compat.v1``."""


def names_of_api(api: Traversable) -> set[str]:
    """Return the names in the namespaces of an unpacked ``tf.compat.v1``."""
    found = set()
    for space in SPACES:
        source = api.joinpath(*filter(None, space.split(".")), "__init__.py").read_text("utf-8")
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom):
                names = {one.asname or one.name for one in node.names}
                public = {one for one in names if one == "__version__" or one[0] != "_"}
                found |= {f"{space}.{one}" if space else one for one in public}
    return found


def text_of(names: Iterable[str]) -> str:
    """Return the text of the table."""
    every = {*names, *EXTRA.read_text("utf-8").split()}
    return "".join(f"{name}\n" for name in sorted(every - LATER))


def installed() -> Traversable | None:
    """Return ``tf.compat.v1`` of the installed TensorFlow; None if there is none."""
    spec = find_spec("tensorflow")
    return Path(spec.submodule_search_locations[0], API) if spec is not None else None


if __name__ == "__main__":
    wheels = [zipfile.Path(one, f"tensorflow/{API}/") for one in sys.argv[1:]]
    place = wheels[0] if wheels else installed()
    if place is None:
        sys.exit(__doc__)
    TABLE.write_text(text_of(names_of_api(place)), "utf-8")
