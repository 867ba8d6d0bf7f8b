"""A mixture of experts in megatron-core, for `tbmem estimate`: its own layers, its own 1F1B schedule, no patch to it.

    tbmem estimate --model examples/megatron_gpt.py:build --tp 2 --pp 2 --ep 4 --world-size 64 --batch 8 --seq 2048 \
        --dtype bfloat16

Needs `pip install --no-deps megatron-core` (0.16.1 is tested). One process stands for rank 0, or --rank, of all;
Megatron's collectives run on torch's fake process group. Layers are those of the local specification, without
Transformer Engine.
"""

from __future__ import annotations

from typing import Any

import torch

LAYERS, WIDTH, HEADS, EXPERTS, VOCABULARY = 8, 1024, 16, 8, 32_000


def build(*, batch: int, sequence: int = 2048, tp: int, pp: int, ep: int, microbatches: int) -> dict[str, Any]:
    """What one rank holds, and a step of Megatron's own schedule.

    Args:
        batch: Samples of a microbatch.
        sequence: Tokens of a sample.
        tp: Ranks that share each layer.
        pp: Stages.
        ep: Ranks that share the experts.
        microbatches: Of a step.
    """
    from megatron.core import parallel_state
    from megatron.core.tensor_parallel.random import initialize_rng_tracker
    from megatron.core.transformer.moe import moe_utils

    if not hasattr(moe_utils, "te_general_gemm"):
        # 0.13 to 0.16 ask this name whether Transformer Engine is there, and define it only where it is
        moe_utils.te_general_gemm = None
    # several estimates may follow one another in a process
    parallel_state.destroy_model_parallel()
    parallel_state.initialize_model_parallel(tp, pp, expert_model_parallel_size=ep, create_gloo_process_groups=False)
    # the tracker for inference leaves the GPU's random states alone
    initialize_rng_tracker(inference_rng_tracker=True, force_reset=True)
    model = _model(sequence, tp, pp, ep)
    tokens = torch.zeros(batch, sequence, dtype=torch.int64)
    positions = torch.arange(sequence).expand(batch, sequence)

    def step(model: Any, given: Any, optimizer: Any) -> None:
        _forward_and_backward(model, given, microbatches, sequence, batch)
        optimizer.step()
        optimizer.zero_grad()

    return {"model": model, "batch": (tokens, positions), "step": step, "divided": True}


def _model(sequence: int, tp: int, pp: int, ep: int) -> Any:
    from megatron.core import parallel_state
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.transformer import TransformerConfig

    config = TransformerConfig(
        num_layers=LAYERS,
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        ffn_hidden_size=4 * WIDTH,
        num_moe_experts=EXPERTS,
        moe_router_topk=2,
        moe_token_dispatcher_type="alltoall",
        # how many tokens an expert gets depends on values: each gets the same, as with dropping and padding
        moe_expert_capacity_factor=1.0,
        moe_pad_expert_input_to_capacity=True,
        moe_router_load_balancing_type="none",
        tensor_model_parallel_size=tp,
        pipeline_model_parallel_size=pp,
        expert_model_parallel_size=ep,
        expert_tensor_parallel_size=tp,
        sequence_parallel=tp > 1,
        pipeline_dtype=torch.bfloat16,
        params_dtype=torch.bfloat16,
        bf16=True,
        use_cpu_initialization=True,
        perform_initialization=False,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        add_bias_linear=False,
        gradient_accumulation_fusion=False,
        bias_dropout_fusion=False,
        masked_softmax_fusion=False,
    )
    return GPTModel(
        config=config,
        transformer_layer_spec=_layers(config),
        vocab_size=VOCABULARY,
        max_sequence_length=sequence,
        pre_process=parallel_state.is_pipeline_first_stage(),
        post_process=parallel_state.is_pipeline_last_stage(),
        share_embeddings_and_output_weights=False,
        position_embedding_type="rope",
    )


class Norm(torch.nn.RMSNorm):
    """Megatron's own for the local layers takes no sequence parallelism, which its experts want."""

    def __init__(self, config: Any, hidden_size: int, eps: float = 1e-5) -> None:
        super().__init__(hidden_size, eps, dtype=config.params_dtype)


class Even:
    """The same number of tokens for each expert: how many a router gives depends on values, which are not there."""

    def __init__(self, tokens: int, experts: int) -> None:
        self._each, self._experts = tokens // experts, experts

    def tolist(self) -> list[int]:
        """As a tensor would say it."""
        return [self._each] * self._experts


def _even_experts() -> Any:
    from megatron.core.transformer.moe.experts import SequentialMLP

    class EvenExperts(SequentialMLP):
        """Megatron's experts, with capacity and padding: each gets as many tokens as the others."""

        def forward(self, hidden: Any, tokens_per_expert: Any, probabilities: Any) -> Any:
            """As Megatron's."""
            return super().forward(hidden, Even(len(hidden), self.num_local_experts), probabilities)

    return EvenExperts


def _layers(config: Any) -> Any:
    """This stage's layers of the local specification."""
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer.transformer_block import TransformerBlockSubmodules, get_num_layers_to_build

    layer = get_gpt_layer_local_spec(num_experts=EXPERTS, moe_grouped_gemm=False)
    layer.submodules.input_layernorm = layer.submodules.pre_mlp_layernorm = Norm
    layer.submodules.mlp.submodules.experts.module = _even_experts()
    return TransformerBlockSubmodules(layer_specs=[layer] * get_num_layers_to_build(config), layer_norm=Norm)


def _forward_and_backward(model: Any, given: Any, microbatches: int, sequence: int, batch: int) -> None:
    from megatron.core.pipeline_parallel import get_forward_backward_func

    tokens, positions = given

    def forward(iterator: Any, model: Any) -> Any:
        output = model(tokens, positions, attention_mask=None, labels=tokens)
        return output, lambda output: (output.float().mean(), {})

    get_forward_backward_func()(
        forward_step_func=forward,
        data_iterator=None,
        model=model,
        num_microbatches=microbatches,
        seq_length=sequence,
        micro_batch_size=batch,
        forward_only=False,
    )
