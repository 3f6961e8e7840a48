"""Deploy files that lie on others: how the lower one is found, and each way it is not."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import pytest

from stagemesh.config.bases import MAX_FILES
from stagemesh.config.catalog import Catalog, Model
from stagemesh.config.load import Loaded
from stagemesh.config.settings import Sourced
from stagemesh.config.validate import check_files
from stagemesh.spec.origin import Layer
from stagemesh.spec.unset import UNSET
from tests.config.deploying import CATALOG, PIPELINE, Show, said
from tests.config.speech import told

ENTRY = "stages: [{{stage_id: 0, max_num_seqs: {}}}]\n"


def seqs(loaded: Loaded) -> tuple[object, str]:
    """Return how many sequences the thinker takes, and where that is said."""
    given = said(loaded, "thinker", "max_num_seqs")
    assert isinstance(given, Sourced)
    return given.value, str(given.origin)


def test_a_base_is_looked_for_beside_the_file_that_names_it(show: Show) -> None:
    """Relative to that file, at every level, whatever the current folder is."""
    show.write(
        {
            "conf/mine/deploy.yaml": "base_config: ../team.yaml\n",
            "conf/team.yaml": "base_config: all/base.yaml\n",
            "conf/all/base.yaml": ENTRY.format(3),
            "all/base.yaml": ENTRY.format(4),
        }
    )
    loaded = show.load("conf/mine/deploy.yaml")
    assert seqs(loaded) == (3, "conf/all/base.yaml:1:38")
    assert [document.source for document in loaded.documents] == [
        "conf/mine/deploy.yaml",
        "conf/team.yaml",
        "conf/all/base.yaml",
    ]
    assert [document.layer for document in loaded.documents] == [
        Layer.OVERLAY,
        Layer.OVERLAY,
        Layer.DEPLOY,
    ]


def test_a_base_may_be_an_absolute_path(show: Show) -> None:
    """It is shown as it was written."""
    base = show.folder / "x" / "base.yaml"
    show.write({"x/base.yaml": ENTRY.format(5), "deploy.yaml": f"base_config: {base}\n"})
    assert seqs(show.load()) == (5, f"{base}:1:38")


@pytest.mark.parametrize("name", ["show.yaml", "show"])
def test_a_bare_name_is_a_file_that_ships_with_a_model(show: Show, name: str) -> None:
    """As a base or as the deploy file itself, with or without its ending."""
    show.write({"deploy.yaml": f"base_config: {name}\n"})
    assert seqs(show.load()) == (32, "show.yaml:7:19")
    assert seqs(show.load(name)) == (32, "show.yaml:7:19")


def test_a_file_beside_comes_before_one_that_ships(show: Show) -> None:
    """Nothing of the user's is passed over."""
    show.write({"deploy.yaml": "base_config: show.yaml\n", "show.yaml": ENTRY.format(6)})
    assert seqs(show.load()) == (6, "show.yaml:1:38")
    assert seqs(show.load("show.yaml")) == (6, "show.yaml:1:38")


def test_files_that_ship_may_lie_on_each_other(show: Show) -> None:
    """Their bases are looked for in the folder of the model."""
    loaded = show.load("show_small")
    assert seqs(loaded) == (2, "show_small.yaml:4:19")
    given = said(loaded, "thinker", "gpu_memory_utilization")
    assert isinstance(given, Sourced)
    assert (given.value, str(given.origin)) == (0.9, "show.yaml:6:29")


def test_a_mapping_from_python_may_lie_on_a_file(show: Show) -> None:
    """Relative to the current folder."""
    show.write({"sub/base.yaml": ENTRY.format(7)})
    assert seqs(show.load({"base_config": "sub/base.yaml"})) == (7, "sub/base.yaml:1:38")
    assert seqs(show.load({"base_config": "show"})) == (32, "show.yaml:7:19")


def test_null_is_no_base(show: Show) -> None:
    """The file is the lowest itself."""
    show.write({"deploy.yaml": "base_config: ~\n" + ENTRY.format(8)})
    loaded = show.load()
    assert seqs(loaded) == (8, "deploy.yaml:2:38")
    assert loaded.documents[0].layer is Layer.DEPLOY


def test_the_highest_file_names_the_pipeline(show: Show) -> None:
    """And `null` takes back what lower ones say."""
    show.write(
        {
            "base.yaml": "pipeline: shw\n",
            "deploy.yaml": "base_config: base.yaml\n",
            "named.yaml": "base_config: base.yaml\npipeline: show\n",
            "taken.yaml": "base_config: base.yaml\npipeline: ~\n",
        }
    )
    assert told(show.load()) == ["MD012 base.yaml:1:11: unknown pipeline `shw`"]
    for name in ("named.yaml", "taken.yaml"):
        loaded = show.load(name)
        assert (told(loaded), loaded.pipeline) == ([], PIPELINE)


