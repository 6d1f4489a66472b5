// A call of paged attention, and which keys its tokens see.
#pragma once

#include <algorithm>

#include "operators.h"
#include "panels.h"

namespace neuron_llm {

// Positions [begin, end).
struct Range {
  int64_t begin = 0;
  int64_t end = 0;

  bool is_empty() const { return begin >= end; }
  // The smallest range that holds both.
  Range united(Range other) const {
    if (is_empty()) return other;
    if (other.is_empty()) return *this;
    return {std::min(begin, other.begin), std::max(end, other.end)};
  }
  // The part in a partition, counted from its first key.
  Range in_partition(int64_t partition) const {
    const int64_t first = partition * kPartition;
    return {std::clamp<int64_t>(begin - first, 0, kPartition),
            std::clamp<int64_t>(end - first, 0, kPartition)};
  }
};

// A call's tensors with their types. Everything in it has been checked.
template <typename Element>
struct Attention {
  explicit Attention(const PagedAttention& call)
      : query(static_cast<const Element*>(call.query.data)),
        query_strides(call.query.strides),
        key_cache(static_cast<const Element*>(call.key_cache.data)),
        value_cache(static_cast<const Element*>(call.value_cache.data)),
        positions(static_cast<const int32_t*>(call.positions.data)),
        slots(static_cast<const int32_t*>(call.slot_mapping.data)),
        block_tables(static_cast<const int32_t*>(call.block_tables.data)),
        context_lens(static_cast<const int32_t*>(call.context_lens.data)),
        output(static_cast<Element*>(call.output.data)),
        num_tokens(call.query.sizes[0]),
        num_heads(call.query.sizes[1]),
        head_dim(call.query.sizes[2]),
        num_kv_heads(call.key_cache.sizes[2]),
        block_size(call.key_cache.sizes[1]),
        max_blocks(call.block_tables.sizes[1]),
        is_decode(call.block_tables.sizes[0] == num_tokens),
        sliding_window(call.sliding_window),
        scaling(static_cast<float>(call.scaling)),
        softcap(static_cast<float>(call.softcap)) {}

  // Query heads that share a KV head.
  int64_t group_size() const { return num_heads / num_kv_heads; }
  int64_t sequence_of(int64_t token) const { return is_decode ? token : 0; }
  const int32_t* block_table(int64_t token) const {
    return block_tables + sequence_of(token) * max_blocks;
  }

  // The keys that a token attends to: none if it is padding.
  Range visible(int64_t token) const {
    if (slots[token] < 0 || context_lens[sequence_of(token)] == 0) return {};
    const int64_t end = positions[token] + 1;
    return {sliding_window > 0 ? std::max<int64_t>(0, end - sliding_window) : 0, end};
  }

  const Element* query;
  const int64_t* query_strides;
  const Element* key_cache;
  const Element* value_cache;
  const int32_t* positions;
  const int32_t* slots;
  const int32_t* block_tables;
  const int32_t* context_lens;
  Element* output;
  int64_t num_tokens, num_heads, head_dim, num_kv_heads, block_size, max_blocks;
  bool is_decode;
  int64_t sliding_window;
  float scaling, softcap;
};

}  // namespace neuron_llm
