// Linear layer on a weight in the order of checkpoints, [out_features, in_features].
//
// A weight that serves as the embedding too cannot be packed. Inputs lie side by side in both
// operands here, so lane i of a sum takes every kLanes-th word from word i on; the lanes are added
// at the end, always in the same order. An output's bits depend on its own row of the input and on
// the weight alone.

#include <omp.h>

#include "linear.h"
#include "linear_checks.h"
#include "memory.h"
#include "operand.h"

namespace neuron_llm {
namespace {

constexpr int kTileOutputs = 4;
// 6 rows x 4 sums, 6 inputs and a weight take 31 of 32 registers; there are 16 in narrow vectors.
constexpr int kMaxTileRows = kLanes == 16 ? 6 : 3;
// The weight is read once for so many rows. More would not fit the second-level cache.
constexpr int kMaxBlockRows = 48;
// Memory is read in one direction if four rows of the weight are not read side by side, but asked
// for one after the other, so many bytes before they are needed.
constexpr int kPrefetchDistance = 1 << 15;

// Neighbouring words of a row.
template <typename Word, typename Element>
inline auto load_words(const Element* row) {
  if constexpr (kNumbersPerWord<Word> == 2) {
    return load_bits<Words>(row);
  } else {
    return load(row);
  }
}

// Each vector consists of sections of `width` lanes; those of `a`, then those of `b`, are folded to
// half their width.
template <int width>
inline Floats fold(Floats a, Floats b) {
  const Ints lower = lane_numbers() + (lane_numbers() & -(width / 2));
  return __builtin_shuffle(a, b, lower) + __builtin_shuffle(a, b, lower + width / 2);
}

// Every lane of a section gets the sum of the section.
template <int width>
inline Floats add_sections(Floats sums) {
  if constexpr (width > 1) {
    return add_sections<width / 2>(sums + __builtin_shuffle(sums, lane_numbers() ^ (width / 2)));
  } else {
    return sums;
  }
}

// Lane i of the result is the sum of the lanes of sums[i].
inline Floats add_lanes(const Floats (&sums)[kTileOutputs]) {
  const Floats folded = fold<kLanes / 2>(fold<kLanes>(sums[0], sums[1]),
                                         fold<kLanes>(sums[2], sums[3]));
  constexpr int kSection = kLanes / kTileOutputs;
  return __builtin_shuffle(add_sections<kSection>(folded),
                           lane_numbers() * kSection & (kLanes - 1));
}

template <typename Element>
class RowLinear {
 public:
  explicit RowLinear(const Linear& call)
      : layer_(call),
        rest_(layer_.in_features % kStep),
        stride_(divide_up(layer_.in_features, kStep) * kLanes + kCacheLine / sizeof(Word)),
        num_row_blocks_(divide_up(layer_.num_rows, kMaxBlockRows)),
        max_block_rows_(divide_up(layer_.num_rows, num_row_blocks_)) {}

  void run() const {
    const bool is_worth_threads = layer_.is_worth_threads();
    const int64_t max_threads = is_worth_threads ? omp_get_max_threads() : 1;
    const int64_t scratch_bytes = whole_lines(max_block_rows_ * stride_ * sizeof(Word));
    const Memory memory = allocate(max_threads * scratch_bytes);
#pragma omp parallel if (is_worth_threads)
    {
      const int64_t thread = omp_get_thread_num(), num_threads = omp_get_num_threads();
      const int64_t num_tiles = divide_up(layer_.out_features, kTileOutputs);
      const int64_t begin = share_begin(num_tiles, thread, num_threads) * kTileOutputs;
      const int64_t end = share_begin(num_tiles, thread + 1, num_threads) * kTileOutputs;
      Word* input = reinterpret_cast<Word*>(memory.get() + thread * scratch_bytes);
      for (int64_t block = 0; block < num_row_blocks_; ++block) {
        const int64_t rows_begin = share_begin(layer_.num_rows, block, num_row_blocks_);
        const int64_t rows_end = share_begin(layer_.num_rows, block + 1, num_row_blocks_);
        copy_input(rows_begin, rows_end, input);
        for (int64_t output = begin; output < end; output += kTileOutputs) {
          multiply_outputs(output, rows_begin, rows_end, input);
        }
      }
    }
  }

 private:
  using Word = typename Operand<Element>::Word;
  static constexpr int kStep = kLanes * kNumbersPerWord<Word>;  // numbers in a vector

  // The outputs of a tile: their rows of the weight, and what is left of these after the last whole
  // vector, filled up with zeros.
  struct Outputs {
    int64_t first;
    int64_t count;
    const Element* rows[kTileOutputs];
    Element rests[kTileOutputs][kStep];
    Floats bias;
  };

