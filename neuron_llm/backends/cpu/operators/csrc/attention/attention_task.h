// Attention of some queries over some partitions of one sequence's keys, for one KV head.
#pragma once

#include "attention_call.h"
#include "row_state.h"

namespace neuron_llm {

struct Task {
  // Tokens of one sequence; their heads that share `kv_head` are the task's queries.
  int64_t first_token;
  int64_t num_tokens;
  int64_t kv_head;
  int64_t first_partition;
  int64_t end_partition;
  // The group of tasks with the same queries.
  int64_t group;
  // Where its results go, or null if there is nothing to merge them with.
  float* states;
};

// A thread's memory for any task of a call.
template <typename Element>
class TaskScratch {
 public:
  using Word = typename Operand<Element>::Word;

  static int64_t num_bytes(int64_t max_rows, int64_t head_dim) {
    return sizeof(float) * (kPartition * (head_dim + padded(head_dim)) +
                            kTileRows * 2 * kPartition + max_rows * padded(head_dim) +
                            RowStates::num_floats(kTileRows + max_rows, head_dim));
  }

  TaskScratch(char* memory, int64_t max_rows, int64_t head_dim)
      : keys{take<Word>(memory, head_dim * kPartition), kPartition},
        values{take<Word>(memory, kPartition * padded(head_dim)), padded(head_dim)},
        scores{take<float>(memory, kTileRows * kPartition), kPartition},
        weights{take<Word>(memory, kTileRows * kPartition), kPartition},
        partial{take<float>(memory, RowStates::num_floats(kTileRows, head_dim)), padded(head_dim)},
        states{take<float>(memory, RowStates::num_floats(max_rows, head_dim)), padded(head_dim)},
        queries{take<Word>(memory, max_rows * padded(head_dim)), padded(head_dim)} {}

  Matrix<Word> keys, values;
  Matrix<float> scores;
  Matrix<Word> weights;
  RowStates partial, states;
  Matrix<Word> queries;

 private:
  template <typename T>
  static T* take(char*& memory, int64_t count) {
    static_assert(sizeof(T) == sizeof(float));
    T* taken = reinterpret_cast<T*>(memory);
    memory += count * sizeof(T);
    return taken;
  }
};

template <typename Element>
class TaskRunner {
 public:
  using Word = typename Operand<Element>::Word;

  TaskRunner(const Attention<Element>& attention, TaskScratch<Element> scratch)
      : attention_(attention), scratch_(scratch), group_size_(attention.group_size()) {}

  // Returns what a task's queries, by token, then by head, make of its partitions. Whoever runs
  // `next` afterwards finds its first keys and values close by.
  RowStates run(const Task& task, const Task* next) {
    task_ = task;
    states_ = scratch_.states;
    if (task.states != nullptr) states_.floats = task.states;
    const int64_t num_rows = task.num_tokens * group_size_;
    for (int64_t row = 0; row < num_rows; ++row) {
      clear(states_.row(row), states_.padded_dim);
      copy_row(query_row(row), attention_.head_dim, scratch_.queries.row(row));
    }
    PartitionRows buffers[2];
    PartitionRows *rows = &buffers[0], *next_rows = &buffers[1];
    find_rows(task, task.first_partition, *rows);
    for (int64_t p = task.first_partition; p < task.end_partition; ++p) {
      if (p + 1 < task.end_partition) {
        find_rows(task, p + 1, *next_rows);
      } else if (next != nullptr) {
        find_rows(*next, next->first_partition, *next_rows);
      } else {
        next_rows->clear();
      }
      attend_partition(p, *rows, *next_rows);
      std::swap(rows, next_rows);
    }
    return states_;
  }

 private:
  const Element* query_row(int64_t row) const {
    const int64_t token = task_.first_token + row / group_size_;
    const int64_t head = task_.kv_head * group_size_ + row % group_size_;
    return attention_.query + token * attention_.query_strides[0] +
           head * attention_.query_strides[1];
  }

