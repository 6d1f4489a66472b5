// The C interface of the operator library.
//
// Every operator returns NULL, or a message that stays valid until the thread's next call. All
// inputs are checked before anything is written: a call that fails has changed nothing.
#pragma once

#include <cstdint>

namespace neuron_llm {

enum Dtype : int32_t { kFloat32 = 0, kBFloat16 = 1, kFloat16 = 2, kInt32 = 3, kOtherDtype = -1 };

// Sizes and strides in elements, `num_dims` of each. An optional tensor that is absent has no data.
struct Tensor {
  void* data;
  const int64_t* sizes;
  const int64_t* strides;
  int64_t num_dims;
  int32_t dtype;
};

// See `paged_attention` in registration.py for shapes and meaning.
struct PagedAttention {
  Tensor query;
  Tensor key;
  Tensor value;
  Tensor key_cache;
  Tensor value_cache;
  Tensor positions;
  Tensor slot_mapping;
  Tensor block_tables;
  Tensor context_lens;
  Tensor sinks;
  Tensor output;
  double scaling;
  double softcap;
  int64_t sliding_window;
};

// See `linear` and `linear_packed` in registration.py.
struct Linear {
  Tensor input;
  Tensor weight;
  Tensor bias;
  Tensor output;
};

}  // namespace neuron_llm

#define NEURON_LLM_EXPORT extern "C" __attribute__((visibility("default")))

NEURON_LLM_EXPORT const char* neuron_llm_paged_attention(const neuron_llm::PagedAttention* call);
NEURON_LLM_EXPORT const char* neuron_llm_linear(const neuron_llm::Linear* call);
NEURON_LLM_EXPORT const char* neuron_llm_linear_packed(const neuron_llm::Linear* call);

// What the thread's last failed operator said, whoever called it.
NEURON_LLM_EXPORT const char* neuron_llm_last_error();
