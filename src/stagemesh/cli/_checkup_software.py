"""Checks of what is installed: Python, packages by their metadata, plug-ins, environment, cache.

Nothing heavy is imported: versions stand in the metadata of distributions.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from stagemesh.cli._checkup import Check, State
from stagemesh.config.environment import TOKEN, VARIABLES, cache_folder, check_environment
from stagemesh.errors import DiagnosticError
from stagemesh.spec.registry import (
    AXES,
    COMMANDS,
    CONNECTORS,
    ENGINES,
    MODELS,
    PluginError,
    PluginKind,
)

_DISTRIBUTION: Final = "stagemesh"
_PURPOSES: Final[Mapping[str | None, str]] = {
    None: "stagemesh",
    "run": "running models",
    "ray": "starting stages by Ray",
}
"""What the packages of an extra are for, and those without one."""
_OPTIONAL: Final = ("ray",)
"""Extras that nobody needs who does not ask for what they are for."""
_REQUIREMENT: Final = re.compile(r"([A-Za-z0-9._-]+)\s*([^;]*?)\s*(?:;(.*))?")
_BOUND: Final = re.compile(r"(>=|<=|==|!=|~=|<|>)\s*([0-9][0-9A-Za-z.+!*-]*)")
_EXTRA: Final = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")
_SEEN: Final = ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")
"""Variables of others that change what happens here."""
_KINDS: Final[Mapping[str, PluginKind[Any]]] = {
    "axes": AXES,
    "commands": COMMANDS,
    "connectors": CONNECTORS,
    "engines": ENGINES,
    "models": MODELS,
}


def software_checks() -> Iterator[Check]:
    """Check everything that is installed."""
    about = metadata.metadata(_DISTRIBUTION)
    yield python_check(about["Requires-Python"], sys.version_info[:3])
    for requirement in about.get_all("Requires-Dist", []):
        yield from package_checks(requirement)
    for name, kind in _KINDS.items():
        yield from plugin_checks(name, kind)
    yield from environment_checks(os.environ)
    yield from cache_checks(os.environ)


def python_check(wanted: str, version: Sequence[int]) -> Check:
    """Check the version of Python."""
    text = ".".join(map(str, version))
    if is_within(text, wanted):
        return Check(name="python", state=State.OK, message=f"{text} (wanted: {wanted})")
    return Check(
        name="python",
        state=State.FAILURE,
        message=f"{text} is not {wanted}",
        help=f"install Python {wanted}",
    )


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def package_checks(
    requirement: str, installed: Callable[[str], str | None] = _installed
) -> Iterator[Check]:
    """Check one requirement of the base install, or of what running models needs."""
    match = _REQUIREMENT.fullmatch(requirement)
    assert match is not None, requirement
    name, wanted, extra = match[1], match[2], _EXTRA.search(match[3] or "")
    use = None if extra is None else extra[1]
    if use not in _PURPOSES or name == _DISTRIBUTION:
        return  # needed for demos and development alone, or the requirements of another extra
    version, purpose = installed(name), _PURPOSES[use]
    install = f"pip install '{_DISTRIBUTION}{'' if use is None else f'[{use}]'}'"
    if version is None and use in _OPTIONAL:
        message = f"not installed; {purpose} needs {wanted}"
        yield Check(name=name, state=State.OK, message=message)
    elif version is None:
        state = State.FAILURE if use is None else State.WARNING
        message = f"not installed, and {purpose} needs {wanted}"
        yield Check(name=name, state=state, message=message, help=install)
    elif not is_within(version, wanted):
        message = f"{version} is installed, and {purpose} needs {wanted}"
        yield Check(name=name, state=State.WARNING, message=message, help=install)
    else:
        yield Check(name=name, state=State.OK, message=f"{version} (wanted: {wanted})")


def is_within(version: str, wanted: str) -> bool:
    """Whether a version meets bounds such as `>=2.13,<2.14`; only its numbers count."""
    have = _numbers(version)
    return all(_meets(have, sign, _numbers(bound)) for sign, bound in _BOUND.findall(wanted))


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version without zeros at its end, so that `2` equals `2.0`."""
    match = re.match(r"[0-9]+(\.[0-9]+)*", version)
    numbers = [int(part) for part in match[0].split(".")] if match else []
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def _meets(have: tuple[int, ...], sign: str, bound: tuple[int, ...]) -> bool:
    return {
        ">=": have >= bound,
        "<=": have <= bound,
        ">": have > bound,
        "<": have < bound,
        "==": have == bound,
        "!=": have != bound,
        "~=": have >= bound and have[: len(bound) - 1] == bound[:-1],
    }[sign]


def plugin_checks(name: str, kind: PluginKind[Any]) -> Iterator[Check]:
    """Load every plug-in of a kind by itself: one that fails is named, the others still count."""
    try:
        plugins = sorted(kind.modules())
    except PluginError as error:
        yield Check(
            name=name, state=State.FAILURE, message=str(error), help="uninstall one of them"
        )
        return
    loaded = []
    for plugin in plugins:
        try:
            kind.load(plugin)
            loaded.append(plugin)
        except PluginError as error:
            help_text = "repair or uninstall the package that brings it"
            yield Check(name=name, state=State.FAILURE, message=str(error), help=help_text)
    listed = ", ".join(loaded) or "none"
    yield Check(name=name, state=State.OK, message=f"{len(loaded)}: {listed}")


def environment_checks(environ: Mapping[str, str]) -> Iterator[Check]:
    """Check our environment variables, and show those of others that matter."""
    name = "environment"
    for found in check_environment(environ):
        yield Check(name=name, state=State.FAILURE, message=found.message, help=found.help)
    seen = [each for each in (*VARIABLES, *_SEEN) if each in environ]
    shown = {TOKEN: "(set)"}
    listed = ", ".join(f"{each}={shown.get(each, environ[each])}" for each in seen)
    yield Check(name=name, state=State.OK, message=listed or "no variable is set that matters here")


def cache_checks(environ: Mapping[str, str]) -> Iterator[Check]:
    """Check the folder of assembled checkpoints."""
    try:
        folder = cache_folder(environ)
    except DiagnosticError:
        return  # told with the environment
    if not folder.exists():
        message = f"`{folder}` does not exist yet"
        help_text = "`stagemesh demo-checkpoint` makes it"
        yield Check(name="cache", state=State.OK, message=message, help=help_text)
    elif not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        message = f"`{folder}` cannot be read and written"
        help_text = "change its owner, or set STAGEMESH_CACHE to another folder"
        yield Check(name="cache", state=State.WARNING, message=message, help=help_text)
    else:
        names = ", ".join(_checkpoints(folder)) or "no checkpoint"
        yield Check(name="cache", state=State.OK, message=f"`{folder}` has {names}")


def _checkpoints(folder: Path) -> list[str]:
    return sorted(
        item.name for item in folder.iterdir() if item.is_dir() and not item.name.startswith(".")
    )