  Range visible(int64_t row, int64_t partition) const {
    return attention_.visible(task_.first_token + row / group_size_).in_partition(partition);
  }

  // The rows of all keys of a partition that a task's queries see.
  void find_rows(const Task& task, int64_t partition, PartitionRows& rows) const {
    Range keys;
    for (int64_t i = 0; i < task.num_tokens; ++i) {
      keys = keys.united(attention_.visible(task.first_token + i).in_partition(partition));
    }
    rows.begin = int(keys.begin);
    rows.end = int(keys.end);
    const int64_t block_size = attention_.block_size;
    const int64_t slot_stride = attention_.num_kv_heads * attention_.head_dim;
    const int64_t position = partition * kPartition + keys.begin;
    const int32_t* block = attention_.block_table(task.first_token) + position / block_size;
    int64_t offset_in_block = position % block_size;
    for (int64_t key = keys.begin; key < keys.end; ++block, offset_in_block = 0) {
      const int64_t end = std::min(keys.end, key + block_size - offset_in_block);
      const int64_t slot = *block * block_size + offset_in_block;
      int64_t offset = slot * slot_stride + task.kv_head * attention_.head_dim;
      for (; key < end; ++key, offset += slot_stride) rows.offsets[key] = offset;
    }
  }

  void attend_partition(int64_t partition, const PartitionRows& rows, const PartitionRows& next) {
    const NextRows<Element> next_rows{attention_.key_cache, attention_.value_cache,
                                      attention_.head_dim, next};
    pack_keys(attention_.key_cache, attention_.head_dim, rows, next_rows, scratch_.keys);
    const int64_t num_rows = task_.num_tokens * group_size_;
    are_values_packed_ = num_rows > kTileRows || attention_.head_dim % kLanes != 0;
    take_values(rows);
    for (int64_t row = 0; row < num_rows; row += kTileRows) {
      attend_rows(row, std::min<int64_t>(kTileRows, num_rows - row), partition, rows);
    }
  }

  // At most kTileRows successive queries.
  void attend_rows(int64_t first_row, int num_rows, int64_t partition,
                   const PartitionRows& all_rows) {
    Range keys[kTileRows], any;
    for (int r = 0; r < num_rows; ++r) {
      keys[r] = visible(first_row + r, partition);
      any = any.united(keys[r]);
    }
    if (any.is_empty()) return;
    const int begin = first_column(any.begin), end = end_column(any.end);
    multiply<Word>(num_rows, constant(scratch_.queries).rows_from(first_row),
                   constant(scratch_.keys).columns_from(begin), scratch_.scores.columns_from(begin),
                   attention_.head_dim / kNumbersPerWord<Word>, end - begin);
    if (attention_.softcap > 0.0f) cap_scores(num_rows, begin, end);
    // All rows take each step before the next one, so that their latencies overlap.
    for (int r = 0; r < num_rows; ++r) scale_scores(r, keys[r], begin, end);
    for (int r = 0; r < num_rows; ++r) weigh(r, begin, end);
    sum_values(0, num_rows, begin, end);
    for (int r = 0; r < num_rows; ++r) {
      if (is_not_finite(scratch_.partial.row(r))) sum_seen_values(r, keys[r], all_rows);
    }
    for (int r = 0; r < num_rows; ++r) {
      merge(states_.row(first_row + r), scratch_.partial.row(r), states_.padded_dim);
    }
  }

  // Makes softcap * tanh(score / softcap) of unscaled scores.
  void cap_scores(int num_rows, int begin, int end) {
    for (int r = 0; r < num_rows; ++r) {
      for (int column = begin; column < end; column += kLanes) {
        float* scores = scratch_.scores.row(r) + column;
        const Floats ratio = load(scores) * (attention_.scaling / attention_.softcap);
        const Floats magnitude = ratio < 0.0f ? -ratio : ratio;
        const Floats power = exp2_nonpositive(magnitude * (-2.0f * kLog2E));
        const Floats capped = (1.0f - power) / (1.0f + power) * attention_.softcap;
        store(scores, ratio < 0.0f ? -capped : capped);
      }
    }
  }

