// Linear layer on a packed weight.
//
// The weight is packed in panels of 32 outputs, one panel after the other, so that a thread reads
// its share of it as one stream. In a panel, cells follow each other in the order of the inputs,
// for each input, or pair of inputs of 16 bits, 32 of them:
//
//   float32             [panel][input][output]        a cell is a float
//   bfloat16, float16   [panel][pair][output][2]      a cell is a pair
//
// Every sum is taken in the order of the inputs, whatever tile it falls into, and stays float32
// between blocks: an output's bits depend on its own row of the input and on the weight alone.

#include <omp.h>

#include <type_traits>

#include "linear.h"
#include "linear_checks.h"
#include "memory.h"
#include "operand.h"

namespace neuron_llm {
namespace {

constexpr int kPanel = 32;
// Words of the input that are multiplied with all rows of a block before the next ones are.
constexpr int kBlockWords = 512;
// A cache line more than that: rows of a tile must not compete for the same places in the cache.
constexpr int kInputStride = kBlockWords + kCacheLine / sizeof(float);
// A panel is read once for so many rows. More would not fit the second-level cache.
constexpr int kMaxBlockRows = 144;

// 12 rows x 2 sums, 2 weights and an input take 27 of 32 registers; there are 16 in narrow vectors.
constexpr int kMaxTileRows = kLanes == 16 ? 12 : 6;
constexpr int kMaxTileSums = 2 * kMaxTileRows;

template <typename Element>
constexpr int kNumbersPerCell = sizeof(float) / sizeof(Element);

// Cells are multiplied in one go, or number by number.
template <typename Element>
constexpr int kWordsPerCell =
    kNumbersPerCell<Element> / kNumbersPerWord<typename Operand<Element>::Word>;

// Word `index` of neighbouring cells.
inline Floats load_words(const float* cells, int) { return load(cells); }

inline auto load_words(const BFloat16* cells, int index) {
  const Words pairs = load_bits<Words>(cells);
  if constexpr (kHasPairProducts) {
    return pairs;
  } else {
    return as_floats(index == 0 ? pairs << 16 : pairs & 0xffff0000);
  }
}

inline Floats load_words(const Float16* cells, int index) {
  const Words pairs = load_bits<Words>(cells);
  const Words numbers = index == 0 ? pairs & 0xffff : pairs >> 16;
  return widen_float16(__builtin_convertvector(numbers, Halves));
}

// How many vectors of a panel a tile of so many rows takes.
constexpr int tile_vectors(int rows) {
  int vectors = kPanel / kLanes;
  while (rows * vectors > kMaxTileSums) vectors /= 2;
  return vectors;
}

// sums[row][output] += input[row] * weight[output] over some words.
template <int rows, typename Element, typename Word>
void multiply_tile(const Word* input, const Element* weight, int64_t num_words, float* sums) {
  constexpr int kVectors = tile_vectors(rows);
  constexpr int kWords = kWordsPerCell<Element>;
  constexpr int kNumbers = kNumbersPerCell<Element> * kLanes;  // of the cells under a vector
  for (int output = 0; output < kPanel; output += kVectors * kLanes) {
    Floats tile[rows][kVectors];
    for (int r = 0; r < rows; ++r)
      for (int v = 0; v < kVectors; ++v) tile[r][v] = load(sums + r * kPanel + output + v * kLanes);
    const Element* cells = weight + output * kNumbersPerCell<Element>;
    for (int64_t word = 0; word < num_words; word += kWords) {
      for (int w = 0; w < kWords; ++w) {
        decltype(load_words(cells, w)) factors[kVectors];
        for (int v = 0; v < kVectors; ++v) factors[v] = load_words(cells + v * kNumbers, w);
        for (int r = 0; r < rows; ++r) {
          const auto x = broadcast(input[r * kInputStride + word + w]);
          for (int v = 0; v < kVectors; ++v) tile[r][v] = multiply_add(factors[v], x, tile[r][v]);
        }
      }
      cells += kPanel * kNumbersPerCell<Element>;
    }
    for (int r = 0; r < rows; ++r)
      for (int v = 0; v < kVectors; ++v) store(sums + r * kPanel + output + v * kLanes, tile[r][v]);
  }
}

template <int rows = kMaxTileRows, typename Element, typename Word>
void multiply_rows(int num_rows, const Word* input, const Element* weight, int64_t num_words,
                   float* sums) {
  if constexpr (rows > 1) {
    if (num_rows < rows) {
      return multiply_rows<rows - 1>(num_rows, input, weight, num_words, sums);
    }
  }
  multiply_tile<rows>(input, weight, num_words, sums);
}

template <typename Element, typename Word>
void multiply_block(int64_t num_rows, const Word* input, const Element* weight, int64_t num_words,
                    float* sums) {
  const int64_t num_tiles = divide_up(num_rows, kMaxTileRows);
  for (int64_t tile = 0; tile < num_tiles; ++tile) {
    const int64_t begin = share_begin(num_rows, tile, num_tiles);
    const int64_t end = share_begin(num_rows, tile + 1, num_tiles);
    multiply_rows(end - begin, input + begin * kInputStride, weight, num_words,
                  sums + begin * kPanel);
  }
}

template <typename Element>
void widen_block(const Element* weight, int64_t num_words, float* target) {
  for (int64_t word = 0; word < num_words; word += 2, weight += 2 * kPanel) {
    for (int w = 0; w < 2; ++w, target += kPanel) {
      for (int output = 0; output < kPanel; output += kLanes) {
        store(target + output, load_words(weight + 2 * output, w));
      }
    }
  }
}

template <typename Element>
class PackedLinear {
 public:
  explicit PackedLinear(const Linear& call)
      : layer_(call),
        num_words_(divide_up(layer_.in_features, kNumbersPerCell<Element>) *
                   kWordsPerCell<Element>),
        num_word_blocks_(divide_up(num_words_, kBlockWords)),
        num_panels_(divide_up(layer_.out_features, kPanel)),
        num_row_blocks_(divide_up(layer_.num_rows, kMaxBlockRows)),
        max_block_rows_(divide_up(layer_.num_rows, num_row_blocks_)) {}

