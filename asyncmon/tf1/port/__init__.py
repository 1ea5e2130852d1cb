"""Port a TF1 program: ``python -m asyncmon port OLD.py``. Needs the extra ``port`` (libcst).

From the ground up: ``kinds`` (what a name can stand for), ``catalogue`` (what asyncmon's classes
say), ``scopes`` (the parsed file), ``imports``, ``siblings`` (the other files of the program),
``store``, ``calls``, ``flow`` (what every expression can be), ``plan`` (what is awaited and becomes
async), ``threads``, ``entry``, ``remarks`` (what is left, and why), ``rewrite`` (the new text),
``porting`` (all of it), ``command`` (files, options, exit status; loads the others when it runs).
"""
