"""Tells what a user can mend from what is a fault of the program."""

import dis

__all__ = ["refusal"]

_REFUSING = ("lws_lightning", "lightning")
_RAISE = dis.opmap["RAISE_VARARGS"]
_OF_A_WORKER = "Original Traceback"


def refusal(error: BaseException) -> str | None:
    """Returns what to say of an exception that tells a user what to mend, None if its traceback is needed.

    A user can mend what the system refuses (files, disks, packages that are missing) and what this package or Lightning
    refuses, which is to say: raises by a statement of its own. Whatever else is raised in their code, as by a wrong
    index, is a fault of it. Where jsonargparse or others have wrapped the exception, the outermost that counts is
    taken.
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
    return package in _REFUSING and frame.f_code.co_code[innermost.tb_lasti] == _RAISE


def _text(error: BaseException) -> str:
    message = str(error).strip()
    if _OF_A_WORKER in message:  # torch puts the whole traceback of a loader process into the message
        message = message.splitlines()[-1]
    return message or type(error).__name__
