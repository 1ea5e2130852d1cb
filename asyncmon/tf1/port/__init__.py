"""Port a TF1 program: ``python -m asyncmon port OLD.py``. Needs the extra ``port`` (libcst).

The modules, bottom up: ``kinds`` (possible values of an expression), ``catalogue`` (the classes of
asyncmon), ``scopes`` (the parsed file), ``imports``, ``siblings`` (other files of the program),
``store``, ``calls``, ``flow`` (the kinds of every expression), ``plan`` (calls to await and functions
to make async), ``threads``, ``entry`` (``asyncio.run``), ``remarks`` (notes on code that is left
unchanged), ``rewrite`` (the new text), ``porting`` (the whole port), ``command`` (options, files, exit
status).
"""