  void run() const {
    const bool is_worth_threads = layer_.is_worth_threads();
    const int64_t max_threads = is_worth_threads ? omp_get_max_threads() : 1;
    const Memory memory = allocate(max_threads * scratch_bytes());
#pragma omp parallel if (is_worth_threads)
    {
      const int64_t thread = omp_get_thread_num(), num_threads = omp_get_num_threads();
      const int64_t num_tasks = num_row_blocks_ * num_panels_;
      multiply_panels(share_begin(num_tasks, thread, num_threads),
                      share_begin(num_tasks, thread + 1, num_threads),
                      Scratch(*this, memory.get() + thread * scratch_bytes()));
    }
  }

 private:
  using Word = typename Operand<Element>::Word;
  // Widening is dear: where several tiles take the same weights, it is done once for all of them.
  static constexpr bool kMayWiden = std::is_same_v<Element, Float16>;
  static constexpr int64_t kMinWidenedRows = 2 * kMaxTileRows + 1;

  // A thread's memory. Rows of the input lie block of words by block of words.
  struct Scratch {
    Scratch(const PackedLinear& linear, char* memory)
        : sums(reinterpret_cast<float*>(memory)),
          widened(sums + linear.max_block_rows_ * kPanel),
          input(reinterpret_cast<Word*>(widened + kWidenedFloats)) {}

    float* sums;
    float* widened;
    Word* input;
  };
  static constexpr int64_t kWidenedFloats = kMayWiden ? kBlockWords * kPanel : 0;

  int64_t scratch_bytes() const {
    return whole_lines(sizeof(float) * (max_block_rows_ * kPanel + kWidenedFloats +
                                        num_word_blocks_ * max_block_rows_ * kInputStride));
  }

