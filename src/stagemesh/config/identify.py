"""Tells which model a checkpoint is of: the deploy file's word, else exact keys of its own file.

Only keys at the root of the file count, one after the other: `model_type`, `architectures`, and the
`_class_name` of diffusers. The first that one model answers to decides. Where several answer to the
same key, their predicates choose; what is still not one model is refused with all that was looked
at. Names of folders and parts of names mean nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from stagemesh.config.catalog import Catalog, Model
from stagemesh.config.checkpoint import INDEX_FILE, ConfigFile
from stagemesh.config.place import Place, Run
from stagemesh.config.tree import quoted
from stagemesh.spec.diagnostic import Diagnostic, Note, Severity, did_you_mean, nearest
from stagemesh.spec.frozen import frozen
from stagemesh.spec.origin import Origin
from stagemesh.spec.pipeline import ANY_CLASS, PipelineConfig

_MODEL_TYPE: Final = "model_type"
_ARCHITECTURES: Final = "architectures"
_CLASS_NAME: Final = "_class_name"

_LISTED: Final = 16
"""Names that a sentence lists."""


def named_model(name: str, place: Place, catalog: Catalog, run: Run) -> Model | None:
    """Return the model whose pipeline a deploy file names."""
    found = [model for model in catalog.models if model.pipeline.model_type == name]
    if len(found) == 1:
        return found[0]
    if found:
        _tell_twins(found, place.origin, run)
        return None
    known = [model.pipeline.model_type for model in catalog.models]
    message = f"unknown pipeline {quoted(name)}"
    help_text = did_you_mean(name, known)
    if nearest(name, known) is None:
        help_text += "; `stagemesh list models` lists them all"
    run.tell("MD012", message, place.origin, help_text)
    return None


def model_of(file: ConfigFile, catalog: Catalog, run: Run) -> Model | None:
    """Return the one model that answers to the checkpoint's own configuration."""
    values = _values(file)
    refused: list[_Refusal] = []
    for key, candidates in _rounds(file, values, catalog):
        accepted: list[Model] = []
        for model in candidates:
            verdict = _ask(model.pipeline, file, run)
            if verdict is None:
                return None
            if verdict:
                accepted.append(model)
            else:
                refused.append(_Refusal(model=model, key=key))
        if len(accepted) == 1:
            if key != _CLASS_NAME:
                _tell_contradiction(accepted[0], file, values, catalog, run)
            return accepted[0]
        if accepted:
            _tell_several(accepted, file, values, run)
            return None
    _tell_none(file, values, refused, catalog, run)
    return None


@frozen
class _Refusal:
    """A model that answers to a key of the file, and whose predicate said no."""

    model: Model
    """The model."""
    key: str
    """The key."""


# --- who answers ---------------------------------------------------------------------------------


def _values(file: ConfigFile) -> Mapping[str, Sequence[object]]:
    """Return what the file says under each key; several values where it lists them."""
    found: dict[str, Sequence[object]] = {}
    for key in (_MODEL_TYPE, _ARCHITECTURES, _CLASS_NAME):
        value = (file.index if key == _CLASS_NAME and file.index else file.config).get(key)
        if key == _ARCHITECTURES:
            found[key] = value if isinstance(value, list) else []
        else:
            found[key] = [] if value is None else [value]
    return found


def _rounds(
    file: ConfigFile, values: Mapping[str, Sequence[object]], catalog: Catalog
) -> Iterator[tuple[str, list[Model]]]:
    """Return who answers to each key, one after the other; last those that take any class."""
    for key, given in values.items():
        yield key, [model for model in catalog.models if _answers(model, key, given, catalog)]
    if isinstance(file.index.get(_CLASS_NAME), str):
        any_class = [ANY_CLASS]
        yield (
            _CLASS_NAME,
            [model for model in catalog.models if _answers(model, _CLASS_NAME, any_class, catalog)],
        )


def _answers(model: Model, key: str, given: Sequence[object], catalog: Catalog) -> bool:
    """Whether a model answers to one of the values of a key."""
    names = _names(model.pipeline, key, catalog)
    return any(value in names for value in given)


