"""Request parameters that no request could ever have."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from stagemesh.spec.facts import Canvas, StageFacts
from tests.plan.rules.toys import AR, DENOISER, Toy, chain, listed

CLIPS: Final = StageFacts(canvas=Canvas(size=(81, 480, 832), cell=(4, 8, 16)))
PICTURES: Final = StageFacts(canvas=Canvas(size=(1, 512, 512), cell=(1, 8, 8)))


def sampling(**params: object) -> dict[str, object]:
    """A deploy file with default request parameters."""
    return listed({"default_sampling_params": params})


@pytest.mark.parametrize("own", [None, 100])
def test_an_answer_is_no_longer_than_its_sequence(toy: Toy, own: int | None) -> None:
    """As the field says, else as the model has it."""
    toy = replace(toy, model=chain(AR), facts={"s0": StageFacts(max_model_len=own or 300)})
    field = {} if own else {"max_model_len": 100}
    entry = {**field, "default_sampling_params": {"max_tokens": 101}}
    found = toy.one(listed(entry))
    assert (found.code, found.is_error) == ("PL151", False)
    assert found.message.startswith("`max_tokens` of `s0` is `101`, and a sequence has at most `1")
    assert toy.found(listed({**field, "default_sampling_params": {"max_tokens": 100}})) == []


def test_a_prompt_that_is_not_divided_fits_into_one_step(toy: Toy) -> None:
    """Where somebody has said how large a step is."""
    toy = replace(toy, model=chain(AR), facts={"s0": StageFacts(max_model_len=300)})
    whole = {"enable_chunked_prefill": False}
    found = toy.one(listed({**whole, "max_num_batched_tokens": 299}))
    assert found.code == "PL152"
    assert found.message.startswith("`max_num_batched_tokens` of `s0` is `299`, and a prompt")
    assert found.origin is not None
    assert found.origin.path == "stages[0].max_num_batched_tokens"
    assert toy.found(listed({**whole, "max_num_batched_tokens": 300})) == []
    assert toy.found(listed({"max_num_batched_tokens": 299})) == []
    assert toy.found(listed(whole)) == []


@pytest.mark.parametrize(
    ("facts", "params", "told"),
    [
        (CLIPS, {"height": 7}, "`height` of `s0` is `7`, and the smallest picture has `8`"),
        (CLIPS, {"width": 15}, "`width` of `s0` is `15`, and the smallest picture has `16`"),
        (
            CLIPS,
            {"num_frames": 80},
            "`num_frames` of `s0` is `80`, and clips have one frame more than a multiple of `4`",
        ),
        (CLIPS, {"height": 8, "width": 16, "num_frames": 77}, None),
        (PICTURES, {"num_frames": 2}, None),
        (StageFacts(), {"height": 1, "num_frames": 80}, None),
    ],
)
def test_a_picture_has_a_size_that_the_model_can_make(
    toy: Toy, facts: StageFacts, params: dict[str, object], told: str | None
) -> None:
    """At least one cell, and the frames that cells are made of."""
    toy = replace(toy, model=DENOISER, facts={"s0": facts})
    found = [each for each in toy.found(sampling(**params)) if each.startswith("PL153")]
    assert found == ([] if told is None else [f"PL153: {told}"])


def test_the_frames_next_to_it_are_offered(toy: Toy) -> None:
    """Fewer and more."""
    toy = replace(toy, model=DENOISER, facts={"s0": CLIPS})
    assert toy.one(sampling(num_frames=80)).help == "write `77` or `81`"
