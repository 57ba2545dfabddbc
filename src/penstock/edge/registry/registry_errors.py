"""Errors of the registry, each with the HTTP status, the reason and the remedy of its answer."""

from penstock.core.errors import AdminUnreachableError, PenstockError


class RegistryRefusedError(PenstockError):
    """A request that the registry does not carry out."""

    def __init__(
        self,
        status: int,
        title: str,
        detail: str,
        remedy: str,
        *,
        retry_after_seconds: int | None = None,
    ) -> None:
        super().__init__(detail, hint=remedy)
        self.status = status
        self.title = title
        self.detail = detail
        self.remedy = remedy
        self.retry_after_seconds = retry_after_seconds


class RegistryStoreError(PenstockError):
    """The registry's file cannot be opened, or a change could not be stored."""


class RegistryUnreachableError(AdminUnreachableError):
    """The registry did not answer, or its answer is not valid."""


def unauthorized() -> RegistryRefusedError:
    """Return the error of a caller without a valid key."""
    return RegistryRefusedError(
        401,
        "Authentication required",
        "the caller has not proven its identity",
        "Send the node's token in the header Authorization (registry.token_file), or connect with "
        "its certificate.",
    )


def forbidden(detail: str, remedy: str) -> RegistryRefusedError:
    """Return the error of a caller that may not do this."""
    return RegistryRefusedError(403, "Not allowed", detail, remedy)


def unknown_node(node_id: str) -> RegistryRefusedError:
    """Return the error for an id without a node."""
    return RegistryRefusedError(
        404, "Unknown node", f"there is no node {node_id}", "List nodes: `penstock registry nodes`."
    )
