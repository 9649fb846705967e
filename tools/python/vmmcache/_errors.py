"""The errors of the package."""


class VmmError(RuntimeError):
    """Something that libvmmcache or this package cannot do; the message says why."""


class InstallError(VmmError):
    """The allocator cannot be installed."""


class LibraryError(VmmError):
    """The shared library is missing or does not fit this package."""


class VmmWarning(UserWarning):
    """A feature or a setting of PyTorch, or a call, that has no effect with libvmmcache."""
