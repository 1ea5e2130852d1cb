"""Names that the installed versions of Python and numpy lack, as in programs of TF1's time."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from types import ModuleType

import libcst as cst

from asyncmon.tf1.port import python2
from asyncmon.tf1.port.kinds import Foreign
from asyncmon.tf1.port.scopes import Tree, dotted
from asyncmon.tf1.port.store import Store


def why(flow: Store, node: cst.CSTNode) -> str:
    """Return which name of a loaded module an import or an attribute lacks, or ""."""
    paths: list[str] = []
    if isinstance(node, cst.ImportFrom) and not isinstance(node.names, cst.ImportStar):
        paths = [] if node.relative else [f"{dotted(node.module)}.{dotted(a.name)}" for a in node.names]
    elif isinstance(node, cst.Attribute) and _is_read(flow.tree, node):
        owners = (kind for kind in flow.kinds(node.value) if isinstance(kind, Foreign) and kind.known)
        paths = [f"{owner.path}.{node.attr.value}" for owner in owners]
    lacking = [path for path in paths if _is_absent(path)]
    if not lacking or python2.is_conditional(flow.tree, node):
        return ""
    top = lacking[0].partition(".")[0]
    version = getattr(sys.modules[top], "__version__", "") if top not in sys.stdlib_module_names else ""
    home = f"{top} {version}" if version else f"Python {sys.version_info[0]}.{sys.version_info[1]}"
    return f"`{lacking[0]}` is not in {home}"


def _is_read(tree: Tree, node: cst.Attribute) -> bool:
    return not tree.in_import(node) and not isinstance(tree.parent(node), cst.AssignTarget)


def _is_absent(path: str) -> bool:
    """Return whether a module that is loaded has no attribute and no submodule of a name."""
    home, _, name = path.rpartition(".")
    module = sys.modules.get(home)
    if not isinstance(module, ModuleType):
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy warns of names that it is going to remove
        if hasattr(module, name):
            return False
    return not hasattr(module, "__path__") or importlib.util.find_spec(path) is None
