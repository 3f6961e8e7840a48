"""What each process of `torchrun` does to test `parallelize`: prints one line of JSON.

python -m tests.parallel.parallelize_main STRATEGY [alone]

The strategy is JSON; with `alone` the denoiser is given by itself.
"""

from __future__ import annotations

import copy
import importlib
import json
import os
import sys
from dataclasses import replace
from typing import Any, Final

import torch

import stagemesh
from stagemesh.errors import StagemeshError
from tests.models.diffusers.tiny import TINY
from tests.models.diffusers.tiny_vaes import VAES

KINDS: Final = ("", "_2", "_3")
STEPS: Final = 2


def pipeline() -> Any:  # noqa: ANN401  a class of diffusers
    """A whole pipeline of tiny networks, whose prompts come as numbers."""
    diffusers: Any = importlib.import_module("diffusers")
    torch.manual_seed(0)
    nothing = dict.fromkeys(f"{kind}{n}" for kind in ("text_encoder", "tokenizer") for n in KINDS)
    made = diffusers.StableDiffusion3Pipeline(
        transformer=TINY["sd3"].network(),
        vae=replace(VAES["kl"], config={**VAES["kl"].config, "shift_factor": 0.0}).make("cpu"),
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
        **nothing,
    )
    made.set_progress_bar_config(disable=True)
    return made


def picture(pipe: Any, seed: int | None) -> torch.Tensor:  # noqa: ANN401  as above
    """Draw a picture; without a seed the noise is whatever the process draws next."""
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    random = torch.Generator().manual_seed(7)
    config = pipe.transformer.config
    words = {
        name: torch.randn(shape, generator=random)
        for name, shape in (
            ("prompt_embeds", (1, 11, config.joint_attention_dim)),
            ("negative_prompt_embeds", (1, 11, config.joint_attention_dim)),
            ("pooled_prompt_embeds", (1, config.pooled_projection_dim)),
            ("negative_pooled_prompt_embeds", (1, config.pooled_projection_dim)),
        )
    }
    found: torch.Tensor = pipe(
        **words,
        height=20,
        width=28,
        num_inference_steps=STEPS,
        generator=generator,
        output_type="pt",
    ).images
    return found


def tell(what: dict[str, object]) -> None:
    """Write one line at once: the lines of several ranks must not mix."""
    os.write(1, json.dumps(what).encode() + b"\n")


def main() -> None:
    """Run a pipeline alone, then with the others; say how far apart the results are."""
    pipe = pipeline()
    alone = copy.deepcopy(pipe)
    strategy = json.loads(sys.argv[1])
    try:
        ranks = stagemesh.parallelize(pipe.transformer if "alone" in sys.argv else pipe, strategy)
    except StagemeshError as error:
        tell({"error": str(error)})
        return
    wanted = picture(alone, 1)
    got = picture(pipe, 1)
    told = {
        "difference": float((got - wanted).abs().max()),
        "drawn": float(picture(pipe, None).sum()),
        "axes": {axis.axis: axis.size for axis in ranks.plan.stages[0].axes},
    }
    tell(told)
    ranks.close()


if __name__ == "__main__":
    main()
