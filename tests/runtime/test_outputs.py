"""What callers get: audio, reports, parameters."""

from __future__ import annotations

import array
import wave
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagemesh.runtime.audio import Audio
from stagemesh.runtime.outputs import OmniOutput, StageReport
from stagemesh.spec.payload import Buffer, Payload

RATE = 22_050


def audio(*samples: float) -> Audio:
    """A waveform."""
    return Audio(samples=array.array("f", samples).tobytes(), sampling_rate=RATE)


def report(stage: str, replica: int, seconds: float, first: float | None) -> StageReport:
    """What one stage did for one request."""
    return StageReport(
        stage=stage,
        replicas=(replica,),
        num_requests=1,
        seconds=seconds,
        first_output_s=first,
        units={"tokens": 2.0},
    )


def test_a_waveform_is_written_as_16_bit_wav(tmp_path: Path) -> None:
    """Rate and samples are in the file, and what is too loud is clipped."""
    path = tmp_path / "answer.wav"
    audio(0.0, 1.0, -1.0, 7.0, 0.5).write(path)
    with wave.open(str(path)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (RATE, 1, 2)
        frames = array.array("h", file.readframes(file.getnframes()))
    assert list(frames) == [0, 32767, -32767, 32767, 16384]


@given(st.lists(st.lists(st.floats(-1, 1, width=32), max_size=5), min_size=1, max_size=4))
def test_pieces_joined_are_the_whole(pieces: list[list[float]]) -> None:
    """Samples stay in order, and none is lost."""
    joined = Audio.joined(audio(*piece) for piece in pieces)
    assert joined == audio(*(sample for piece in pieces for sample in piece))
    assert joined is not None
    assert joined.seconds == joined.num_samples / RATE


def test_no_pieces_are_no_audio() -> None:
    """Nothing joined is nothing, not silence."""
    assert Audio.joined([]) is None


def test_pieces_of_different_rates_are_refused() -> None:
    """Audio of two rates is not one waveform."""
    with pytest.raises(ValueError, match="sampling rates"):
        Audio.joined([audio(0.0), Audio(samples=b"", sampling_rate=8000)])


@pytest.mark.parametrize(("kind", "text", "seconds"), [("text", "hi", None), ("audio", None, 2)])
def test_an_output_is_text_or_audio_by_its_kind(
    kind: str, text: str | None, seconds: int | None
) -> None:
    """The stage's declared modality decides what its payload is read as."""
    data = memoryview(bytes(4 * 2 * RATE))
    buffer = Buffer(name="audio", dtype="float32", shape=(2 * RATE,), data=data)
    payload = Payload(meta={"text": "hi", "sampling_rate": RATE}, buffers=(buffer,))
    output = OmniOutput(request_id="r", stage="s", kind=kind, payload=payload, final=False)
    assert output.text == text
    assert (output.audio and output.audio.seconds) == seconds


def test_reports_of_several_requests_add_up() -> None:
    """Times and units are added by stage; the first output is the mean of those that had one."""
    together = StageReport.together(
        [report("a", 1, 1.0, 0.5), report("b", 0, 9.0, None), report("a", 0, 2.0, 1.5)]
    )
    assert together == (
        StageReport(
            stage="a",
            replicas=(0, 1),
            num_requests=2,
            seconds=3.0,
            first_output_s=1.0,
            units={"tokens": 4.0},
        ),
        report("b", 0, 9.0, None),
    )
