"""Calls in a child process: values, errors, crashes and endless loops."""

import os
import signal

import pytest

from pnpcm.io.child import in_child


def test_values_and_errors_come_back() -> None:
    assert in_child("math:hypot", 3, 4, seconds=10) == 5
    with pytest.raises(RuntimeError, match="ValueError: math domain error"):
        in_child("math:sqrt", -1, seconds=10)


def test_a_crash_is_an_error_and_the_next_call_works() -> None:
    first = in_child("os:getpid", seconds=10)
    assert first not in (os.getpid(), in_child("os:getppid", seconds=10))
    assert in_child("os:getpid", seconds=10) == first  # one child for many calls
    with pytest.raises(RuntimeError, match="its library crashes on it, SIGSEGV"):
        in_child("ctypes:string_at", 0, seconds=10)
    assert in_child("os:getpid", seconds=10) != first


def test_an_endless_loop_ends() -> None:
    with pytest.raises(RuntimeError, match=r"it takes longer than 0\.5 s"):
        in_child("re:fullmatch", "(a*)*b", "a" * 64, seconds=0.5)


def test_memory_is_limited() -> None:
    with pytest.raises(RuntimeError, match="MemoryError"):
        in_child("builtins:bytearray", 8 * 2**30, seconds=10)


def test_what_a_library_prints_is_no_answer() -> None:
    assert in_child("builtins:print", "a line", seconds=10) is None
    assert in_child("os:system", "echo a line", seconds=10) == 0
    assert in_child("math:hypot", 3, 4, seconds=10) == 5


def test_an_interrupted_call_does_not_answer_the_next_one() -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        assert in_child("math:hypot", 3, 4, seconds=10) == 5  # it is running
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyboardInterrupt):
            in_child("time:sleep", 0.5, seconds=10)
        assert in_child("math:hypot", 6, 8, seconds=10) == 10
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
