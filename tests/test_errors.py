"""The error tree: one class a code, with the original's names."""

from __future__ import annotations

import pickle
import re

import pytest

from asyncmon import errors
from asyncmon import graph as tf

CODES = {
    "CancelledError": 1, "UnknownError": 2, "InvalidArgumentError": 3, "DeadlineExceededError": 4,
    "NotFoundError": 5, "AlreadyExistsError": 6, "PermissionDeniedError": 7,
    "ResourceExhaustedError": 8, "FailedPreconditionError": 9, "AbortedError": 10,
    "OutOfRangeError": 11, "UnimplementedError": 12, "InternalError": 13, "UnavailableError": 14,
    "DataLossError": 15, "UnauthenticatedError": 16,
}  # fmt: skip


@pytest.mark.parametrize(("name", "code"), CODES.items())
def test_each_code_has_its_class_er_1(name: str, code: int) -> None:
    """ER-1, ER-5: and the mapping goes both ways."""
    cls = errors.exception_type_from_error_code(code)
    assert cls.__name__ == name
    assert cls.error_code == errors.error_code_from_exception_type(cls) == code
    assert cls is getattr(errors, name)
    assert cls.__mro__[1:] == (errors.OpError, Exception, BaseException, object)


def test_the_codes_have_the_names_of_the_original_er_1() -> None:
    words = [re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.removesuffix("Error")).upper() for name in CODES]
    assert [getattr(errors, word) for word in words] == list(CODES.values())
    assert errors.OK == 0


def test_an_unknown_code_has_none_er_5() -> None:
    with pytest.raises(KeyError):
        errors.exception_type_from_error_code(17)


def test_other_exceptions_have_no_code_and_subclasses_have_that_of_their_class_er_5() -> None:
    class Own(errors.AbortedError):
        """A user's own."""

    assert errors.error_code_from_exception_type(Own) == errors.ABORTED
    with pytest.raises(TypeError, match=r"Only the classes of am\.errors have a code, got <class 'Key"):
        errors.error_code_from_exception_type(KeyError)  # type: ignore[arg-type]  # the mistake under test


@pytest.mark.parametrize("name", CODES)
def test_errors_pickle_and_say_their_message_er_2(name: str) -> None:
    error = getattr(errors, name)("the disk is full")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert again.message == error.message == str(again) == "the disk is full"
    assert errors.OpError().message == ""


@pytest.mark.parametrize("name", CODES)
def test_errors_take_the_arguments_of_the_original_er_1(name: str) -> None:
    cls, op = getattr(errors, name), object()
    for error in (
        cls("def", op, "the disk is full"),
        cls(node_def="def", op=op, message="the disk is full"),
    ):
        assert (error.message, error.op, error.node_def) == ("the disk is full", op, "def")
        assert str(error) == "the disk is full"
        assert error.error_code == cls.error_code
        again = pickle.loads(pickle.dumps(error))
        assert (again.message, again.op, again.node_def) == ("the disk is full", None, None)
    assert cls(None, None, "m").op is None


def test_an_error_of_no_other_class_takes_a_code_er_1() -> None:
    error = errors.OpError(None, None, "no", errors.ABORTED)
    assert error.error_code == pickle.loads(pickle.dumps(error)).error_code == errors.ABORTED
    assert errors.OpError.error_code == errors.UNKNOWN


def test_two_arguments_are_refused_er_1() -> None:
    with pytest.raises(TypeError, match=r"Expected \(message\) or \(node_def, op, message\), got"):
        errors.AbortedError(None, "no")


@pytest.mark.asyncio
async def test_the_error_of_a_run_has_the_operation_that_failed_er_1() -> None:
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [None], name="x")
        check = tf.check_numerics(x, "not finite", name="check")
        async with tf.Session() as sess:
            with pytest.raises(errors.InvalidArgumentError) as caught:
                await sess.run(check, {x: [float("nan")]})
            assert caught.value.op is check.op
            with pytest.raises(errors.InvalidArgumentError) as caught:
                await sess.run(check)
            assert caught.value.op is x.op
