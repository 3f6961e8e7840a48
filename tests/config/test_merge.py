"""The merge as algebra: one rule, whatever the values are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from hypothesis import given
from hypothesis import strategies as st

from stagemesh.config.merge import Branch, MergedPlace, Node, merge, sourced, value_of
from stagemesh.config.patch import Patch, patches_of
from stagemesh.config.place import Nowhere, Place
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.origin import Layer, Origin

KEYS = st.sampled_from("abc")
LEAVES = st.none() | st.integers(0, 3) | st.tuples(st.integers(0, 3))
# Mappings stand at the keys `m` and leaves elsewhere, as types make sure in files.
TREES = st.recursive(
    st.dictionaries(KEYS, LEAVES, max_size=3),
    lambda inner: st.builds(
        lambda leaves, child: {**leaves, "m": child},
        st.dictionaries(KEYS, LEAVES, max_size=2),
        inner | st.none(),
    ),
    max_leaves=4,
)
LAYERS = st.sampled_from(list(Layer))
STACKS = st.lists(st.tuples(LAYERS, TREES), max_size=5, unique_by=lambda item: item[0])


def patches(stack: Iterable[tuple[Layer, Mapping[str, object]]]) -> list[Patch]:
    """Cut one tree for each layer into patches."""
    return [
        patch
        for layer, tree in stack
        for key, value in tree.items()
        for patch in patches_of(
            0, (key,), value, Place(located=Nowhere(source=layer.name, layer=layer))
        )
    ]


def cut(node: Node, *path: str | int) -> Iterator[Patch]:
    """Turn a merged tree back into patches."""
    if path:
        value = {} if isinstance(node, Branch) else node.value
        yield Patch(stage_id=0, path=path, value=value, origin=node.origin)
    for key, child in node.children.items() if isinstance(node, Branch) else ():
        yield from cut(child, *path, key)


def remade(given_patches: Iterable[Patch]) -> list[Patch]:
    """Merge, and cut the result into patches again."""
    return [patch for root in merge(given_patches, []).values() for patch in cut(root)]


def merged(given_patches: Iterable[Patch]) -> object:
    """Return the plain merged value."""
    findings: list[Diagnostic] = []
    roots = merge(given_patches, findings)
    assert findings == []
    return value_of(roots[0]) if 0 in roots else {}


def overlaid(stack: Iterable[tuple[Layer, Mapping[str, object]]]) -> dict[str, object]:
    """Merge by the rule's own words, as a model to compare with."""
    result: dict[str, object] = {}
    for _, tree in sorted(stack, key=lambda item: item[0]):
        result = _overlay(result, tree)
    return result


def _overlay(below: object, above: Mapping[str, object]) -> dict[str, object]:
    result = dict(below) if isinstance(below, Mapping) else {}
    for key, value in above.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping):
            result[key] = _overlay(result.get(key), value)
        else:
            result[key] = value
    return result


@given(STACKS)
def test_the_merge_is_the_rule(stack: list[tuple[Layer, Mapping[str, object]]]) -> None:
    """Mappings by key, lists and scalars replace, null clears, higher layers win."""
    assert merged(patches(stack)) == overlaid(stack)


@given(STACKS)
def test_merging_twice_changes_nothing(stack: list[tuple[Layer, Mapping[str, object]]]) -> None:
    """The same patches again, and the merged value cut into patches again, give the same value."""
    once = patches(stack)
    assert merged([*once, *once]) == merged(once)
    assert merged(remade(once)) == merged(once)


@given(STACKS, st.integers(0, 5))
def test_lower_layers_can_be_merged_first(
    stack: list[tuple[Layer, Mapping[str, object]]], num_low: int
) -> None:
    """Layering is associative."""
    ordered = sorted(stack, key=lambda item: item[0])
    low, high = patches(ordered[:num_low]), patches(ordered[num_low:])
    assert merged([*remade(low), *high]) == merged([*low, *high])


@given(STACKS, st.randoms(use_true_random=False))
def test_the_order_of_patches_of_different_paths_means_nothing(
    stack: list[tuple[Layer, Mapping[str, object]]], random: object
) -> None:
    """What is written first in a file, and which file is read first, changes no value."""
    shuffled = patches(stack)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert merged(shuffled) == merged(patches(stack))


def patch(layer: Layer, path: tuple[str, ...], value: object) -> Patch:
    """Return one patch of stage 0."""
    return Patch(
        stage_id=0, path=path, value=value, origin=Origin(layer=layer, source=layer.name.lower())
    )


def test_a_mapping_that_meets_a_scalar_is_an_error_with_both_places() -> None:
    """T35: whichever of them is lower; told once, however many members there are."""
    cases = [
        [patch(Layer.DEPLOY, ("a",), 1), patch(Layer.STAGE, ("a",), {})],
        [patch(Layer.DEPLOY, ("a",), 1), patch(Layer.STAGE, ("a", "b"), 2)],
        [patch(Layer.DEPLOY, ("a", "b"), 2), patch(Layer.STAGE, ("a",), 1)],
    ]
    for case in cases:
        findings: list[Diagnostic] = []
        merge(
            [*case, patch(Layer.STAGE, ("a", "c"), 3)][: 3 if case is not cases[2] else 2], findings
        )
        (found,) = findings
        assert found.code == "CF014"
        assert found.message.startswith("`a` is a ")
        assert (str(found.origin), str(found.notes[0].origin)) == ("stage", "deploy")


def test_null_in_between_lets_a_scalar_become_a_mapping() -> None:
    """What is cleared no longer clashes."""
    given_patches = [
        patch(Layer.DEPLOY, ("a",), 1),
        patch(Layer.PLATFORM, ("a",), None),
        patch(Layer.STAGE, ("a", "b"), 2),
    ]
    assert merged(given_patches) == {"a": {"b": 2}}


def test_a_value_remembers_all_it_replaced_and_each_member_its_origin() -> None:
    """Highest first; equality looks at the values alone."""
    roots = merge(
        [
            patch(Layer.STAGE, ("a", "b"), 3),
            patch(Layer.DEPLOY, ("a", "b"), 1),
            patch(Layer.GLOBAL, ("a", "b"), 2),
            patch(Layer.DEPLOY, ("a", "c"), 4),
        ],
        [],
    )
    node = roots[0].at("a")
    assert node is not None
    given_value = sourced(node)
    assert given_value.value == {"b": 3, "c": 4}
    assert [item.value for item in given_value.parts["b"].superseded] == [2, 1]
    assert str(given_value.parts["c"].origin) == "deploy"
    place = MergedPlace(branch=roots[0])
    assert str(place.origin(("a", "c"))) == "deploy"
    assert str(place.key_origin(("a", "c", "missing"))) == "deploy"