@pytest.mark.parametrize(
    ("files", "expected", "help_text"),
    [
        (
            {"deploy.yaml": "base_config: shw.yaml\n"},
            "CF016 deploy.yaml:1:14: base file `shw.yaml` does not exist",
            "of the files that ship with models: did you mean `show`? allowed here: `show`,",
        ),
        (
            {"sub/deploy.yaml": "base_config: a/show.yaml\n"},
            "CF016 sub/deploy.yaml:1:14: base file `a/show.yaml` does not exist",
            "looked in `",
        ),
        (
            {"deploy.yaml": 'base_config: "a\\0b"\n'},
            "CF016 deploy.yaml:1:14: base file `a?b` does not exist",
            "looked in `",
        ),
        (
            {"deploy.yaml": "base_config: [a]\n"},
            "CF012 deploy.yaml:1:14: `base_config` must be the path of a deploy file, got a list",
            "None",
        ),
        (
            {"deploy.yaml": "base_config: ''\n"},
            "CF012 deploy.yaml:1:14: `base_config` must be the path of a deploy file, got text",
            "None",
        ),
        (
            {"deploy.yaml": "base_config: !x a\n"},
            "CF005 deploy.yaml:1:14: tag `!x` is not supported",
            "None",
        ),
        (
            {"deploy.yaml": "base_config: deploy.yaml\n"},
            "CF017 deploy.yaml:1:14: `base_config` leads back to `deploy.yaml`",
            "take one out of `deploy.yaml` -> `deploy.yaml`",
        ),
        (
            {
                f"{'deploy' if index == 0 else index}.yaml": f"base_config: {index + 1}.yaml\n"
                for index in range(MAX_FILES + 1)
            },
            f"CF018 {MAX_FILES - 1}.yaml:1:14: more than `{MAX_FILES}` deploy files lie on each",
            "put some of them into one file",
        ),
        (
            {"deploy.yaml": "base_config: model\n"},
            "CF016 deploy.yaml:1:14: base file `model` is a folder",
            "of the files that ship with models: ",
        ),
        (
            {"deploy.yaml": "base_config: base.yaml\n", "base.yaml": "pipeline: ["},
            "CF002 base.yaml:2:1: not valid YAML: did not find expected node content",
            "None",
        ),
        (
            {"deploy.yaml": "base_config: base.yaml\n", "base.yaml": "pipeline: !x 1\n"},
            "CF005 base.yaml:1:11: tag `!x` is not supported",
            "None",
        ),
    ],
)
def test_a_base_that_cannot_be_used_is_told_once(
    show: Show, files: Mapping[str, str], expected: str, help_text: str
) -> None:
    """With the place that names it."""
    show.write(files)
    loaded = show.load(next(iter(files)))
    (first,) = told(loaded)
    assert first.startswith(expected)
    assert help_text in str(loaded.diagnostics[0].help)


def test_a_base_that_cannot_be_read_says_who_names_it(show: Show) -> None:
    """The finding is in the base, the note in the file above."""
    show.write({"deploy.yaml": "base_config: base.yaml\n", "base.yaml": "["})
    (found,) = show.load().diagnostics
    assert str(found.origin) == "base.yaml:2:1"
    assert [str(note.origin) for note in found.notes] == ["deploy.yaml:1:14"]


def test_a_deploy_file_that_is_not_there_is_told_with_the_names_that_ship(show: Show) -> None:
    """A name alone may have been meant for one of them; a path was not."""
    (found,) = show.load("shwo").diagnostics
    assert (found.code, str(found.origin)) == ("CF001", "shwo")
    assert "did you mean `show`?" in str(found.help)
    (found,) = show.load("sub/show").diagnostics
    assert (found.code, found.help) == ("CF001", "the folder `sub` does not exist")


def test_a_deploy_file_that_is_there_is_not_led_to_itself(show: Show) -> None:
    """What is wrong with it is told, not where it might be."""
    show.write({"deploy.yaml": ""})
    (show.folder / "deploy.yaml").write_bytes(b"\xff\xfea")
    (found,) = show.load("deploy.yaml").diagnostics
    assert (found.code, found.help) == ("CF001", None)


