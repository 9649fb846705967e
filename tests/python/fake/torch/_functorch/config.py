"""torch._functorch.config, as far as vmmcache changes it."""

donated_buffer = True
