"""What of an environment goes along to a process that Ray starts on another host."""

from __future__ import annotations

from collections.abc import Mapping

from stagemesh.plan.rules.executor import RAY_EXCLUDED, RAY_FORWARDED


def ray_environment(environ: Mapping[str, str], stage: Mapping[str, str]) -> dict[str, str]:
    """Return the variables to set: what is forwarded of `environ`, and all of the stage's own.

    The stage's own win. What belongs to the other host (its devices, ranks and addresses) is taken
    from neither, whatever it begins with. Values may be secrets.
    """
    forwarded = {name: value for name, value in environ.items() if RAY_FORWARDED.fullmatch(name)}
    return {
        name: value
        for name, value in {**forwarded, **stage}.items()
        if not RAY_EXCLUDED.fullmatch(name)
    }
