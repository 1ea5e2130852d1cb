"""The table of TF1's names is what its script makes of ``tf.compat.v1`` and of the extra names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tf1.names import make_table


def test_the_table_is_in_the_form_of_the_script_with_all_extra_names() -> None:
    committed = make_table.TABLE.read_text("utf-8")
    assert make_table.text_of(committed.split()) == committed


def test_the_table_is_that_of_the_installed_tensorflow() -> None:
    api = make_table.installed()
    if api is None:
        pytest.skip("needs TensorFlow")
    assert make_table.text_of(make_table.names_of_api(api)) == make_table.TABLE.read_text("utf-8")


def test_names_are_those_that_a_namespace_imports(tmp_path: Path) -> None:
    for space in make_table.SPACES:
        folder = tmp_path.joinpath(*space.split("."))
        folder.mkdir(parents=True, exist_ok=True)
        folder.joinpath("__init__.py").write_text("import sys as _sys\nimport os\n")
    tmp_path.joinpath("__init__.py").write_text("from a import b as Tensor, _c, __version__\n")
    tmp_path.joinpath("io/gfile/__init__.py").write_text("from a import exists # line: 3\n")
    assert make_table.names_of_api(tmp_path) == {"Tensor", "__version__", "io.gfile.exists"}
    text = make_table.text_of({"Tensor", "compat.v1"})
    assert text.splitlines() == sorted({"Tensor", *make_table.EXTRA.read_text().split()})
