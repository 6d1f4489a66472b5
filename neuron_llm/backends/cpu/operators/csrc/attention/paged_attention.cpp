// Paged attention: write the step's keys and values, then attend over the live context.
//
// A query's scores, weights and sums are always taken key by key in the same partitions, and the
// partitions are merged in their order: neither the batch, nor the chunk, nor the threads change a
// bit of a row.

#include <omp.h>

#include "attention_plan.h"
#include "message.h"
#include "paged_attention_checks.h"

namespace neuron_llm {
namespace {

// Fewer multiplications than this are done before another thread would have woken up.
constexpr int64_t kMinParallelProducts = 1 << 18;
// Fewer tokens than this are written before threads would have waited for each other.
constexpr int64_t kMinParallelTokens = 64;

template <typename Element>
class Run {
 public:
  // `sinks` are in units of ln(2), or null.
  Run(const PagedAttention& call, const float* sinks)
      : call_(call),
        attention_(call),
        sinks_(sinks),
        plan_(plan_tasks(attention_, max_threads())) {}

  void operator()() {
    const int64_t num_tasks = plan_.tasks.size();
    const int64_t num_threads =
        plan_.num_products < kMinParallelProducts ? 1 : std::min(max_threads(), num_tasks);
    const int64_t scratch_bytes =
        whole_lines(TaskScratch<Element>::num_bytes(plan_.max_rows, attention_.head_dim));
    const Memory scratch = allocate(num_threads * scratch_bytes);
    const bool is_written = attention_.num_tokens < kMinParallelTokens;
    if (is_written) {
      for (int64_t token = 0; token < attention_.num_tokens; ++token) write_token(token);
    }
#pragma omp parallel num_threads(num_threads)
    {
      if (!is_written) {
#pragma omp for
        for (int64_t token = 0; token < attention_.num_tokens; ++token) write_token(token);
      }
      char* memory = scratch.get() + omp_get_thread_num() * scratch_bytes;
      TaskRunner<Element> runner(
          attention_, TaskScratch<Element>(memory, plan_.max_rows, attention_.head_dim));
#pragma omp for schedule(dynamic, plan_.tasks_per_turn) nowait
      for (int64_t i = 0; i < num_tasks; ++i) {
        const Task& task = plan_.tasks[i];
        const RowStates states = runner.run(task, i + 1 < num_tasks ? &task + 1 : nullptr);
        if (--plan_.num_unfinished[task.group] == 0) finish_group(task, states);
      }
    }
  }

 private:
  static int64_t max_threads() { return omp_get_max_threads(); }

  void write_token(int64_t token) const {
    if (attention_.slots[token] < 0) return;
    const int64_t head_dim = attention_.head_dim;
    const auto write = [&](const Tensor& rows, const Tensor& cache) {
      Element* target = static_cast<Element*>(cache.data) +
                        attention_.slots[token] * attention_.num_kv_heads * head_dim;
      const Element* source = static_cast<const Element*>(rows.data) + token * rows.strides[0];
      for (int64_t head = 0; head < attention_.num_kv_heads; ++head) {
        std::memcpy(target + head * head_dim, source + head * rows.strides[1],
                    head_dim * sizeof(Element));
      }
    };
    write(call_.key, call_.key_cache);
    write(call_.value, call_.value_cache);
  }

  // Writes the output of a group all of whose tasks have ended; `task`, whose results are `states`,
  // ended last.
  void finish_group(const Task& task, RowStates states) {
    const Group group = plan_.groups[task.group];
    const bool is_cut = group.end_task - group.first_task > 1;
    for (int64_t row = 0; row < task.num_tokens * attention_.group_size(); ++row) {
      const RowState state = is_cut ? merged_row(group, row) : states.row(row);
      const int64_t token = task.first_token + row / attention_.group_size();
      const int64_t head = task.kv_head * attention_.group_size() + row % attention_.group_size();
      Element* output =
          attention_.output + (token * attention_.num_heads + head) * attention_.head_dim;
      if (attention_.visible(token).is_empty()) {
        std::memset(output, 0, attention_.head_dim * sizeof(Element));
      } else {
        finish(state, sinks_ ? sinks_ + head : nullptr, attention_.head_dim, output);
      }
    }
  }

  RowState merged_row(Group group, int64_t row) const {
    const RowStates first{plan_.tasks[group.first_task].states, padded(attention_.head_dim)};
    for (int64_t i = group.first_task + 1; i < group.end_task; ++i) {
      const RowStates later{plan_.tasks[i].states, first.padded_dim};
      merge(first.row(row), later.row(row), first.padded_dim);
    }
    return first.row(row);
  }

  const PagedAttention& call_;
  const Attention<Element> attention_;
  const float* sinks_;
  Plan plan_;
};

template <typename Element>
void widen_sinks(const Tensor& sinks, std::vector<float>& widened) {
  const Element* elements = static_cast<const Element*>(sinks.data);
  for (int64_t head = 0; head < sinks.sizes[0]; ++head) {
    widened.push_back(load_first(elements + head * sinks.strides[0], 1)[0] * kLog2E);
  }
}

void attend(const PagedAttention& call) {
  std::vector<float> sinks;
  if (call.sinks.data != nullptr) {
    if (call.sinks.dtype == kFloat32) widen_sinks<float>(call.sinks, sinks);
    if (call.sinks.dtype == kBFloat16) widen_sinks<BFloat16>(call.sinks, sinks);
    if (call.sinks.dtype == kFloat16) widen_sinks<Float16>(call.sinks, sinks);
  }
  const float* sink_logits = sinks.empty() ? nullptr : sinks.data();
  if (call.query.dtype == kFloat32) Run<float>(call, sink_logits)();
  if (call.query.dtype == kBFloat16) Run<BFloat16>(call, sink_logits)();
  if (call.query.dtype == kFloat16) Run<Float16>(call, sink_logits)();
}

}  // namespace
}  // namespace neuron_llm

const char* neuron_llm_paged_attention(const neuron_llm::PagedAttention* call) {
  if (const char* fault = neuron_llm::find_fault(*call)) return fault;
  try {
    neuron_llm::attend(*call);
  } catch (const std::bad_alloc&) {
    return neuron_llm::message("paged_attention: out of memory");
  }
  return nullptr;
}
