"""The real three-stage pipeline answers questions, aloud, and says what it cannot answer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from stagemesh import Omni
from stagemesh.errors import DiagnosticError, InvalidRequestError
from stagemesh.models._tensors import from_buffer
from stagemesh.models.voice_chat import code2wav, talker
from stagemesh.models.voice_chat.options import TalkerParams
from stagemesh.runtime.audio import Audio
from stagemesh.runtime.outputs import OmniResult
from stagemesh.spec.generation import GenerationModule
from stagemesh.spec.payload import Payload
from stagemesh.spec.pipeline import NoOptions
from tests.ear import hear, word_overlap
from tests.models.voice_chat.driving import code2wav_context, talker_context

pytestmark = pytest.mark.slow

QUESTIONS = (
    "What is the capital of France?",
    "Why is the sky blue?",
    "What do bees make?",
    "Name three colors.",
    "How many days are in a week?",
    "What is the largest ocean?",
    "What do plants need to grow?",
    "Who was the first president of the United States?",
    "What is water made of?",
    "Tell me about the moon.",
)
"""Ten fixed questions; greedy answers, so what is said never changes."""

SHORT = {"thinker": {"max_tokens": 24}}


@pytest.fixture(scope="module")
def answers(chunked: Omni) -> Sequence[OmniResult]:
    """All questions, asked at once."""
    return chunked.generate(QUESTIONS, sampling_params=SHORT)


def samples(audio: Audio) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """The waveform, float32 `[samples]`."""
    return np.frombuffer(audio.samples, dtype=np.float32)


def drive(module: GenerationModule, params: object, given: Payload) -> list[Payload]:
    """Run a module by hand on one input, without engine or runtime."""
    session = module.open("by-hand", params)
    session.push(given, last=True)
    found: list[Payload] = []
    done = False
    while not done:
        assert session.bucket() is not None
        [output] = module.run([session])
        found += output.payloads
        done = output.done
    return found


def test_the_recogniser_hears_what_the_thinker_said(answers: Sequence[OmniResult]) -> None:
    """Word overlap between text and speech is at least 0.6 on average over ten answers."""
    overlaps = []
    for result in answers:
        assert result.text
        assert result.audio is not None
        heard = hear(samples(result.audio), result.audio.sampling_rate)
        overlaps.append(word_overlap(result.text, heard))
    assert sum(overlaps) / len(overlaps) >= 0.6, overlaps


def test_a_request_answers_alike_alone_and_in_company(
    chunked: Omni, answers: Sequence[OmniResult]
) -> None:
    """Continuous batching changes neither the text nor, beyond rounding, the speech."""
    [alone] = chunked.generate(QUESTIONS[2], sampling_params=SHORT)
    assert alone.text == answers[2].text
    assert alone.audio is not None
    assert answers[2].audio is not None
    assert alone.audio.num_samples == answers[2].audio.num_samples
    assert np.abs(samples(alone.audio) - samples(answers[2].audio)).max() < 1e-3


def test_audio_begins_before_the_text_ends(chunked: Omni) -> None:
    """With chunks handed over, the first audio arrives before the last text."""
    prompt = "Explain in three sentences why the sky is blue."
    [result] = chunked.generate(prompt, sampling_params={"thinker": {"max_tokens": 64}})
    kinds = [output.kind for output in result.outputs]
    assert kinds.index("audio") < len(kinds) - 1 - kinds[::-1].index("text")


def test_whole_payloads_equal_the_three_parts_run_by_hand(whole: Omni, voice_chat: Path) -> None:
    """With `async_chunk: false` the waveform is that of talker and vocoder run by hand."""
    seed = 7
    [result] = whole.generate(
        "What do bees make?", sampling_params={**SHORT, "talker": {"seed": seed}}
    )
    torch.set_num_threads(1)
    voice = talker.load(talker_context(voice_chat, async_chunk=False))
    vocoder = code2wav.load(code2wav_context(voice_chat, async_chunk=False))
    [latents] = drive(voice, TalkerParams(seed=seed), Payload(meta={"text": result.text}))
    [rendered] = drive(vocoder, NoOptions(), latents)
    expected = from_buffer(rendered.buffer("audio")).numpy()
    assert result.audio is not None
    assert np.array_equal(samples(result.audio), expected)


def test_chunked_speech_equals_whole_speech(answers: Sequence[OmniResult], whole: Omni) -> None:
    """Streaming changes when the audio comes, not what it is."""
    streamed = answers[3]
    [handed] = whole.generate(QUESTIONS[3], sampling_params=SHORT)
    assert streamed.text == handed.text
    assert streamed.audio is not None
    assert handed.audio is not None
    assert streamed.audio.num_samples == handed.audio.num_samples
    assert np.abs(samples(streamed.audio) - samples(handed.audio)).max() < 1e-3


def test_the_thinker_says_what_transformers_says(
    answers: Sequence[OmniResult], voice_chat: Path
) -> None:
    """Greedy text equals that of `generate` on the same weights."""
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415  heavy

    folder = voice_chat / "thinker"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    question = [{"role": "user", "content": QUESTIONS[0]}]
    prompt = tokenizer.apply_chat_template(
        question, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    answer = model.generate(**prompt, max_new_tokens=24, do_sample=False)
    expected = tokenizer.decode(answer[0, prompt["input_ids"].shape[1] :], skip_special_tokens=True)
    assert answers[0].text == expected


def test_a_question_longer_than_the_context_is_refused(chunked: Omni) -> None:
    """The message gives the number of tokens and what is allowed; others are served on."""
    with pytest.raises(InvalidRequestError, match=r"`3031` tokens, allowed are `2047`") as caught:
        chunked.generate("word " * 3000)
    assert caught.value.stage == "thinker"
    [result] = chunked.generate("Hi.", sampling_params={"thinker": {"max_tokens": 4}})
    assert result.text


def test_an_unknown_parameter_is_refused_with_the_nearest_name(chunked: Omni) -> None:
    """Nothing that is given to a request is lost silently."""
    with pytest.raises(DiagnosticError) as caught:
        chunked.generate("Hi.", sampling_params={"thinker": {"temprature": 0.5}})
    [found] = caught.value.diagnostics
    assert found.help is not None
    assert "`temperature`" in found.help


def test_an_answer_without_anything_to_speak_gives_no_audio(chunked: Omni) -> None:
    """An answer that ends before its first word ends well in every stage, without audio."""
    [result] = chunked.generate(
        "What is the capital of France?", sampling_params={"thinker": {"stop": ["The"]}}
    )
    assert result.text == ""
    assert result.audio is None
    assert [stage.stage for stage in result.report] == ["thinker", "talker", "code2wav"]
