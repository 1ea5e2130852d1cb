"""Port a TF1 program: ``python -m asyncmon port OLD.py``.

The modules, bottom up: ``source`` (a parsed file, edits of its text), ``names`` (what of asyncmon is
awaited), ``imports``, ``kinds`` (of objects), ``infer`` (the kinds of expressions), ``blocking`` (calls
that block a thread), ``plan`` (calls to await and functions to make async, in all files), ``threads``,
``entry`` (``asyncio.run``, the names of the module, Ctrl-C), ``edit`` (the new text), ``absent`` (names
that Python and numpy lack), ``notes`` (on code that is left unchanged), ``porting`` (the files of a
program), ``package`` (a folder, written files), ``command`` (options, exit status).
"""
