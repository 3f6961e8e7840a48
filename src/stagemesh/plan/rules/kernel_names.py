"""Names of kernels that engines know.

Those of mixture-of-experts and linear layers are a closed set in vLLM (`vllm/config/kernel.py`,
versions 0.20 to 0.32). Those of attention are not: a platform or a plug-in may register its own
(`vllm/v1/attention/backends/registry.py`, and of vllm-omni
`vllm_omni/diffusion/attention/backends/registry.py`).
"""

from __future__ import annotations

from typing import Final

from stagemesh.plan.kernels import AUTO

MOE: Final = frozenset(
    {
        AUTO,
        "aiter",
        "b12x",
        "batched_triton",
        "cutlass",
        "deep_gemm",
        "deep_gemm_mega_moe",
        "emulation",
        "flashinfer_b12x",
        "flashinfer_cutedsl",
        "flashinfer_cutlass",
        "flashinfer_moe_ep_mega_cutedsl",
        "flashinfer_moe_ep_mega_deep_gemm",
        "flashinfer_trtllm",
        "flydsl",
        "hpc",
        "humming",
        "marlin",
        "triton",
        "triton_unfused",
    }
)
"""Kernels of mixture-of-experts layers."""

LINEAR: Final = frozenset(
    {
        AUTO,
        "aiter",
        "b12x",
        "conch",
        "cutlass",
        "deep_gemm",
        "emulation",
        "exllama",
        "fbgemm",
        "flashinfer_b12x",
        "flashinfer_cudnn",
        "flashinfer_cutedsl",
        "flashinfer_cutlass",
        "flashinfer_trtllm",
        "humming",
        "machete",
        "marlin",
        "torch",
        "triton",
        "xpu",
        "xpu_woq",
    }
)
"""Kernels of linear layers."""

ATTENTION: Final = frozenset(
    {
        AUTO,
        "CPU_ATTN",
        "CUSTOM",
        "CUTLASS_MLA",
        "FLASHINFER",
        "FLASHINFER_MLA",
        "FLASHINFER_MLA_SPARSE",
        "FLASHMLA",
        "FLASHMLA_SPARSE",
        "FLASH_ATTN",
        "FLASH_ATTN_DIFFKV",
        "FLASH_ATTN_MLA",
        "FLEX_ATTENTION",
        "NO_ATTENTION",
        "ROCM_AITER_FA",
        "ROCM_AITER_MLA",
        "ROCM_AITER_MLA_SPARSE",
        "ROCM_AITER_TRITON_MLA",
        "ROCM_AITER_UNIFIED_ATTN",
        "ROCM_ATTN",
        "TORCH_SDPA",
        "TREE_ATTN",
        "TRITON_ATTN",
        "TRITON_MLA",
        "TURBOQUANT",
        "XPU_MLA_SPARSE",
    }
)
"""Kernels of attention of stages by tokens."""

DIFFUSION_ATTENTION: Final = frozenset(
    {
        AUTO,
        "ASCEND_ATTN",
        "CUDNN_ATTN",
        "CUSTOM",
        "FASTVIDEO_VSA",
        "FLASHINFER_ATTN",
        "FLASHINFER_SM120_ATTN",
        "FLASH_ATTN",
        "FLASH_ATTN_3_HUB",
        "FLASH_ATTN_HUB",
        "RAINFUSION_ATTN",
        "SAGE_ATTN",
        "SAGE_ATTN_3",
        "SPARGE_ATTN",
        "TORCH_SDPA",
        "TRTLLM_ATTN",
    }
)
"""Kernels of attention of diffusion stages."""
