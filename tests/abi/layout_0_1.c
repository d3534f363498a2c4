/* Where everything in ABI 0.1 lies, and what its numbers are.
 *
 * Written once, when the minor is released: a plugin built with it has these
 * figures compiled in.  Whoever has to change this file to make it compile has
 * broken the ABI.  A new minor gets a new file. */
#define SEAM_ABI_TARGET 1

#include <stddef.h>

#include <seam/plugin.h>

#define SIZE(s, n) _Static_assert(sizeof(struct s) == (n), "size of " #s)
#define AT(s, m, at, n)                                   \
    _Static_assert(offsetof(struct s, m) == (at) &&       \
                       sizeof(((struct s *)0)->m) == (n), \
                   #s "." #m)
#define IS(name, n) _Static_assert((name) == (n), #name)

SIZE(seam_error, 256);
AT(seam_error, code, 0, 4);
AT(seam_error, native, 4, 4);
AT(seam_error, text, 8, 248);

SIZE(seam_str, 16);
AT(seam_str, p, 0, 8);
AT(seam_str, n, 8, 8);

SIZE(seam_tensor, 112);
AT(seam_tensor, data, 0, 8);
AT(seam_tensor, bytes, 8, 8);
AT(seam_tensor, shape, 16, 32);
AT(seam_tensor, stride, 48, 24);
AT(seam_tensor, dtype, 72, 2);
AT(seam_tensor, rank, 74, 2);
AT(seam_tensor, device, 76, 4);
AT(seam_tensor, quant, 80, 2);
AT(seam_tensor, scale_dtype, 82, 2);
AT(seam_tensor, group_rows, 84, 4);
AT(seam_tensor, group_cols, 88, 4);
AT(seam_tensor, reserved, 92, 4);
AT(seam_tensor, scale, 96, 8);
AT(seam_tensor, zero, 104, 8);

SIZE(seam_host, 120);
AT(seam_host, size, 0, 4);
AT(seam_host, abi_major, 4, 2);
AT(seam_host, abi_minor, 6, 2);
AT(seam_host, n_workers, 8, 4);
AT(seam_host, reserved, 12, 4);
AT(seam_host, ctx, 16, 8);
AT(seam_host, log, 24, 8);
AT(seam_host, alloc, 32, 8);
AT(seam_host, free, 40, 8);
AT(seam_host, parallel_for, 48, 8);
AT(seam_host, counter, 56, 8);
AT(seam_host, cfg, 64, 8);
AT(seam_host, model_cfg, 72, 8);
AT(seam_host, weight, 80, 8);
AT(seam_host, file, 88, 8);
AT(seam_host, token_id, 96, 8);
AT(seam_host, block, 104, 8);
AT(seam_host, extension, 112, 8);

SIZE(seam_limits, 32);
AT(seam_limits, size, 0, 4);
AT(seam_limits, act_dtype, 4, 4);
AT(seam_limits, max_seqs, 8, 4);
AT(seam_limits, max_tokens, 12, 4);
AT(seam_limits, max_context, 16, 4);
AT(seam_limits, max_draft, 20, 4);
AT(seam_limits, tp_rank, 24, 4);
AT(seam_limits, tp_size, 28, 4);

SIZE(seam_device, 56);
AT(seam_device, size, 0, 4);
AT(seam_device, ordinal, 4, 4);
AT(seam_device, arch, 8, 32);
AT(seam_device, mem_bytes, 40, 8);
AT(seam_device, units, 48, 4);
AT(seam_device, wave, 52, 4);

SIZE(seam_create, 56);
AT(seam_create, size, 0, 4);
AT(seam_create, n_layers, 4, 4);
AT(seam_create, layer, 8, 8);
AT(seam_create, limits, 16, 8);
AT(seam_create, device, 24, 8);
AT(seam_create, cfg, 32, 8);
AT(seam_create, model, 40, 8);
AT(seam_create, target, 48, 8);

SIZE(seam_plane, 24);
AT(seam_plane, name, 0, 16);
AT(seam_plane, bytes_per_token, 16, 4);
AT(seam_plane, flags, 20, 4);

SIZE(seam_needs, 168);
AT(seam_needs, size, 0, 4);
AT(seam_needs, flags, 4, 4);
AT(seam_needs, capture, 8, 4);
AT(seam_needs, aux_streams, 12, 4);
AT(seam_needs, ws_bytes, 16, 8);
AT(seam_needs, keep_bytes, 24, 8);
AT(seam_needs, pinned_bytes, 32, 8);
AT(seam_needs, layout_id, 40, 8);
AT(seam_needs, state_bytes, 48, 8);
AT(seam_needs, state_copies, 56, 4);
AT(seam_needs, page_multiple, 60, 4);
AT(seam_needs, n_layers, 64, 4);
AT(seam_needs, n_planes, 68, 4);
AT(seam_needs, plane, 72, 96);

SIZE(seam_grant, 112);
AT(seam_grant, size, 0, 4);
AT(seam_grant, page_tokens, 4, 4);
AT(seam_grant, n_pages, 8, 4);
AT(seam_grant, n_state_rows, 12, 4);
AT(seam_grant, plane, 16, 32);
AT(seam_grant, page_stride, 48, 32);
AT(seam_grant, state, 80, 8);
AT(seam_grant, state_stride, 88, 8);
AT(seam_grant, keep, 96, 8);
AT(seam_grant, pinned, 104, 8);

SIZE(seam_lent, 40);
AT(seam_lent, size, 0, 4);
AT(seam_lent, layer, 4, 4);
AT(seam_lent, table, 8, 8);
AT(seam_lent, self, 16, 8);
AT(seam_lent, needs, 24, 8);
AT(seam_lent, grant, 32, 8);

SIZE(seam_exec, 72);
AT(seam_exec, size, 0, 4);
AT(seam_exec, flags, 4, 4);
AT(seam_exec, device, 8, 4);
AT(seam_exec, n_aux, 12, 4);
AT(seam_exec, stream, 16, 8);
AT(seam_exec, aux, 24, 8);
AT(seam_exec, ws, 32, 8);
AT(seam_exec, ws_bytes, 40, 8);
AT(seam_exec, ops, 48, 8);
AT(seam_exec, ops_self, 56, 8);
AT(seam_exec, err, 64, 8);

SIZE(seam_step, 104);
AT(seam_step, size, 0, 4);
AT(seam_step, flags, 4, 4);
AT(seam_step, n_seqs, 8, 4);
AT(seam_step, n_tokens, 12, 4);
AT(seam_step, max_q, 16, 4);
AT(seam_step, max_kv, 20, 4);
AT(seam_step, max_pages, 24, 4);
AT(seam_step, reserved, 28, 4);
AT(seam_step, q_start, 32, 8);
AT(seam_step, kv_len, 40, 8);
AT(seam_step, pos, 48, 8);
AT(seam_step, slot, 56, 8);
AT(seam_step, page_table, 64, 8);
AT(seam_step, state_row, 72, 8);
AT(seam_step, n_accept, 80, 8);
AT(seam_step, host_q_start, 88, 8);
AT(seam_step, host_kv_len, 96, 8);

SIZE(seam_block_args, 240);
AT(seam_block_args, size, 0, 4);
AT(seam_block_args, layer, 4, 4);
AT(seam_block_args, step, 8, 8);
AT(seam_block_args, x, 16, 112);
AT(seam_block_args, y, 128, 112);

SIZE(seam_block, 32);
AT(seam_block, size, 0, 4);
AT(seam_block, reserved, 4, 4);
AT(seam_block, begin, 8, 8);
AT(seam_block, forward, 16, 8);
AT(seam_block, commit, 24, 8);

SIZE(seam_spec_info, 80);
AT(seam_spec_info, size, 0, 4);
AT(seam_spec_info, max_draft, 4, 4);
AT(seam_spec_info, q_width, 8, 4);
AT(seam_spec_info, n_taps, 12, 4);
AT(seam_spec_info, tap, 16, 64);

SIZE(seam_spec_args, 216);
AT(seam_spec_args, size, 0, 4);
AT(seam_spec_args, want, 4, 4);
AT(seam_spec_args, step, 8, 8);
AT(seam_spec_args, taps, 16, 112);
AT(seam_spec_args, token, 128, 8);
AT(seam_spec_args, kept, 136, 8);
AT(seam_spec_args, next, 144, 8);
AT(seam_spec_args, temperature, 152, 8);
AT(seam_spec_args, seed, 160, 8);
AT(seam_spec_args, counter, 168, 8);
AT(seam_spec_args, draft, 176, 8);
AT(seam_spec_args, n_draft, 184, 8);
AT(seam_spec_args, conf, 192, 8);
AT(seam_spec_args, q_id, 200, 8);
AT(seam_spec_args, q, 208, 8);

SIZE(seam_spec, 24);
AT(seam_spec, size, 0, 4);
AT(seam_spec, reserved, 4, 4);
AT(seam_spec, info, 8, 8);
AT(seam_spec, draft, 16, 8);

SIZE(seam_sink, 16);
AT(seam_sink, ctx, 0, 8);
AT(seam_sink, event, 8, 8);

SIZE(seam_parse_opts, 40);
AT(seam_parse_opts, size, 0, 4);
AT(seam_parse_opts, flags, 4, 4);
AT(seam_parse_opts, tools, 8, 16);
AT(seam_parse_opts, prompt_tail, 24, 16);

SIZE(seam_parser, 48);
AT(seam_parser, size, 0, 4);
AT(seam_parser, reserved, 4, 4);
AT(seam_parser, render, 8, 8);
AT(seam_parser, open, 16, 8);
AT(seam_parser, feed, 24, 8);
AT(seam_parser, finish, 32, 8);
AT(seam_parser, close, 40, 8);

SIZE(seam_gemm, 456);
AT(seam_gemm, size, 0, 4);
AT(seam_gemm, accumulate, 4, 4);
AT(seam_gemm, x, 8, 112);
AT(seam_gemm, w, 120, 112);
AT(seam_gemm, bias, 232, 112);
AT(seam_gemm, y, 344, 112);

SIZE(seam_residual, 1032);
AT(seam_residual, size, 0, 4);
AT(seam_residual, partial, 4, 4);
AT(seam_residual, n_streams, 8, 4);
AT(seam_residual, sinkhorn, 12, 4);
AT(seam_residual, eps_norm, 16, 4);
AT(seam_residual, eps_mix, 20, 4);
AT(seam_residual, y, 24, 112);
AT(seam_residual, streams, 136, 112);
AT(seam_residual, mix, 248, 112);
AT(seam_residual, fn, 360, 112);
AT(seam_residual, base, 472, 112);
AT(seam_residual, scale, 584, 112);
AT(seam_residual, w, 696, 112);
AT(seam_residual, x, 808, 112);
AT(seam_residual, mean, 920, 112);

SIZE(seam_filter, 96);
AT(seam_filter, temperature, 0, 8);
AT(seam_filter, top_p, 8, 8);
AT(seam_filter, min_p, 16, 8);
AT(seam_filter, top_k, 24, 8);
AT(seam_filter, seed, 32, 8);
AT(seam_filter, counter, 40, 8);
AT(seam_filter, bias_start, 48, 8);
AT(seam_filter, bias_id, 56, 8);
AT(seam_filter, bias_div, 64, 8);
AT(seam_filter, bias_add, 72, 8);
AT(seam_filter, mask, 80, 8);
AT(seam_filter, mask_row, 88, 8);

SIZE(seam_sample, 256);
AT(seam_sample, size, 0, 4);
AT(seam_sample, n, 4, 4);
AT(seam_sample, logits, 8, 112);
AT(seam_sample, filter, 120, 96);
AT(seam_sample, n_top, 216, 4);
AT(seam_sample, reserved, 220, 4);
AT(seam_sample, token, 224, 8);
AT(seam_sample, logprob, 232, 8);
AT(seam_sample, top_id, 240, 8);
AT(seam_sample, top_logprob, 248, 8);

SIZE(seam_verify, 272);
AT(seam_verify, size, 0, 4);
AT(seam_verify, n_seqs, 4, 4);
AT(seam_verify, window, 8, 4);
AT(seam_verify, q_width, 12, 4);
AT(seam_verify, logits, 16, 112);
AT(seam_verify, q_id, 128, 8);
AT(seam_verify, q, 136, 8);
AT(seam_verify, draft, 144, 8);
AT(seam_verify, n_draft, 152, 8);
AT(seam_verify, filter, 160, 96);
AT(seam_verify, kept, 256, 8);
AT(seam_verify, next, 264, 8);

SIZE(seam_ops, 80);
AT(seam_ops, size, 0, 4);
AT(seam_ops, reserved, 4, 4);
AT(seam_ops, gemm, 8, 8);
AT(seam_ops, embed, 16, 8);
AT(seam_ops, residual, 24, 8);
AT(seam_ops, norm, 32, 8);
AT(seam_ops, glu, 40, 8);
AT(seam_ops, gather, 48, 8);
AT(seam_ops, sum, 56, 8);
AT(seam_ops, sample, 64, 8);
AT(seam_ops, verify, 72, 8);

SIZE(seam_backend, 160);
AT(seam_backend, size, 0, 4);
AT(seam_backend, reserved, 4, 4);
AT(seam_backend, ops, 8, 8);
AT(seam_backend, device, 16, 8);
AT(seam_backend, link, 24, 8);
AT(seam_backend, alloc, 32, 8);
AT(seam_backend, free, 40, 8);
AT(seam_backend, stream_new, 48, 8);
AT(seam_backend, stream_free, 56, 8);
AT(seam_backend, event_new, 64, 8);
AT(seam_backend, event_free, 72, 8);
AT(seam_backend, graph_free, 80, 8);
AT(seam_backend, stream_wait, 88, 8);
AT(seam_backend, copy, 96, 8);
AT(seam_backend, fill, 104, 8);
AT(seam_backend, event_record, 112, 8);
AT(seam_backend, event_join, 120, 8);
AT(seam_backend, capture_begin, 128, 8);
AT(seam_backend, capture_end, 136, 8);
AT(seam_backend, graph_launch, 144, 8);
AT(seam_backend, event_done, 152, 8);

SIZE(seam_trace, 16);
AT(seam_trace, size, 0, 4);
AT(seam_trace, reserved, 4, 4);
AT(seam_trace, set, 8, 8);

SIZE(seam_call_grammar, 16);
AT(seam_call_grammar, size, 0, 4);
AT(seam_call_grammar, reserved, 4, 4);
AT(seam_call_grammar, write, 8, 8);
IS(SEAM_CALLS_ONE, 1);
IS(SEAM_CALLS_MUST, 2);
IS(SEAM_CALLS_THINK, 4);

SIZE(seam_ident, 512);
AT(seam_ident, magic, 0, 8);
AT(seam_ident, abi_major, 8, 2);
AT(seam_ident, abi_minor, 10, 2);
AT(seam_ident, abi_need, 12, 2);
AT(seam_ident, kind, 14, 2);
AT(seam_ident, plugin_size, 16, 4);
AT(seam_ident, table_size, 20, 4);
AT(seam_ident, flags, 24, 4);
AT(seam_ident, reserved0, 28, 4);
AT(seam_ident, name, 32, 32);
AT(seam_ident, version, 64, 32);
AT(seam_ident, build, 96, 96);
AT(seam_ident, cpu, 192, 96);
AT(seam_ident, gpu, 288, 128);
AT(seam_ident, reserved1, 416, 96);

SIZE(seam_plugin, 584);
AT(seam_plugin, ident, 0, 512);
AT(seam_plugin, table, 512, 8);
AT(seam_plugin, init, 520, 8);
AT(seam_plugin, fini, 528, 8);
AT(seam_plugin, create, 536, 8);
AT(seam_plugin, needs, 544, 8);
AT(seam_plugin, attach, 552, 8);
AT(seam_plugin, quiesce, 560, 8);
AT(seam_plugin, destroy, 568, 8);
AT(seam_plugin, extension, 576, 8);

IS(SEAM_OK, 0);
IS(SEAM_EINVAL, -1);
IS(SEAM_ENOTSUP, -2);
IS(SEAM_ENOENT, -3);
IS(SEAM_ENOMEM, -4);
IS(SEAM_EDATA, -5);
IS(SEAM_EDEVICE, -6);
IS(SEAM_ESTATE, -7);
IS(SEAM_F32, 1);
IS(SEAM_F16, 2);
IS(SEAM_BF16, 3);
IS(SEAM_F8E4M3, 4);
IS(SEAM_F8E5M2, 5);
IS(SEAM_F8E4M3FNUZ, 6);
IS(SEAM_F8E5M2FNUZ, 7);
IS(SEAM_I8, 8);
IS(SEAM_U8, 9);
IS(SEAM_I32, 10);
IS(SEAM_I64, 11);
IS(SEAM_I4, 12);
IS(SEAM_F4E2M1, 13);
IS(SEAM_E8M0, 14);
IS(SEAM_BLOCK_FIRST, 64);
IS(SEAM_Q_NONE, 0);
IS(SEAM_Q_GROUP, 1);
IS(SEAM_Q_BLOCK, 2);
IS(SEAM_Q_GPTQ, 3);
IS(SEAM_LOG_DEBUG, 1);
IS(SEAM_LOG_INFO, 2);
IS(SEAM_LOG_WARN, 3);
IS(SEAM_LOG_ERROR, 4);
IS(SEAM_MEM_HOST, 1);
IS(SEAM_MEM_PINNED, 2);
IS(SEAM_MEM_DEVICE, 3);
IS(SEAM_CFG_BOOL, 1);
IS(SEAM_CFG_I64, 2);
IS(SEAM_CFG_F64, 3);
IS(SEAM_CFG_STR, 4);
IS(SEAM_CFG_LEN, 5);
IS(SEAM_PLANE_APPEND, 1);
IS(SEAM_CAP_BEGIN, 1);
IS(SEAM_CAP_FORWARD, 2);
IS(SEAM_CAP_COMMIT, 4);
IS(SEAM_CAP_DRAFT, 8);
IS(SEAM_NEEDS_ROW_INVARIANT, 1);
IS(SEAM_EXEC_CAPTURE, 1);
IS(SEAM_EXEC_WARMUP, 2);
IS(SEAM_STEP_DECODE, 1);
IS(SEAM_EV_TEXT, 1);
IS(SEAM_EV_REASONING, 2);
IS(SEAM_EV_TOOL_NAME, 3);
IS(SEAM_EV_TOOL_ARGS, 4);
IS(SEAM_EV_TOOL_END, 5);
IS(SEAM_EV_SPECIAL, 6);
IS(SEAM_PARSE_NO_CALLS, 1);
IS(SEAM_PARSE_ONE_CALL, 2);
IS(SEAM_PARSE_FORM, 4);
IS(SEAM_END_STOP, 1);
IS(SEAM_END_CUT, 2);
IS(SEAM_KIND_BACKEND, 1);
IS(SEAM_KIND_ATTENTION, 2);
IS(SEAM_KIND_MOE, 3);
IS(SEAM_KIND_SPEC, 4);
IS(SEAM_KIND_PARSER, 5);
IS(SEAM_PLUGIN_UNLOADABLE, 1);
IS(SEAM_MAX_RANK, 4);
IS(SEAM_MAX_PLANES, 4);
IS(SEAM_MAX_TAPS, 16);
IS(SEAM_ABI_MAJOR, 0);
