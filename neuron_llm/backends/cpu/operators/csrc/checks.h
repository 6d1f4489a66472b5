// What operators demand of their tensors.
//
// Each check returns NULL or a message that names the tensor; `a ?: b` is the first message of two.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>

#include "message.h"
#include "operators.h"

namespace neuron_llm {

// A tensor of a call under the name that messages use.
struct NamedTensor {
  const char* name;
  const Tensor& tensor;
};

inline const char* dtype_name(int32_t dtype) {
  switch (dtype) {
    case kFloat32: return "float32";
    case kBFloat16: return "bfloat16";
    case kFloat16: return "float16";
    case kInt32: return "int32";
    default: return "of another dtype";
  }
}

inline std::string sizes_text(const int64_t* sizes, int64_t num_dims) {
  std::string text = "[";
  for (int64_t dim = 0; dim < num_dims; ++dim) {
    text += (dim > 0 ? ", " : "") + std::to_string(sizes[dim]);
  }
  return text + "]";
}

inline const char* check_dtype(NamedTensor named, int32_t dtype) {
  if (named.tensor.dtype == dtype) return nullptr;
  return message("`%s` is %s, but must be %s", named.name, dtype_name(named.tensor.dtype),
                 dtype_name(dtype));
}

inline const char* check_is_floating(NamedTensor named) {
  const int32_t dtype = named.tensor.dtype;
  if (dtype == kFloat32 || dtype == kBFloat16 || dtype == kFloat16) return nullptr;
  return message("`%s` is %s, but must be float32, bfloat16 or float16", named.name,
                 dtype_name(dtype));
}

inline const char* check_num_dims(NamedTensor named, int64_t num_dims) {
  if (named.tensor.num_dims == num_dims) return nullptr;
  return message("`%s` has %ld dimensions, but must have %ld", named.name,
                 long(named.tensor.num_dims), long(num_dims));
}

inline const char* check_sizes(NamedTensor named, std::initializer_list<int64_t> sizes) {
  const Tensor& tensor = named.tensor;
  const int64_t num_dims = int64_t(sizes.size());
  if (tensor.num_dims == num_dims && std::equal(sizes.begin(), sizes.end(), tensor.sizes)) {
    return nullptr;
  }
  return message("`%s` has shape %s, but must have %s", named.name,
                 sizes_text(tensor.sizes, tensor.num_dims).c_str(),
                 sizes_text(sizes.begin(), num_dims).c_str());
}

inline const char* check_is_not_empty(NamedTensor named) {
  const Tensor& tensor = named.tensor;
  if (std::find(tensor.sizes, tensor.sizes + tensor.num_dims, 0) ==
      tensor.sizes + tensor.num_dims) {
    return nullptr;
  }
  return message("`%s` is empty: its shape is %s", named.name,
                 sizes_text(tensor.sizes, tensor.num_dims).c_str());
}

// Whether elements follow each other from dimension `first_dim` on.
inline const char* check_is_contiguous(NamedTensor named, int64_t first_dim = 0) {
  const Tensor& tensor = named.tensor;
  int64_t expected = 1;
  for (int64_t dim = tensor.num_dims - 1; dim >= first_dim; --dim) {
    if (tensor.sizes[dim] != 1 && tensor.strides[dim] != expected) {
      return message("`%s` has stride %ld in dimension %ld, but must have %ld", named.name,
                     long(tensor.strides[dim]), long(dim), long(expected));
    }
    expected *= tensor.sizes[dim];
  }
  return nullptr;
}

}  // namespace neuron_llm
