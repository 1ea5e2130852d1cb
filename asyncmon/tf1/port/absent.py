"""Names that Python 3, or the installed versions of it and of numpy, lack in programs of TF1's time."""

from __future__ import annotations

import ast
import importlib.util
import sys
import warnings
from types import ModuleType

from asyncmon.tf1.port.infer import Types
from asyncmon.tf1.port.kinds import Foreign
from asyncmon.tf1.port.source import Source, dotted


def why(types: Types, source: Source, node: ast.AST) -> str:
    """Return which name of a node is of Python 2, or lacking in a loaded module, or ""."""
    found = _of_python2(source, node)
    text = f"`{found}` is Python 2: run 2to3 first" if found else _of_modules(types, source, node)
    return "" if text and _is_conditional(source, node) else text


def _of_modules(types: Types, source: Source, node: ast.AST) -> str:
    """Return which name of a loaded module an import or an attribute lacks, or ""."""
    paths: list[str] = []
    if isinstance(node, ast.ImportFrom) and not node.level:
        paths = [f"{node.module}.{alias.name}" for alias in node.names if alias.name != "*"]
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
        owners = (k for k in types.of(source, node.value) if isinstance(k, Foreign) and k.known)
        paths = [f"{owner.path}.{node.attr}" for owner in owners]
    lacking = [path for path in paths if _is_absent(path)]
    if not lacking:
        return ""
    top = lacking[0].partition(".")[0]
    version = getattr(sys.modules[top], "__version__", "") if top not in sys.stdlib_module_names else ""
    home = f"{top} {version}" if version else f"Python {sys.version_info[0]}.{sys.version_info[1]}"
    return f"`{lacking[0]}` is not in {home}"


def _is_absent(path: str) -> bool:
    """Return whether a module that is loaded has no attribute and no submodule of a name."""
    home, _, name = path.rpartition(".")
    module = None if home == "__main__" else sys.modules.get(home)
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


def _of_python2(source: Source, node: ast.AST) -> str:
    """Return what of a node is Python 2, or ""."""
    match node:
        case ast.ImportFrom(level=0, module=base):
            members = [f"{base}.{alias.name}" for alias in node.names]
            found = base if str(base).split(".")[0] in _MODULES else ""
            return found or next((one for one in members if one in _MEMBERS), "")
        case ast.Import():
            return next((a.name for a in node.names if a.name.split(".")[0] in _MODULES), "")
        case ast.Attribute():
            if (path := dotted(node)) in _MEMBERS:
                return path
            ours = dotted(node.value) not in ("six", "future.utils")
            return node.attr if node.attr in _METHODS and ours else ""
        case ast.Name(id=name, ctx=ast.Load()):
            used = name in _BUILTINS and source.binder(name, source.holder[node]) is None
            return name if used else ""
        case ast.BinOp(left=ast.Name(id="print"), op=ast.RShift()):
            return "print >>"
    return ""


def _is_conditional(source: Source, node: ast.AST) -> bool:
    """Return whether a ``try`` with handlers, or a test of the version, is around a node."""
    return any(
        (isinstance(above, ast.Try) and above.handlers)
        or (isinstance(above, ast.If | ast.IfExp) and "version_info" in ast.unparse(above.test))
        or (isinstance(above, ast.If | ast.IfExp) and "PY2" in ast.unparse(above.test))
        for above in source.above(node)
    )
