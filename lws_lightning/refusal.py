"""Tells errors that a user can fix from bugs."""

import dis

__all__ = ["refusal"]

_OUR_PACKAGES = ("lws_lightning", "lightning")
_RAISE = dis.opmap["RAISE_VARARGS"]
_WORKER_TRACEBACK = "Original Traceback"


def refusal(error: BaseException) -> str | None:
    """Returns the message of an exception that a user can fix, None if it is a bug whose traceback is needed.

    A user can fix errors of the system (files, disks, missing packages), and those that this package or Lightning
    raises by a `raise` statement. Anything else raised in their code, such as by a wrong index, is a bug. If
    jsonargparse or others have wrapped the exception, the outermost one of these kinds is used.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError | ImportError) or _is_refused(cause):
            return _text(cause)
        cause = cause.__cause__
    return None


def _is_refused(error: BaseException) -> bool:
    if isinstance(error, AssertionError) or error.__traceback__ is None:
        return False
    innermost = error.__traceback__
    while innermost.tb_next is not None:
        innermost = innermost.tb_next
    frame = innermost.tb_frame
    package = str(frame.f_globals.get("__name__")).partition(".")[0]
    return package in _OUR_PACKAGES and frame.f_code.co_code[innermost.tb_lasti] == _RAISE


def _text(error: BaseException) -> str:
    message = str(error).strip()
    if _WORKER_TRACEBACK in message:  # torch includes the whole traceback of a loader process
        message = message.splitlines()[-1]
    return message or type(error).__name__
