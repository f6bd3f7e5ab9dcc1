"""Pages that an author serves beside the endpoint, by Starlette, which is imported with the first of them."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .errors import AuthorError

if TYPE_CHECKING:
    from starlette.routing import BaseRoute


class Routes:
    """The pages of a server. Those that are added later are served by applications that were made before."""

    def __init__(self) -> None:
        self._routes: list[BaseRoute] = []
        self._app: Any = None

    def add(self, path: str, fn: Callable[..., Any], methods: Sequence[str], name: str | None, is_listed: bool) -> None:
        """Serve one more."""
        try:
            from starlette.applications import Starlette
            from starlette.routing import Route
        except ImportError:
            raise AuthorError(
                "custom_route serves by Starlette, which is not installed: pip install starlette"
            ) from None
        if isinstance(methods, str):
            raise TypeError(f'methods is a list: ["{methods}"]')
        self._routes.append(Route(path, fn, methods=list(methods), name=name, include_in_schema=is_listed))
        self._app = Starlette(routes=self._routes)

    def find(self, scope: Any) -> Any:
        """The application for a request to one of the pages, whatever its method; None where it is to none of them."""
        if any(route.matches(scope)[0].value for route in self._routes):
            return self._app
        return None
