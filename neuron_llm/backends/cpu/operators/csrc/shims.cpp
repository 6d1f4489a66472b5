// The operators as compiled graphs call them: tensors are handles of AOTInductor's C interface.

#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <vector>

#include "message.h"
#include "operators.h"

namespace neuron_llm {
namespace {

int32_t dtype_of(int32_t torch_dtype) {
  if (torch_dtype == aoti_torch_dtype_float32()) return kFloat32;
  if (torch_dtype == aoti_torch_dtype_bfloat16()) return kBFloat16;
  if (torch_dtype == aoti_torch_dtype_float16()) return kFloat16;
  if (torch_dtype == aoti_torch_dtype_int32()) return kInt32;
  return kOtherDtype;
}

// Tensors of one call, borrowed from their handles. Failures are remembered, and give a tensor
// without dimensions, which no operator accepts.
class Handles {
 public:
  Tensor read(AtenTensorHandle handle) {
    Tensor tensor = {};
    int64_t *sizes = nullptr, *strides = nullptr;
    int32_t dtype = 0;
    note(aoti_torch_get_data_ptr(handle, &tensor.data));
    note(aoti_torch_get_sizes(handle, &sizes));
    note(aoti_torch_get_strides(handle, &strides));
    note(aoti_torch_get_dim(handle, &tensor.num_dims));
    note(aoti_torch_get_dtype(handle, &dtype));
    tensor.sizes = sizes;
    tensor.strides = strides;
    tensor.dtype = dtype_of(dtype);
    return tensor;
  }

  Tensor read_optional(const AtenTensorHandle* handle) {
    return handle != nullptr ? read(*handle) : Tensor{};
  }

  // A new contiguous tensor of these sizes.
  Tensor create(AtenTensorHandle like, int64_t num_dims, const int64_t* sizes,
                AtenTensorHandle* created) {
    int64_t strides[kMaxDims];
    int64_t stride = 1;
    for (int64_t dim = num_dims - 1; dim >= 0; --dim) {
      strides[dim] = stride;
      stride *= sizes[dim];
    }
    int32_t dtype = 0;
    note(aoti_torch_get_dtype(like, &dtype));
    note(aoti_torch_empty_strided(num_dims, sizes, strides, dtype, aoti_torch_device_type_cpu(), 0,
                                  created));
    return has_failed_ ? Tensor{} : read(*created);
  }

  // Gives the caller the output of an operator that returned `fault`, or an error.
  AOTITorchError finish(const char* fault, AtenTensorHandle output, AtenTensorHandle* result) {
    if (has_failed_) fault = message("a tensor cannot be read or made");
    if (fault == nullptr) {
      *result = output;
      return AOTI_TORCH_SUCCESS;
    }
    if (output != nullptr) aoti_torch_delete_tensor_object(output);
    return AOTI_TORCH_FAILURE;
  }

 private:
  static constexpr int kMaxDims = 64;  // torch's own limit

  void note(AOTITorchError error) { has_failed_ |= error != AOTI_TORCH_SUCCESS; }

  bool has_failed_ = false;
};

AOTITorchError run_linear(const char* (*linear)(const Linear*), AtenTensorHandle input,
                          AtenTensorHandle weight, AtenTensorHandle* bias, int64_t out_features,
                          AtenTensorHandle* result) {
  Handles handles;
  Linear call = {};
  call.input = handles.read(input);
  call.weight = handles.read(weight);
  call.bias = handles.read_optional(bias);
  std::vector<int64_t> sizes(call.input.sizes, call.input.sizes + call.input.num_dims);
  if (!sizes.empty()) sizes.back() = out_features;
  AtenTensorHandle output = nullptr;
  call.output = handles.create(input, call.input.num_dims, sizes.data(), &output);
  return handles.finish(linear(&call), output, result);
}

}  // namespace
}  // namespace neuron_llm

NEURON_LLM_EXPORT AOTITorchError aoti_torch_cpu_paged_attention(
    AtenTensorHandle query, AtenTensorHandle key, AtenTensorHandle value,
    AtenTensorHandle key_cache, AtenTensorHandle value_cache, AtenTensorHandle positions,
    AtenTensorHandle slot_mapping, AtenTensorHandle block_tables, AtenTensorHandle context_lens,
    double scaling, double softcap, int64_t sliding_window, AtenTensorHandle* sinks,
    AtenTensorHandle* ret0) {
  neuron_llm::Handles handles;
  neuron_llm::PagedAttention call = {};
  call.query = handles.read(query);
  call.key = handles.read(key);
  call.value = handles.read(value);
  call.key_cache = handles.read(key_cache);
  call.value_cache = handles.read(value_cache);
  call.positions = handles.read(positions);
  call.slot_mapping = handles.read(slot_mapping);
  call.block_tables = handles.read(block_tables);
  call.context_lens = handles.read(context_lens);
  call.sinks = handles.read_optional(sinks);
  call.scaling = scaling;
  call.softcap = softcap;
  call.sliding_window = sliding_window;
  AtenTensorHandle output = nullptr;
  call.output = handles.create(query, call.query.num_dims, call.query.sizes, &output);
  return handles.finish(neuron_llm_paged_attention(&call), output, ret0);
}

NEURON_LLM_EXPORT AOTITorchError aoti_torch_cpu_linear(AtenTensorHandle input,
                                                       AtenTensorHandle weight,
                                                       AtenTensorHandle* bias,
                                                       AtenTensorHandle* ret0) {
  // A weight without dimensions has no outputs, which the operator refuses.
  int64_t num_dims = 0, out_features = 0;
  aoti_torch_get_dim(weight, &num_dims);
  if (num_dims > 0) aoti_torch_get_size(weight, 0, &out_features);
  return neuron_llm::run_linear(neuron_llm_linear, input, weight, bias, out_features, ret0);
}

NEURON_LLM_EXPORT AOTITorchError aoti_torch_cpu_linear_packed(AtenTensorHandle input,
                                                              AtenTensorHandle weight,
                                                              AtenTensorHandle* bias,
                                                              int64_t out_features,
                                                              AtenTensorHandle* ret0) {
  return neuron_llm::run_linear(neuron_llm_linear_packed, input, weight, bias, out_features, ret0);
}

NEURON_LLM_EXPORT const char* neuron_llm_last_error() { return neuron_llm::last_message; }
