// What the two linear operators share.
#pragma once

#include <algorithm>

#include "operators.h"

namespace neuron_llm {

// Fewer multiplications than this are done before another thread would have woken up.
constexpr int64_t kMinParallelProducts = 1 << 17;

// A call's tensors with their types. Everything in it has been checked.
template <typename Element>
struct LinearLayer {
  explicit LinearLayer(const Linear& call)
      : input(static_cast<const Element*>(call.input.data)),
        weight(static_cast<const Element*>(call.weight.data)),
        bias(static_cast<const Element*>(call.bias.data)),
        output(static_cast<Element*>(call.output.data)),
        in_features(call.input.sizes[call.input.num_dims - 1]),
        out_features(call.output.sizes[call.output.num_dims - 1]) {
    for (int64_t dim = 0; dim < call.input.num_dims - 1; ++dim) num_rows *= call.input.sizes[dim];
  }

  bool is_worth_threads() const {
    return num_rows * in_features * out_features >= kMinParallelProducts;
  }

  const Element* input;
  const Element* weight;
  const Element* bias;  // NULL if there is none
  Element* output;
  int64_t num_rows = 1;
  int64_t in_features;
  int64_t out_features;
};

inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Where share `index` of `num_shares` begins, when all are as equal as they can be.
inline int64_t share_begin(int64_t total, int64_t index, int64_t num_shares) {
  return total * index / num_shares;
}

}  // namespace neuron_llm
