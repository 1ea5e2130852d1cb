"""Names and modules of Python 2 in a file that parses as Python 3."""

from __future__ import annotations

import libcst as cst

from asyncmon.tf1.port.scopes import Tree, dotted

FIRST = "run 2to3 first"

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


def why(tree: Tree, node: cst.CSTNode) -> str:
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
    if not found or is_conditional(tree, node):
        return ""
    return f"`{found}` is Python 2: {FIRST}"


def _is_used(tree: Tree, node: cst.Name) -> bool:
    """Return whether a name is read here and bound nowhere in the file."""
    above = tree.parent(node)
    return not (
        (isinstance(above, cst.Attribute) and above.attr is node)
        or (isinstance(above, cst.Arg) and above.keyword is node)
        or isinstance(above, cst.Param | cst.ImportAlias | cst.AsName)
        or tree.binder(node)
    )


def is_conditional(tree: Tree, node: cst.CSTNode) -> bool:
    """Return whether a ``try`` with handlers, or a test of the version, is around a node."""
    above = tree.parent(node)
    while above is not None:
        if isinstance(above, cst.Try) and above.handlers:
            return True
        if isinstance(above, cst.If | cst.IfExp) and tree.mentions(above.test, ("version_info", "PY2")):
            return True
        above = tree.parent(above)
    return False
