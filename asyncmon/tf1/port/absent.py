"""Names that Python 3, or the installed versions of it and of numpy, lack in programs of TF1's time."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from types import ModuleType

import libcst as cst

from asyncmon.tf1.port.kinds import Foreign
from asyncmon.tf1.port.scopes import Tree, dotted
from asyncmon.tf1.port.store import Store


def why(flow: Store, node: cst.CSTNode) -> str:
    """Return which name of a node is of Python 2, or lacking in a loaded module, or ""."""
    return _of_python2(flow.tree, node) or _of_modules(flow, node)


def _of_modules(flow: Store, node: cst.CSTNode) -> str:
    """Return which name of a loaded module an import or an attribute lacks, or ""."""
    paths: list[str] = []
    if isinstance(node, cst.ImportFrom) and not isinstance(node.names, cst.ImportStar):
        paths = [] if node.relative else [f"{dotted(node.module)}.{dotted(a.name)}" for a in node.names]
    elif (
        isinstance(node, cst.Attribute)
        and not flow.tree.in_import(node)
        and not isinstance(flow.tree.parent(node), cst.AssignTarget)
    ):
        owners = (kind for kind in flow.kinds(node.value) if isinstance(kind, Foreign) and kind.known)
        paths = [f"{owner.path}.{node.attr.value}" for owner in owners]
    lacking = [path for path in paths if _is_absent(path)]
    if not lacking or _is_conditional(flow.tree, node):
        return ""
    top = lacking[0].partition(".")[0]
    version = getattr(sys.modules[top], "__version__", "") if top not in sys.stdlib_module_names else ""
    home = f"{top} {version}" if version else f"Python {sys.version_info[0]}.{sys.version_info[1]}"
    return f"`{lacking[0]}` is not in {home}"


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


# --- Python 2 --------------------------------------------------------------------------------------
_MODULES = frozenset(
    [
        "BaseHTTPServer", "ConfigParser", "Cookie", "HTMLParser", "Queue", "SimpleHTTPServer",
        "SocketServer", "StringIO", "Tkinter", "__builtin__", "anydbm", "cPickle", "cStringIO",
        "commands", "cookielib", "copy_reg", "httplib", "md5", "sets", "sha", "thread", "tkMessageBox",
        "urllib2", "urlparse", "xmlrpclib",
    ]
)  # fmt: skip

_MEMBERS = frozenset(
    [
        "itertools.izip", "itertools.imap", "itertools.ifilter", "itertools.izip_longest", "os.getcwdu",
        "string.letters", "string.maketrans", "string.join", "sys.maxint", "urllib.quote",
        "urllib.unquote", "urllib.urlencode", "urllib.urlopen", "urllib.urlretrieve",
    ]
)  # fmt: skip

_BUILTINS = frozenset(
    [
        "apply", "basestring", "buffer", "cmp", "coerce", "execfile", "file", "intern", "long",
        "raw_input", "reduce", "reload", "unichr", "unicode", "xrange",
    ]
)  # fmt: skip

_METHODS = frozenset(["has_key", "iteritems", "iterkeys", "itervalues", "viewitems", "viewkeys"])


def _of_python2(tree: Tree, node: cst.CSTNode) -> str:
    """Return what of a node is Python 2, or ""."""
    found = ""
    if isinstance(node, cst.ImportFrom) and not node.relative:
        base = dotted(node.module)
        names = [] if isinstance(node.names, cst.ImportStar) else [dotted(a.name) for a in node.names]
        members = [f"{base}.{name}" for name in names if f"{base}.{name}" in _MEMBERS]
        found = base if base.split(".")[0] in _MODULES else (members or [""])[0]
    elif isinstance(node, cst.Import):
        tops = [dotted(alias.name) for alias in node.names]
        found = next((top for top in tops if top.split(".")[0] in _MODULES), "")
    elif isinstance(node, cst.Attribute) and not tree.in_import(node):
        if dotted(node) in _MEMBERS:
            found = dotted(node)
        elif node.attr.value in _METHODS and dotted(node.value) not in ("six", "future.utils"):
            found = node.attr.value
    elif isinstance(node, cst.Name) and node.value in _BUILTINS and _is_used(tree, node):
        found = node.value
    elif isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.RightShift):
        found = "print >>" if isinstance(node.left, cst.Name) and node.left.value == "print" else ""
    if not found or _is_conditional(tree, node):
        return ""
    return f"`{found}` is Python 2: run 2to3 first"


def _is_used(tree: Tree, node: cst.Name) -> bool:
    """Return whether a name is read here and bound nowhere in the file."""
    above = tree.parent(node)
    return not (
        (isinstance(above, cst.Attribute) and above.attr is node)
        or (isinstance(above, cst.Arg) and above.keyword is node)
        or isinstance(above, cst.Param | cst.ImportAlias | cst.AsName)
        or tree.binder(node)
    )


def _is_conditional(tree: Tree, node: cst.CSTNode) -> bool:
    """Return whether a ``try`` with handlers, or a test of the version, is around a node."""
    above = tree.parent(node)
    while above is not None:
        if isinstance(above, cst.Try) and above.handlers:
            return True
        if isinstance(above, cst.If | cst.IfExp) and tree.mentions(above.test, ("version_info", "PY2")):
            return True
        above = tree.parent(above)
    return False
