// What the library's products take: rows of any dtype, turned into words.
#pragma once

#include <type_traits>

#include "simd.h"

namespace neuron_llm {

// A word is what one 32-bit lane holds along the summed dimension: a float or a bfloat16 pair.
template <typename Word>
constexpr int kNumbersPerWord = 1;
template <>
constexpr int kNumbersPerWord<BFloat16Pair> = 2;

#if defined(__AVX512BF16__)
constexpr bool kHasPairProducts = true;
#else
constexpr bool kHasPairProducts = false;
#endif

// What products take of each type of element.
template <typename Element>
struct Operand {
  using Word = float;
};
template <>
struct Operand<BFloat16> {
  using Word = std::conditional_t<kHasPairProducts, BFloat16Pair, float>;
};

// Row lengths in words end on a whole vector.
inline int64_t padded(int64_t length) { return (length + kLanes - 1) / kLanes * kLanes; }

// One row as floats, padded with zeros.
template <typename Element>
inline void copy_row(const Element* row, int64_t length, float* target) {
  int64_t i = 0;
  for (; i + kLanes <= length; i += kLanes) store(target + i, load(row + i));
  if (i < length) store(target + i, load_first(row + i, length - i));
}

// One row as pairs, the last one filled up with a zero.
inline void copy_row(const BFloat16* row, int64_t length, BFloat16Pair* target) {
  if (length % 2 != 0) target[length / 2].second = {0};
  std::memcpy(target, row, length * sizeof *row);
}

}  // namespace neuron_llm