  void copy_input(int64_t rows_begin, int64_t rows_end, Word* target) const {
    for (int64_t row = rows_begin; row < rows_end; ++row, target += stride_) {
      // Between the last number and the end of its vector, there must be zeros.
      std::fill_n(target, stride_, Word{});
      copy_row(layer_.input + row * layer_.in_features, layer_.in_features, target);
    }
  }

  Outputs find_outputs(int64_t first) const {
    Outputs outputs = {};
    outputs.first = first;
    outputs.count = std::min<int64_t>(kTileOutputs, layer_.out_features - first);
    for (int64_t i = 0; i < kTileOutputs; ++i) {
      // Past the last output, it is computed again and not written.
      const int64_t output = first + std::min(i, outputs.count - 1);
      outputs.rows[i] = layer_.weight + output * layer_.in_features;
      std::memcpy(outputs.rests[i], outputs.rows[i] + layer_.in_features - rest_,
                  rest_ * sizeof(Element));
    }
    if (layer_.bias != nullptr) outputs.bias = load_first(layer_.bias + first, outputs.count);
    return outputs;
  }

  void multiply_outputs(int64_t first, int64_t rows_begin, int64_t rows_end,
                        const Word* input) const {
    const Outputs outputs = find_outputs(first);
    const int64_t num_rows = rows_end - rows_begin;
    const int64_t num_tiles = divide_up(num_rows, kMaxTileRows);
    for (int64_t tile = 0; tile < num_tiles; ++tile) {
      const int64_t begin = share_begin(num_rows, tile, num_tiles);
      const int64_t end = share_begin(num_rows, tile + 1, num_tiles);
      multiply_rows(end - begin, input + begin * stride_, outputs, rows_begin + begin);
    }
  }

  template <int rows = kMaxTileRows>
  void multiply_rows(int num_rows, const Word* input, const Outputs& outputs,
                     int64_t first_row) const {
    if constexpr (rows > 1) {
      if (num_rows < rows) {
        return multiply_rows<rows - 1>(num_rows, input, outputs, first_row);
      }
    }
    multiply_tile<rows>(input, outputs, first_row);
  }

  template <int rows>
  void multiply_tile(const Word* input, const Outputs& outputs, int64_t first_row) const {
    Floats sums[rows][kTileOutputs] = {};
    const auto add_products = [&](const Word* words, const Element* const (&weights)[kTileOutputs],
                                  int64_t number) __attribute__((always_inline)) {
      decltype(load(words)) factors[rows];
      for (int r = 0; r < rows; ++r) factors[r] = load(words + r * stride_);
      for (int i = 0; i < kTileOutputs; ++i) {
        const auto weight = load_words<Word>(weights[i] + number);
        for (int r = 0; r < rows; ++r) sums[r][i] = multiply_add(weight, factors[r], sums[r][i]);
      }
    };
    const int64_t whole = layer_.in_features - rest_;
    const char* ahead = reinterpret_cast<const char*>(outputs.rows[0]) + kPrefetchDistance;
    for (int64_t number = 0; number < whole; number += kStep, input += kLanes) {
      for (int line = 0; line < kStepBytes; line += kCacheLine) prefetch(ahead + line);
      ahead += kStepBytes;
      add_products(input, outputs.rows, number);
    }
    if (rest_ != 0) {
      const Element* rests[kTileOutputs];
      for (int i = 0; i < kTileOutputs; ++i) rests[i] = outputs.rests[i];
      add_products(input, rests, 0);
    }
    for (int r = 0; r < rows; ++r) {
      write_row(add_lanes(sums[r]) + outputs.bias, outputs, first_row + r);
    }
  }
  static constexpr int kStepBytes = kTileOutputs * kStep * sizeof(Element);

  void write_row(Floats results, const Outputs& outputs, int64_t row) const {
    Element* target = layer_.output + row * layer_.out_features + outputs.first;
    if (outputs.count == kTileOutputs) {
      store_first(target, results, kTileOutputs);  // a constant, so that it is one instruction
    } else {
      store_first(target, results, outputs.count);
    }
  }

  const LinearLayer<Element> layer_;
  const int64_t rest_, stride_, num_row_blocks_, max_block_rows_;
};

const char* find_fault(const Linear& call) {
  if (const char* fault = find_linear_fault(call)) return fault;
  return check_sizes({"weight", call.weight}, {call.output.sizes[call.output.num_dims - 1],
                                               call.input.sizes[call.input.num_dims - 1]});
}

}  // namespace
}  // namespace neuron_llm

const char* neuron_llm_linear(const neuron_llm::Linear* call) {
  using namespace neuron_llm;
  if (const char* fault = find_fault(*call)) return fault;
  try {
    if (call->input.dtype == kFloat32) RowLinear<float>(*call).run();
    if (call->input.dtype == kBFloat16) RowLinear<BFloat16>(*call).run();
    if (call->input.dtype == kFloat16) RowLinear<Float16>(*call).run();
  } catch (const std::bad_alloc&) {
    return message("out of memory");
  }
  return nullptr;
}
