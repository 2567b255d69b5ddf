"""With which arguments an object was made, whatever its class."""

import inspect
from typing import Any, Self

__all__ = ["KeepsArguments"]


class KeepsArguments:
    """Keeps the arguments that an object is made with until its constructor asks for them."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Makes the object."""
        made = super().__new__(cls)
        object.__setattr__(made, "_arguments", (args, kwargs))
        return made

    def given_options(self, base: type) -> dict[str, Any]:
        """Returns the arguments by name, with the default values of those that were not given; to be called once.

        Of a user's subclass only its own arguments count, because it may itself set those of its base. A network that
        is a function is left out: it does not go into checkpoints.

        Args:
            base: The class where the search for default values ends.
        """
        args, kwargs = self.__dict__.pop("_arguments")
        kind = type(self)
        signature = inspect.signature(kind.__init__)
        options = dict(list(signature.bind_partial(None, *args, **kwargs).arguments.items())[1:])
        for name, parameter in signature.parameters.items():
            if parameter.kind is parameter.VAR_KEYWORD:
                options |= options.pop(name, {})
        of_this_package = kind.__module__.split(".")[0] == __name__.split(".")[0]
        for part in kind.__mro__ if of_this_package else (kind,):
            if "__init__" in vars(part) and issubclass(part, base):
                for name, parameter in inspect.signature(part.__init__).parameters.items():
                    if parameter.default is not parameter.empty:
                        options.setdefault(name, parameter.default)
        return {name: value for name, value in options.items() if name != "network" or isinstance(value, str)}
