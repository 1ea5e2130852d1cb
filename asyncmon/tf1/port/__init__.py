"""Port a TF1 program: ``python -m asyncmon port OLD.py``. Needs the extra ``port`` (libcst).

The modules, bottom up: ``kinds`` (possible values of an expression), ``blocking`` (calls that block
a thread), ``catalogue`` (the classes of asyncmon), ``scopes`` (the parsed file), ``imports``,
``siblings`` (other files of the program), ``store``, ``calls``, ``flow`` (the kinds of every
expression), ``plan`` (calls to await and functions to make async), ``threads``, ``program`` (the plans
for all files), ``entry`` (``asyncio.run``, Ctrl-C), ``absent`` (names that Python and numpy lack),
``remarks`` (notes on code that is left unchanged), ``rewrite`` (the new text), ``porting`` (the whole
port, continuation lines), ``package`` (a folder, written files), ``command`` (options, exit status).
"""