def test_a_name_that_two_models_ship_is_not_guessed(
    show: Show, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both files are listed, at whatever place the name stands."""
    show.write({"twins/deploy/show.yaml": "{}", "deploy.yaml": "base_config: show\n"})
    monkeypatch.syspath_prepend(show.folder)
    twin = Model(pipeline=dataclasses.replace(PIPELINE, model_type="twin"), package="twins")
    catalog = dataclasses.replace(CATALOG, models=(*CATALOG.models, twin))
    for name, place in (("show", "show"), ("deploy.yaml", "deploy.yaml:1:14")):
        (found,) = show.load(name, catalog=catalog).diagnostics
        assert (found.code, str(found.origin)) == ("CF019", place)
        assert "twins/deploy/show.yaml`" in str(found.help)


def test_a_model_without_its_own_file_is_told(show: Show) -> None:
    """It is the model's fault, and a file of the user's helps."""
    nameless = dataclasses.replace(PIPELINE, default_deploy_config_name="none")
    models = (dataclasses.replace(CATALOG.models[0], pipeline=nameless),)
    catalog = dataclasses.replace(CATALOG, models=models)
    (found,) = show.load(UNSET, catalog=catalog).diagnostics
    assert (found.code, found.help) == ("MD013", "give one with `--deploy-config`")


def _with_stranger(show: Show, monkeypatch: pytest.MonkeyPatch, **changes: object) -> Catalog:
    """Install a further model, whose file `strange` no stage of ours could read."""
    show.write({"strangers/deploy/strange.yaml": "stages: [{stage_id: 7, nonsense: 1}]\n"})
    monkeypatch.syspath_prepend(show.folder)
    pipeline = dataclasses.replace(PIPELINE, model_type="stranger", **changes)  # type: ignore[arg-type]
    stranger = Model(pipeline=pipeline, package="strangers")
    return dataclasses.replace(CATALOG, models=(*CATALOG.models, stranger))


def test_a_file_of_another_model_is_told_once_and_not_read_on(
    show: Show, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By whatever way it was named; each of its values would be wrong."""
    catalog = _with_stranger(show, monkeypatch)
    show.write({"deploy.yaml": "base_config: strange\nstages: [{stage_id: 0}]\n"})
    for name, place in (("strange", "strange"), ("deploy.yaml", "deploy.yaml:1:14")):
        (found,) = show.load(name, catalog=catalog).diagnostics
        assert (found.code, str(found.origin)) == ("CF039", place)
        assert found.message == f"`strange` ships with another model than `{PIPELINE.model_type}`"
        assert str(found.help).startswith("it is for `stranger`; of this model: `show`")
    (file,) = check_files(["deploy.yaml"], PIPELINE.model_type, catalog).files
    assert [found.code for found in file.diagnostics] == ["CF039"]


def test_variants_of_a_model_may_take_its_files(
    show: Show, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are read as any other, and here found wrong."""
    catalog = _with_stranger(show, monkeypatch, variant_of=PIPELINE.model_type)
    found = show.load("strange", catalog=catalog).diagnostics
    assert "CF039" not in [each.code for each in found]
    assert found


def test_a_file_for_stages_that_the_pipeline_lacks_is_told_once(
    show: Show, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told which pipeline it is for, and it is not offered where it does not fit."""
    further = dataclasses.replace(PIPELINE.stages[-1], stage_id=9, model_stage="further")
    for related in (PIPELINE.model_type, None):
        catalog = _with_stranger(
            show,
            monkeypatch,
            variant_of=related,
            default_deploy_config_name="strange",
            stages=(*PIPELINE.stages, further),
        )
        (found,) = show.load("strange", catalog=catalog).diagnostics
        assert found.code == "CF039"
        if related is not None:
            assert found.message.startswith("`strange` is for stages that ")
            assert "`base_config: strange` with `pipeline: stranger`" in str(found.help)
        else:
            assert found.message.startswith("`strange` ships with another model")
            assert "`strange`" not in str(found.help)


def test_the_name_of_a_pipeline_is_no_deploy_file(show: Show) -> None:
    """Where no file is called so either, it is told how a pipeline is chosen."""
    models = (
        *CATALOG.models,
        Model(
            pipeline=dataclasses.replace(PIPELINE, model_type="a_cut"),
            package=CATALOG.models[0].package,
        ),
    )
    catalog = dataclasses.replace(CATALOG, models=models)
    (found,) = show.load("a_cut", catalog=catalog).diagnostics
    assert found.code == "CF001"
    assert found.help == "`a_cut` is a pipeline: write `pipeline: a_cut` in a deploy file"