  // A task is a block of rows times a panel; those of the same rows follow each other.
  void multiply_panels(int64_t begin, int64_t end, Scratch scratch) const {
    int64_t rows_begin = 0, rows_end = 0;
    for (int64_t task = begin; task < end; ++task) {
      const int64_t row_block = task / num_panels_;
      if (task == begin || task % num_panels_ == 0) {
        rows_begin = share_begin(layer_.num_rows, row_block, num_row_blocks_);
        rows_end = share_begin(layer_.num_rows, row_block + 1, num_row_blocks_);
        copy_input(rows_begin, rows_end, scratch.input);
      }
      multiply_panel(task % num_panels_, rows_end - rows_begin, scratch);
      write_output(task % num_panels_, rows_begin, rows_end, scratch.sums);
    }
  }

  void copy_input(int64_t rows_begin, int64_t rows_end, Word* target) const {
    constexpr int64_t kBlockNumbers = kBlockWords * kNumbersPerWord<Word>;
    for (int64_t first = 0; first < layer_.in_features; first += kBlockNumbers) {
      const int64_t length = std::min(kBlockNumbers, layer_.in_features - first);
      for (int64_t row = rows_begin; row < rows_end; ++row, target += kInputStride) {
        copy_row(layer_.input + row * layer_.in_features + first, length, target);
      }
    }
  }

  void multiply_panel(int64_t panel, int64_t num_rows, Scratch scratch) const {
    constexpr int64_t kRowNumbers = kPanel * kNumbersPerWord<Word>;
    std::fill_n(scratch.sums, num_rows * kPanel, 0.0f);
    for (int64_t block = 0; block < num_word_blocks_; ++block) {
      const int64_t first = block * kBlockWords;
      const int64_t num_words = std::min<int64_t>(kBlockWords, num_words_ - first);
      const Element* weight = layer_.weight + (panel * num_words_ + first) * kRowNumbers;
      const Word* input = scratch.input + block * num_rows * kInputStride;
      if constexpr (kMayWiden) {
        if (num_rows >= kMinWidenedRows) {
          widen_block(weight, num_words, scratch.widened);
          multiply_block<float>(num_rows, input, scratch.widened, num_words, scratch.sums);
          continue;
        }
      }
      multiply_block(num_rows, input, weight, num_words, scratch.sums);
    }
  }

  void write_output(int64_t panel, int64_t rows_begin, int64_t rows_end, const float* sums) const {
    const int64_t first = panel * kPanel;
    const int64_t num_outputs = std::min<int64_t>(kPanel, layer_.out_features - first);
    float bias[kPanel] = {};
    if (layer_.bias != nullptr) copy_row(layer_.bias + first, num_outputs, bias);
    for (int64_t row = rows_begin; row < rows_end; ++row, sums += kPanel) {
      Element* target = layer_.output + row * layer_.out_features + first;
      for (int64_t i = 0; i < num_outputs; i += kLanes) {
        const Floats result = load(sums + i) + load(bias + i);
        if (i + kLanes <= num_outputs) {
          store(target + i, result);
        } else {
          store_first(target + i, result, num_outputs - i);
        }
      }
    }
  }

  const LinearLayer<Element> layer_;
  const int64_t num_words_, num_word_blocks_, num_panels_, num_row_blocks_, max_block_rows_;
};

const char* find_fault(const Linear& call) {
  if (const char* fault = find_linear_fault(call)) return fault;
  const int64_t in_features = call.input.sizes[call.input.num_dims - 1];
  const int64_t num_panels = divide_up(call.output.sizes[call.output.num_dims - 1], kPanel);
  if (call.input.dtype == kFloat32) {
    return check_sizes({"weight", call.weight}, {num_panels, in_features, kPanel});
  }
  return check_sizes({"weight", call.weight}, {num_panels, divide_up(in_features, 2), kPanel, 2});
}

}  // namespace
}  // namespace neuron_llm

const char* neuron_llm_linear_packed(const neuron_llm::Linear* call) {
  using namespace neuron_llm;
  if (const char* fault = find_fault(*call)) return fault;
  try {
    if (call->input.dtype == kFloat32) PackedLinear<float>(*call).run();
    if (call->input.dtype == kBFloat16) PackedLinear<BFloat16>(*call).run();
    if (call->input.dtype == kFloat16) PackedLinear<Float16>(*call).run();
  } catch (const std::bad_alloc&) {
    return message("out of memory");
  }
  return nullptr;
}
