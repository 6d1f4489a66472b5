// What the linear operators demand of a call, found out before anything is touched.
#pragma once

#include "checks.h"

namespace neuron_llm {

inline const char* find_linear_dtype_fault(const Linear& call) {
  const int32_t dtype = call.input.dtype;
  return check_is_floating({"input", call.input})       ?:
         check_dtype({"weight", call.weight}, dtype)    ?:
         check_dtype({"output", call.output}, dtype)    ?:
         (call.bias.data ? check_dtype({"bias", call.bias}, dtype) : nullptr);
}

// The output has the input's shape but for the last dimension, and nothing is empty.
inline const char* find_linear_shape_fault(const Linear& call) {
  if (call.input.num_dims == 0) return message("`input` has no dimensions");
  const int64_t last = call.input.num_dims - 1;
  if (const char* fault = check_is_not_empty({"input", call.input})             ?:
                          check_num_dims({"output", call.output}, last + 1)     ?:
                          check_is_not_empty({"output", call.output})) {
    return fault;
  }
  if (!std::equal(call.input.sizes, call.input.sizes + last, call.output.sizes)) {
    return message("`output` has shape %s, but `input` has %s",
                   sizes_text(call.output.sizes, last + 1).c_str(),
                   sizes_text(call.input.sizes, last + 1).c_str());
  }
  return call.bias.data ? check_sizes({"bias", call.bias}, {call.output.sizes[last]}) : nullptr;
}

inline const char* find_linear_stride_fault(const Linear& call) {
  return check_is_contiguous({"input", call.input})     ?:
         check_is_contiguous({"weight", call.weight})   ?:
         check_is_contiguous({"output", call.output})   ?:
         (call.bias.data ? check_is_contiguous({"bias", call.bias}) : nullptr);
}

// All but the shape of the weight, in which the operators differ.
inline const char* find_linear_fault(const Linear& call) {
  return find_linear_dtype_fault(call) ?:
         find_linear_shape_fault(call) ?:
         find_linear_stride_fault(call);
}

}  // namespace neuron_llm
