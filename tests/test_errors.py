"""The error tree: one class a code, with the original's names."""

from __future__ import annotations

import pickle
import re

import pytest

from asyncmon import errors

CODES = {
    "CancelledError": 1, "UnknownError": 2, "InvalidArgumentError": 3, "DeadlineExceededError": 4,
    "NotFoundError": 5, "AlreadyExistsError": 6, "PermissionDeniedError": 7,
    "ResourceExhaustedError": 8, "FailedPreconditionError": 9, "AbortedError": 10,
    "OutOfRangeError": 11, "UnimplementedError": 12, "InternalError": 13, "UnavailableError": 14,
    "DataLossError": 15, "UnauthenticatedError": 16,
}  # fmt: skip


@pytest.mark.parametrize(("name", "code"), CODES.items())
def test_er_1_each_code_has_its_class(name: str, code: int) -> None:
    """ER-1, ER-5: and the mapping goes both ways."""
    cls = errors.exception_type_from_error_code(code)
    assert cls.__name__ == name
    assert cls.error_code == errors.error_code_from_exception_type(cls) == code
    assert cls is getattr(errors, name)
    assert cls.__mro__[1:] == (errors.OpError, Exception, BaseException, object)


def test_er_1_the_codes_have_the_names_of_the_original() -> None:
    words = [re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.removesuffix("Error")).upper() for name in CODES]
    assert [getattr(errors, word) for word in words] == list(CODES.values())
    assert errors.OK == 0


def test_er_5_an_unknown_code_has_none() -> None:
    with pytest.raises(KeyError):
        errors.exception_type_from_error_code(17)


def test_er_5_other_exceptions_have_no_code_and_subclasses_have_that_of_their_class() -> None:
    class Own(errors.AbortedError):
        """A user's own."""

    assert errors.error_code_from_exception_type(Own) == errors.ABORTED
    with pytest.raises(TypeError, match=r"Only the classes of am\.errors have a code, got <class 'Key"):
        errors.error_code_from_exception_type(KeyError)  # type: ignore[arg-type]  # the mistake under test


@pytest.mark.parametrize("name", CODES)
def test_er_2_errors_pickle_and_say_their_message(name: str) -> None:
    error = getattr(errors, name)("the disk is full")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert again.message == error.message == str(again) == "the disk is full"
    assert errors.OpError().message == ""
