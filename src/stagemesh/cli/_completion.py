"""The work of `stagemesh completion`: scripts that hold every word, so that completing is instant.

Only names of assembled checkpoints and of files are looked up when a key is pressed.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterator
from typing import Final

from stagemesh.cli._screen import show_json
from stagemesh.cli._words import CommandWords, Kind, Takes, command_words

_BASH: Final = """\
# Completes stagemesh in bash: eval "$(stagemesh completion bash)"
_stagemesh_models() {
    local folder
    for folder in "${STAGEMESH_CACHE:-$HOME/.cache/stagemesh}"/*/; do
        [ -d "$folder" ] && basename "$folder"
    done
}
_stagemesh_flags() {
    case "$1" in
%(flags)s
    esac
}
_stagemesh_takes() {
    case "$1 $2" in
%(takes)s
    esac
}
_stagemesh() {
    local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}"
    local command="" position=0 index word before="" takes=""
    COMPREPLY=()
    for ((index = 1; index < COMP_CWORD; index++)); do
        word="${COMP_WORDS[index]}"
        if [[ "$word" != -* && -z "$command" ]]; then
            command="$word"
        elif [[ "$word" != -* && -z "$(_stagemesh_takes "$command" "$before")" ]]; then
            position=$((position + 1))
        fi
        before="$word"
    done
    if [[ -z "$command" ]]; then
        COMPREPLY=($(compgen -W "%(commands)s" -- "$current"))
        return
    fi
    takes="$(_stagemesh_takes "$command" "$previous")"
    if [[ "$previous" != -* ]]; then takes=""; fi
    if [[ -z "$takes" && "$current" == -* ]]; then
        COMPREPLY=($(compgen -W "$(_stagemesh_flags "$command")" -- "$current"))
        return
    fi
    [[ -n "$takes" ]] || takes="$(_stagemesh_takes "$command" "$((position + 1))")"
    [[ -n "$takes" ]] || takes="$(_stagemesh_takes "$command" "*")"
    case "$takes" in
        file) COMPREPLY=($(compgen -f -- "$current")) ;;
        model*) COMPREPLY=($(compgen -W "$(_stagemesh_models) ${takes#model}" -- "$current") \\
            $(compgen -f -- "$current")) ;;
        *) COMPREPLY=($(compgen -W "${takes#words}" -- "$current")) ;;
    esac
}
complete -o filenames -F _stagemesh stagemesh
"""
_ZSH: Final = """\
# Completes stagemesh in zsh: eval "$(stagemesh completion zsh)"
autoload -U +X compinit && compinit
autoload -U +X bashcompinit && bashcompinit
"""
_FISH: Final = """\
# Completes stagemesh in fish: stagemesh completion fish | source
function __stagemesh_models
    set -l folder $HOME/.cache/stagemesh
    set -q STAGEMESH_CACHE; and set folder $STAGEMESH_CACHE
    for each in $folder/*/
        basename $each
    end
end
complete -c stagemesh -f
"""


def run(namespace: argparse.Namespace) -> int:
    """Print the script."""
    words = command_words()
    script = _fish(words) if namespace.shell == "fish" else _bash(words)
    if namespace.shell == "zsh":
        script = _ZSH + script
    if namespace.json:
        show_json({"shell": namespace.shell, "script": script})
    else:
        sys.stdout.write(script)
    return 0


def _bash(words: tuple[CommandWords, ...]) -> str:
    flags = [f"        {each.name}) echo {shlex.quote(_names(each))} ;;" for each in words]
    takes = [line for each in words for line in _bash_takes(each)]
    commands = " ".join(each.name for each in words)
    parts = {"flags": "\n".join(flags), "takes": "\n".join(takes), "commands": commands}
    return _BASH % parts


def _names(command: CommandWords) -> str:
    return " ".join(name for flag in command.flags for name in flag.names)


def _bash_takes(command: CommandWords) -> Iterator[str]:
    """What each flag and each position takes, as cases of `command what`."""
    for flag in command.flags:
        if flag.takes is not None:
            patterns = "|".join(f'"{command.name} {name}"' for name in flag.names)
            yield f"        {patterns}) echo {_bash_words(flag.takes)} ;;"
    for number, takes in enumerate(command.positions, start=1):
        is_open = command.repeats and number == len(command.positions)
        place = "*" if is_open else str(number)
        yield f'        "{command.name} {place}") echo {_bash_words(takes)} ;;'


def _bash_words(takes: Takes) -> str:
    return shlex.quote(" ".join((takes.kind.value, *takes.words)))


def _fish(words: tuple[CommandWords, ...]) -> str:
    return "\n".join([_FISH.rstrip(), *(line for each in words for line in _fish_lines(each)), ""])


def _fish_lines(command: CommandWords) -> Iterator[str]:
    about = shlex.quote(command.summary)
    yield f"complete -c stagemesh -n __fish_use_subcommand -a {command.name} -d {about}"
    start = f"complete -c stagemesh -n '__fish_seen_subcommand_from {command.name}'"
    for flag in command.flags:
        names = " ".join(
            f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in flag.names
        )
        takes = "" if flag.takes is None else f" -r{_fish_words(flag.takes)}"
        yield f"{start} {names}{takes} -d {shlex.quote(flag.help)}"
    for position in command.positions:
        if position.words or position.kind is not Kind.WORDS:
            yield f"{start}{_fish_words(position)}"


def _fish_words(takes: Takes) -> str:
    words = " ".join(
        (*takes.words, *(["(__stagemesh_models)"] if takes.kind is Kind.MODEL else []))
    )
    listed = f" -a {shlex.quote(words)}" if words else ""
    return listed + (" -F" if takes.kind in (Kind.FILE, Kind.MODEL) else "")
