"""Captures the arguments that an object was constructed with, whatever its class."""

import inspect
from typing import Any, Self

__all__ = ["CapturesArguments"]


class CapturesArguments:
    """Stores the arguments of the constructor call until `constructor_options` is called."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Creates the object and stores its arguments."""
        instance = super().__new__(cls)
        object.__setattr__(instance, "_arguments", (args, kwargs))
        return instance

    def constructor_options(self, base: type) -> dict[str, Any]:
        """Returns the arguments by name, including default values; may be called only once.

        For a user's subclass only its own arguments count, because it may set those of its base class itself. A network
        given as a callable is left out: checkpoints do not contain it.

        Args:
            base: The last class whose default values are included.
        """
        args, kwargs = self.__dict__.pop("_arguments")
        cls = type(self)
        signature = inspect.signature(cls.__init__)
        options = dict(list(signature.bind_partial(None, *args, **kwargs).arguments.items())[1:])
        for name, parameter in signature.parameters.items():
            if parameter.kind is parameter.VAR_KEYWORD:
                options |= options.pop(name, {})
        of_this_package = cls.__module__.split(".")[0] == __name__.split(".")[0]
        for ancestor in cls.__mro__ if of_this_package else (cls,):
            if "__init__" in vars(ancestor) and issubclass(ancestor, base):
                for name, parameter in inspect.signature(ancestor.__init__).parameters.items():
                    if parameter.default is not parameter.empty:
                        options.setdefault(name, parameter.default)
        return {name: value for name, value in options.items() if name != "network" or isinstance(value, str)}