def _names(pipeline: PipelineConfig, key: str, catalog: Catalog) -> Collection[str]:
    """Return the values of a key that a pipeline answers to.

    A variant answers to nothing but its name, unless it has a predicate: then to what the pipeline
    answers to of which it is a variant.
    """
    if pipeline.variant_of is not None:
        if pipeline.hf_config_predicate is None:
            return ()
        known = {model.pipeline.model_type: model.pipeline for model in catalog.models}
        pipeline = known.get(pipeline.variant_of, pipeline)
    return {
        _MODEL_TYPE: (pipeline.model_type,),
        _ARCHITECTURES: pipeline.hf_architectures,
        _CLASS_NAME: pipeline.diffusers_class_names,
    }[key]


def _ask(pipeline: PipelineConfig, file: ConfigFile, run: Run) -> bool | None:
    """Whether the pipeline's predicate takes the file; `None` once it failed, which was told."""
    if pipeline.hf_config_predicate is None:
        return True
    try:
        return bool(pipeline.hf_config_predicate(file.root_of(pipeline)))
    except Exception as error:  # noqa: BLE001  a model is a plug-in: whatever it raises is told
        message = f"`{pipeline.model_type}` cannot tell whether `{_name(file)}` is one of its own"
        reason = f"its predicate failed with `{type(error).__name__}: {error}`"
        help_text = f"{reason}; name the pipeline with `pipeline:` in a deploy file"
        run.tell("MD019", message, file.origin, help_text)
        return None


# --- what is told --------------------------------------------------------------------------------


def _tell_twins(found: Sequence[Model], origin: Origin, run: Run) -> None:
    name = found[0].pipeline.model_type
    packages = ", ".join(f"`{model.package}`" for model in found)
    message = f"{len(found)} installed models are called {quoted(name)}"
    run.tell("MD009", message, origin, f"they are in {packages}; uninstall all but one of them")


def _tell_contradiction(
    chosen: Model,
    file: ConfigFile,
    values: Mapping[str, Sequence[object]],
    catalog: Catalog,
    run: Run,
) -> None:
    """Warn where the second file at the root of the checkpoint names another model."""
    given = values[_CLASS_NAME] if file.index else ()
    others = [
        model.pipeline.model_type
        for model in catalog.models
        if _answers(model, _CLASS_NAME, given, catalog)
    ]
    name = chosen.pipeline.model_type
    if others and name not in others:
        run.findings.append(
            Diagnostic(
                code="MD036",
                message=f"`{_name(file)}` names `{name}`, `{INDEX_FILE}` names {_shown(others)}",
                severity=Severity.WARNING,
                origin=file.origin,
                help=f"`{name}` is taken; another is chosen with `pipeline:` in a deploy file",
            )
        )


def _tell_several(
    found: Sequence[Model], file: ConfigFile, values: Mapping[str, Sequence[object]], run: Run
) -> None:
    names = [model.pipeline.model_type for model in found]
    twins = [model for model in found if names.count(model.pipeline.model_type) > 1]
    if twins:
        _tell_twins(twins, file.origin, run)
        return
    message = f"`{_name(file)}` fits several models: {_shown(names)}"
    help_text = f"{_looked(values)}; choose one with `pipeline:` in a deploy file"
    run.tell("MD009", message, file.origin, help_text)


def _tell_none(
    file: ConfigFile,
    values: Mapping[str, Sequence[object]],
    refused: Iterable[_Refusal],
    catalog: Catalog,
    run: Run,
) -> None:
    names = [model.pipeline.model_type for model in catalog.models]
    known = _shown(names) if len(names) <= _LISTED else "see `stagemesh list models`"
    run.findings.append(
        Diagnostic(
            code="MD008",
            message=f"`{_name(file)}` names no known model",
            origin=file.origin,
            notes=tuple(
                Note(
                    message=f"`{each.model.pipeline.model_type}` answers to its `{each.key}`,"
                    " but its predicate says no"
                )
                for each in refused
            ),
            help=f"{_looked(values)}; known models: {known}",
        )
    )


def _looked(values: Mapping[str, Sequence[object]]) -> str:
    each = [f"`{key}` ({_shown(given)})" for key, given in values.items()]
    return f"looked at {', '.join(each[:-1])} and {each[-1]}"


def _shown(names: Sequence[object]) -> str:
    shown = ", ".join(quoted(name) for name in names[:_LISTED] if name is not None)
    return f"{shown}, ..." if len(names) > _LISTED else shown or "absent"


def _name(file: ConfigFile) -> str:
    return Path(file.origin.source).name
