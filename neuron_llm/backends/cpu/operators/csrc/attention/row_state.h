// What a query has made of the keys that it has seen: the online softmax.
//
// Scores are in units of ln(2) throughout, so that weights are powers of 2.
#pragma once

#include <algorithm>
#include <cmath>

#include "operand.h"

namespace neuron_llm {

constexpr float kNothing = -INFINITY;
constexpr float kLog2E = 1.44269504f;

// The greatest score, the sum of 2^(score - greatest), and the values summed with the same weights.
struct RowState {
  float* floats;

  float& maximum() const { return floats[0]; }
  float& total() const { return floats[1]; }
  float* sums() const { return floats + kLanes; }
};

struct RowStates {
  float* floats;
  int64_t padded_dim;

  static int64_t num_floats(int64_t num_rows, int64_t head_dim) {
    return num_rows * (kLanes + padded(head_dim));
  }
  int64_t stride() const { return kLanes + padded_dim; }
  RowState row(int64_t index) const { return {floats + index * stride()}; }
};

// What scores are taken relative to. Where all are -inf, so are their differences to it.
inline float reference_score(float maximum) { return maximum == kNothing ? 0.0f : maximum; }

inline float exp2_nonpositive(float x) { return exp2_nonpositive(broadcast(x))[0]; }

inline void clear(RowState state, int64_t padded_dim) {
  state.maximum() = kNothing;
  state.total() = 0.0f;
  std::fill_n(state.sums(), padded_dim, 0.0f);
}

// Adds keys that come later. Adding to nothing, or adding nothing, changes no bit.
inline void merge(RowState state, RowState later, int64_t padded_dim) {
  const float maximum = std::max(state.maximum(), later.maximum());
  const float reference = reference_score(maximum);
  const float old_weight = exp2_nonpositive(state.maximum() - reference);
  const float new_weight = exp2_nonpositive(later.maximum() - reference);
  state.maximum() = maximum;
  state.total() = state.total() * old_weight + later.total() * new_weight;
  for (int64_t d = 0; d < padded_dim; d += kLanes) {
    const Floats old_sum = load(state.sums() + d) * old_weight;
    store(state.sums() + d,
          multiply_add(load(later.sums() + d), broadcast(new_weight), old_sum));
  }
}

// Writes the weighted mean of the values. A sink takes its share of the weight and gives nothing.
template <typename Element>
inline void finish(RowState state, const float* sink, int64_t head_dim, Element* output) {
  float weight = 1.0f;
  float total = state.total();
  if (sink != nullptr) {
    const float reference = reference_score(std::max(state.maximum(), *sink));
    weight = exp2_nonpositive(state.maximum() - reference);
    total = total * weight + exp2_nonpositive(*sink - reference);
  }
  const Floats factor = broadcast(weight / total);
  for (int64_t d = 0; d < head_dim; d += kLanes) {
    // Keys of weight 0 may or may not have been added to a sum of -0: adding 0 makes it +0.
    const Floats mean = load(state.sums() + d) * factor + 0.0f;
    if (d + kLanes <= head_dim) {
      store(output + d, mean);
    } else {
      store_first(output + d, mean, head_dim - d);
    }
  }
}

}  // namespace neuron_llm
