"""The errors of the package."""


class VmmError(RuntimeError):
    """Something that libvmmcache, or this package, cannot do; the message says why."""


class InstallError(VmmError):
    """The allocator cannot be put in place."""


class LibraryError(VmmError):
    """The shared library is missing or does not fit this package."""
