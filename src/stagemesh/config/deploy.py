"""Reads deploy files: how the stages of a pipeline run.

A file may lie on others (`base_config`), so a list of documents is read, the lowest first. All
sections for platforms are checked; the one of the platform that is planned for is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from stagemesh.config.check import checker, hints, unknown_key, wrong_type
from stagemesh.config.document import Document
from stagemesh.config.edges import read_edges
from stagemesh.config.entries import read_stages
from stagemesh.config.fields import StageField
from stagemesh.config.patch import Patch, patches_of, taken_back
from stagemesh.config.place import Place, Run
from stagemesh.config.refusals import flat_field, tell_refused
from stagemesh.config.schema import PLATFORMS, ConnectorEntry, DeployFile, PlatformSection
from stagemesh.config.stages import Stages
from stagemesh.config.tree import quoted
from stagemesh.config.wide import spread
from stagemesh.spec.diagnostic import did_you_mean
from stagemesh.spec.origin import Layer
from stagemesh.spec.unset import UNSET

BASE: Final = "base_config"
"""The key that names the file below; whoever opens the files follows it."""
PLAN_KEYS: Final = frozenset({"version", "checkpoint"})
"""Keys that every saved plan has, and no deploy file."""

_MEANT: Final = {
    **dict.fromkeys(("gpu", "nvidia", "nv"), "cuda"),
    **dict.fromkeys(("amd", "hip"), "rocm"),
    **dict.fromkeys(("ascend", "huawei"), "npu"),
    **dict.fromkeys(("intel", "oneapi", "sycl"), "xpu"),
    **dict.fromkeys(("mthreads", "moorethreads"), "musa"),
}
"""Platforms by what else they are called: `gpu` looks like `cpu`, and is its opposite."""
_OLD_STAGES: Final = "stage_args"


def read_deploy(
    documents: Iterable[Document], stages: Stages, fields: Mapping[str, StageField], run: Run
) -> DeployPatches:
    """Read a deploy file and those it lies on; what is wrong goes to `run`."""
    read = DeployPatches(stages, fields, run)
    for document in documents:
        read.read(document)
    return read


class DeployPatches:
    """Patches of all files together, apart where `null` in a file clears a part of lower ones."""

    def __init__(self, stages: Stages, fields: Mapping[str, StageField], run: Run) -> None:
        """Start with nothing read."""
        self._stages = stages
        self._fields = fields
        self._run = run
        self._common: list[Patch] = []
        self._entries: list[Patch] = []
        self._sections: dict[str, list[Patch]] = {}
        self._section_entries: dict[str, list[Patch]] = {}

    @property
    def platforms(self) -> tuple[str, ...]:
        """Platforms that have a section."""
        return tuple(dict.fromkeys([*self._sections, *self._section_entries]))

    def on(self, platform: str | None) -> list[Patch]:
        """Return what holds on a platform; `None` has no section."""
        section = self._sections.get(platform or "", [])
        entries = self._section_entries.get(platform or "", [])
        return [*self._common, *self._entries, *section, *entries]

    def read(self, document: Document) -> None:
        """Add one file on top of those before."""
        root = Place(located=document)
        if document.value.keys() >= PLAN_KEYS:
            message = "this is a saved plan, which is no deploy file"
            help_text = "give it in place of the model: `stagemesh run plan.json`"
            self._run.tell("CF029", message, root.origin, help_text)
            return
        parts: Mapping[str | int, Callable[[object, Place], None]] = {
            "stages": self._read_stages,
            "platforms": self._read_platforms,
            "connectors": self._read_connectors,
            "edges": self._read_edges,
            BASE: lambda _value, _place: None,
        }
        for key, value in document.value.items():
            here = root.child(key)
            if key in parts:
                parts[key](value, here)
            elif key in hints(DeployFile):
                self._common += self._value(str(key), value, here)
            else:
                self._read_other(key, value, root)

    def _value(self, key: str, value: object, place: Place) -> Iterator[Patch]:
        """Patches of a field of the whole pipeline."""
        annotation = hints(DeployFile)[key]
        refused = value is not None and checker(annotation)(value, place, self._run) is UNSET
        return patches_of(None, (key,), UNSET if refused else value, place, annotation)

    def _read_other(self, key: str | int, value: object, root: Place) -> None:
        """Take a field of every stage, or say why the key is no such field."""
        here, field = root.child(key), self._fields.get(str(key))
        if field is not None and field.pipeline_wide:
            self._common += self._for_every_stage(field, value, here)
        elif field is not None:
            self._tell_of_stage(field, value, here)
        elif key == _OLD_STAGES:
            help_text = (
                "the pipeline itself holds the topology; write `stages:` with a list of"
                ' `{stage_id: 0, devices: "0", ...}`'
            )
            self._run.tell("CF023", f"`{_OLD_STAGES}` is not read", here.key_origin, help_text)
        elif not tell_refused(str(key), value, here, self._run):
            everywhere = [name for name, each in self._fields.items() if each.pipeline_wide]
            unknown_key(key, root, self._run, [*hints(DeployFile), *everywhere])

    def _tell_of_stage(self, field: StageField, value: object, place: Place) -> None:
        """Say that a field is one of an entry, with an example for a stage that takes it."""
        stages = () if self._stages.pipeline is None else self._stages.pipeline.stages
        taker = next((stage.stage_id for stage in stages if field.reaches(stage)), 0)
        shown = flat_field(field.name, value).strip("`")
        help_text = f"write it in the entry of a stage: `stages: [{{stage_id: {taker}, {shown}}}]`"
        message = f"{quoted(field.name)} is a field of a stage"
        self._run.tell("CF024", message, place.key_origin, help_text)

    def _for_every_stage(self, field: StageField, value: object, place: Place) -> Iterator[Patch]:
        return spread(field, value, place.layered(Layer.PIPELINE_WIDE), self._stages, self._run)

    def _read_stages(self, value: object, place: Place) -> None:
        if value is None:
            self._entries = taken_back(self._entries, place.origin)
        else:
            self._entries += read_stages(value, place, self._stages, self._fields, self._run)

    def _read_edges(self, value: object, place: Place) -> None:
        self._common += read_edges(value, place, self._stages, self._run)

    def _read_connectors(self, given: object, place: Place) -> None:
        if given is None:
            self._common.append(
                Patch(stage_id=None, path=("connectors",), value=None, origin=place.origin)
            )
        elif not isinstance(given, Mapping):
            wrong_type(given, place, self._run, "a mapping from names to connectors")
        else:
            for name, entry in given.items():
                here = place.child(name)
                refused = (
                    entry is not None and checker(ConnectorEntry)(entry, here, self._run) is UNSET
                )
                self._common += patches_of(
                    None, ("connectors", name), UNSET if refused else entry, here
                )

    # --- sections -------------------------------------------------------------------------------

    def _read_platforms(self, given: object, place: Place) -> None:
        if given is None:
            for name in self.platforms:
                self._take_back(name, place)
        elif not isinstance(given, Mapping):
            wrong_type(given, place, self._run, "a mapping from platforms to sections")
        else:
            for name, section in given.items():
                self._read_section(name, section, place.child(name).layered(Layer.PLATFORM))

    def _read_section(self, name: str | int, given: object, place: Place) -> None:
        if name not in PLATFORMS:
            help_text = did_you_mean(_MEANT.get(str(name).lower(), str(name)), PLATFORMS)
            self._run.tell("CF030", f"unknown platform {quoted(name)}", place.key_origin, help_text)
            return
        platform = str(name)
        if given is None:
            self._take_back(platform, place)
        elif not isinstance(given, Mapping):
            allowed = ", ".join(f"`{key}`" for key in hints(PlatformSection))
            wrong_type(given, place, self._run, f"a mapping with any of {allowed}")
        else:
            for key, value in given.items():
                self._read_member(platform, key, value, place)

    def _take_back(self, platform: str, place: Place) -> None:
        for patches in (self._sections, self._section_entries):
            patches[platform] = taken_back(patches.get(platform, []), place.origin)

    def _read_member(self, platform: str, key: str | int, value: object, section: Place) -> None:
        here = section.child(key)
        patches = self._sections.setdefault(platform, [])
        if key not in hints(PlatformSection):
            if not tell_refused(str(key), value, here, self._run):
                unknown_key(key, section, self._run, hints(PlatformSection))
        elif key in self._fields:
            patches += self._for_every_stage(self._fields[str(key)], value, here)
        elif key in hints(DeployFile) and key != "stages":
            patches += self._value(str(key), value, here)
        elif value is None:
            entries = self._section_entries.get(platform, [])
            self._section_entries[platform] = taken_back(entries, here.origin)
        else:
            self._section_entries.setdefault(platform, []).extend(
                read_stages(value, here, self._stages, self._fields, self._run)
            )
