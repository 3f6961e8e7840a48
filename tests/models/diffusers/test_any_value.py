"""Whatever the files of a checkpoint hold, the answer is facts or diagnostics, and soon."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from stagemesh.errors import DiagnosticError
from stagemesh.spec.facts import StageFacts
from stagemesh.testing.configs import MemoryConfigs
from tests.examples import fewer
from tests.models.diffusers.published import FAMILIES, UNKNOWN, changed, facts_of, files_of

NAMES = (*FAMILIES, UNKNOWN)
PATHS = {
    name: tuple(
        key if folder == "." else f"{folder}.{key}"
        for folder, content in files_of(name).items()
        for key in content
    )
    for name in NAMES
}
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=-(10**40), max_value=10**40)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["FluxTransformer2DModel", "AutoencoderKLWan", "t5", "transformer"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@st.composite
def changes(draw: st.DrawFn) -> tuple[str, Mapping[str, object]]:
    """A published checkpoint, and some of its values replaced by anything that JSON can say."""
    name = draw(st.sampled_from(NAMES))
    return name, draw(st.dictionaries(st.sampled_from(PATHS[name]), VALUES, max_size=4))


def numbers(facts: StageFacts) -> list[int]:
    """Every amount that was told."""
    told = (facts.num_parameters, facts.sequence_length, facts.hidden_size)
    return [each for each in (*told, *facts.component_bytes.values()) if each is not None]


@fewer(2)
@given(changes())
def test_any_value_gives_facts_or_diagnostics(change: tuple[str, Mapping[str, object]]) -> None:
    """Whole and split; amounts are never negative, and never beyond what can be written."""
    name, values = change
    for pipeline in ("diffusers", "diffusers_split"):
        facts, told = read(changed(name, values), pipeline)
        assert bool(facts) is not bool(told)
        assert all(len(message) <= 100 for message in told)
        for each in facts.values():
            assert all(0 <= number < 10**40 for number in numbers(each))


def read(configs: MemoryConfigs, pipeline: str) -> tuple[Mapping[str, StageFacts], tuple[str, ...]]:
    """Return facts, or else messages."""
    try:
        return facts_of(configs, pipeline), ()
    except DiagnosticError as error:
        return {}, tuple(found.message for found in error.diagnostics)
