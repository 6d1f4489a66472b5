// What `paged_attention` demands of a call, found out before anything is touched.
#pragma once

#include "checks.h"
#include "panels.h"

namespace neuron_llm {

inline const char* find_dtype_fault(const PagedAttention& call) {
  const int32_t dtype = call.query.dtype;
  return check_is_floating({"query", call.query})                  ?:
         check_dtype({"key", call.key}, dtype)                     ?:
         check_dtype({"value", call.value}, dtype)                 ?:
         check_dtype({"key_cache", call.key_cache}, dtype)         ?:
         check_dtype({"value_cache", call.value_cache}, dtype)     ?:
         check_dtype({"output", call.output}, dtype)               ?:
         check_dtype({"positions", call.positions}, kInt32)        ?:
         check_dtype({"slot_mapping", call.slot_mapping}, kInt32)  ?:
         check_dtype({"block_tables", call.block_tables}, kInt32)  ?:
         check_dtype({"context_lens", call.context_lens}, kInt32)  ?:
         (call.sinks.data ? check_is_floating({"sinks", call.sinks}) : nullptr);
}

inline const char* find_shape_fault(const PagedAttention& call) {
  if (const char* fault = check_num_dims({"query", call.query}, 3)         ?:
                          check_num_dims({"key_cache", call.key_cache}, 4) ?:
                          check_num_dims({"block_tables", call.block_tables}, 2)) {
    return fault;
  }
  const int64_t num_tokens = call.query.sizes[0], num_heads = call.query.sizes[1];
  const int64_t num_blocks = call.key_cache.sizes[0], block_size = call.key_cache.sizes[1];
  const int64_t num_kv_heads = call.key_cache.sizes[2], head_dim = call.key_cache.sizes[3];
  const int64_t num_seqs = call.block_tables.sizes[0];
  if (const char* fault =
          check_is_not_empty({"query", call.query})                                         ?:
          check_is_not_empty({"key_cache", call.key_cache})                                 ?:
          check_is_not_empty({"block_tables", call.block_tables})                           ?:
          check_sizes({"query", call.query}, {num_tokens, num_heads, head_dim})             ?:
          check_sizes({"key", call.key}, {num_tokens, num_kv_heads, head_dim})              ?:
          check_sizes({"value", call.value}, {num_tokens, num_kv_heads, head_dim})          ?:
          check_sizes({"value_cache", call.value_cache},
                      {num_blocks, block_size, num_kv_heads, head_dim})                     ?:
          check_sizes({"output", call.output}, {num_tokens, num_heads, head_dim})           ?:
          check_sizes({"positions", call.positions}, {num_tokens})                          ?:
          check_sizes({"slot_mapping", call.slot_mapping}, {num_tokens})                    ?:
          check_sizes({"context_lens", call.context_lens}, {num_seqs})                      ?:
          (call.sinks.data ? check_sizes({"sinks", call.sinks}, {num_heads}) : nullptr)) {
    return fault;
  }
  if (num_seqs != num_tokens && num_seqs != 1) {
    return message("`block_tables` has %ld rows, but must have 1 or one for each of %ld tokens",
                   long(num_seqs), long(num_tokens));
  }
  if (num_heads % num_kv_heads != 0) {
    return message("`query` has %ld heads, but must have a multiple of the %ld of `key_cache`",
                   long(num_heads), long(num_kv_heads));
  }
  if (head_dim % 8 != 0 || head_dim > kMaxHeadDim) {
    return message("`query` has head_dim %ld, but must have a multiple of 8 up to %d",
                   long(head_dim), kMaxHeadDim);
  }
  return nullptr;
}

inline const char* find_stride_fault(const PagedAttention& call) {
  return check_is_contiguous({"query", call.query}, 2)                ?:
         check_is_contiguous({"key", call.key}, 2)                    ?:
         check_is_contiguous({"value", call.value}, 2)                ?:
         check_is_contiguous({"key_cache", call.key_cache})           ?:
         check_is_contiguous({"value_cache", call.value_cache})       ?:
         check_is_contiguous({"output", call.output})                 ?:
         check_is_contiguous({"positions", call.positions})           ?:
         check_is_contiguous({"slot_mapping", call.slot_mapping})     ?:
         check_is_contiguous({"block_tables", call.block_tables})     ?:
         check_is_contiguous({"context_lens", call.context_lens});
}

// A token that is no padding writes into the cache, and lies in its sequence's context.
inline const char* find_token_fault(const PagedAttention& call) {
  const int32_t* slots = static_cast<const int32_t*>(call.slot_mapping.data);
  const int32_t* positions = static_cast<const int32_t*>(call.positions.data);
  const int32_t* context_lens = static_cast<const int32_t*>(call.context_lens.data);
  const int64_t num_slots = call.key_cache.sizes[0] * call.key_cache.sizes[1];
  const bool is_decode = call.block_tables.sizes[0] == call.query.sizes[0];
  for (long token = 0; token < call.query.sizes[0]; ++token) {
    if (slots[token] < -1 || slots[token] >= num_slots) {
      return message("`slot_mapping[%ld]` is %d, but the cache has slots 0 to %ld", token,
                     slots[token], long(num_slots - 1));
    }
    const long sequence = is_decode ? token : 0;
    const int32_t context_len = context_lens[sequence];
    if (slots[token] < 0 || context_len == 0) continue;
    if (positions[token] < 0 || positions[token] >= context_len) {
      return message("`positions[%ld]` is %d, but `context_lens[%ld]` is %d", token,
                     positions[token], sequence, context_len);
    }
  }
  return nullptr;
}

// The blocks of the live context, and nothing behind it, stand in the cache.
inline const char* find_context_fault(const PagedAttention& call) {
  const int32_t* context_lens = static_cast<const int32_t*>(call.context_lens.data);
  const int64_t num_blocks = call.key_cache.sizes[0], block_size = call.key_cache.sizes[1];
  const int64_t max_blocks = call.block_tables.sizes[1];
  for (long sequence = 0; sequence < call.block_tables.sizes[0]; ++sequence) {
    const int32_t context_len = context_lens[sequence];
    if (context_len < 0 || context_len > max_blocks * block_size) {
      return message("`context_lens[%ld]` is %d, but a row of `block_tables` holds 0 to %ld tokens",
                     sequence, context_len, long(max_blocks * block_size));
    }
    const int32_t* blocks =
        static_cast<const int32_t*>(call.block_tables.data) + sequence * max_blocks;
    for (long i = 0; i * block_size < context_len; ++i) {
      if (blocks[i] < 0 || blocks[i] >= num_blocks) {
        return message("`block_tables[%ld, %ld]` is %d, but the cache has blocks 0 to %ld",
                       sequence, i, blocks[i], long(num_blocks - 1));
      }
    }
  }
  return nullptr;
}

inline const char* find_option_fault(const PagedAttention& call) {
  if (call.sliding_window < 0) {
    return message("`sliding_window` is %ld, but must not be negative", long(call.sliding_window));
  }
  if (!(call.softcap >= 0)) {
    return message("`softcap` is %g, but must not be negative", call.softcap);
  }
  return nullptr;
}

inline const char* find_fault(const PagedAttention& call) {
  return find_dtype_fault(call)   ?:
         find_shape_fault(call)   ?:
         find_stride_fault(call)  ?:
         find_option_fault(call)  ?:
         find_context_fault(call) ?:
         find_token_fault(call);
}

}  // namespace neuron_llm