  // Scales row r and finds its greatest score; keys that it does not see score nothing.
  void scale_scores(int r, Range keys, int begin, int end) {
    const float factor = attention_.softcap > 0.0f ? kLog2E : attention_.scaling * kLog2E;
    float* scores = scratch_.scores.row(r);
    Floats maxima = broadcast(kNothing);
    for (int column = begin; column < end; column += kLanes) {
      Floats score = load(scores + column) * factor;
      if (column < keys.begin || column + kLanes > keys.end) {
        const Ints key = lane_numbers() + column;
        const Ints is_seen = (key >= int(keys.begin)) & (key < int(keys.end));
        score = is_seen ? score : broadcast(kNothing);
      }
      maxima = maximum(score, maxima);
      store(scores + column, score);
    }
    scratch_.partial.row(r).maximum() = reduce_maximum(maxima);
  }

  // Turns row r of the scores into weights.
  void weigh(int r, int begin, int end) {
    const float reference = reference_score(scratch_.partial.row(r).maximum());
    const float* scores = scratch_.scores.row(r);
    Word* weights = scratch_.weights.row(r);
    Floats totals = {};
    for (int column = begin; column < end; column += kLanes) {
      const Floats weight = exp2_nonpositive(load(scores + column) - reference);
      totals += weight;
      if constexpr (kNumbersPerWord<Word> == 2) {
        store(reinterpret_cast<Element*>(weights) + column, weight);
      } else {
        store(weights + column, weight);
      }
    }
    scratch_.partial.row(r).total() = reduce_add(totals);
  }

  bool is_not_finite(RowState state) const {
    Floats zeros = {};
    for (int64_t d = 0; d < scratch_.partial.padded_dim; d += kLanes) {
      zeros = multiply_add(load(state.sums() + d), Floats{}, zeros);
    }
    return reduce_add(zeros) != 0.0f;
  }

  // Multiplies weights and values of some rows, over columns that hold all the keys that they see.
  void sum_values(int first_row, int num_rows, int begin, int end) {
    constexpr int kNumbers = kNumbersPerWord<Word>;
    const Matrix<float> sums{scratch_.partial.row(first_row).sums(), scratch_.partial.stride()};
    const auto weights =
        constant(scratch_.weights).rows_from(first_row).columns_from(begin / kNumbers);
    const int64_t depth = (end - begin) / kNumbers;
    if (are_values_packed_) {
      multiply<Word>(num_rows, weights, constant(scratch_.values).rows_from(begin / kNumbers), sums,
                     depth, scratch_.partial.padded_dim);
    } else {
      multiply<Word>(num_rows, weights, ValueRows<Element>{value_rows_ + begin}, sums, depth,
                     scratch_.partial.padded_dim);
    }
  }

  // Makes `rows` the product's right operand. Packing pays if it is read more than once.
  void take_values(const PartitionRows& rows) {
    if (are_values_packed_) {
      pack_values(attention_.value_cache, attention_.head_dim, rows, scratch_.values);
      return;
    }
    for (int key = first_column(rows.begin); key < end_column(rows.end); ++key) {
      value_rows_[key] = row_of(attention_.value_cache, rows, key);
    }
  }

  // The same for one row, with values of its own without the keys that it does not see: a weight of
  // 0 times an infinite value or NaN would be NaN.
  void sum_seen_values(int r, Range keys, const PartitionRows& all_rows) {
    PartitionRows seen = all_rows;
    seen.begin = int(keys.begin);
    seen.end = int(keys.end);
    take_values(seen);
    sum_values(r, 1, first_column(keys.begin), end_column(keys.end));
    take_values(all_rows);
  }

  const Attention<Element>& attention_;
  TaskScratch<Element> scratch_;
  const int64_t group_size_;
  Task task_ = {};
  RowStates states_ = {};
  // The values of the partition at hand: in the panel, or else here.
  bool are_values_packed_ = true;
  const Element* value_rows_[kPartition];
};

}  // namespace neuron_llm
