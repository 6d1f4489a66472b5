// Keys and values of one partition, rearranged for the product: from here on, attention knows no
// blocks.
#pragma once

#include <algorithm>

#include "memory.h"
#include "product.h"

namespace neuron_llm {

// Keys are taken in runs of this many, counted from position 0 whatever the batch, the chunk or the
// window, so that a query's sums are always taken in the same order.
constexpr int kPartition = 128;
constexpr int kMaxHeadDim = 512;

// Panels are filled and multiplied in whole vectors of keys.
inline int first_column(int64_t begin) { return int(begin / kLanes * kLanes); }
inline int end_column(int64_t end) { return int((end + kLanes - 1) / kLanes * kLanes); }

// Where the keys of a partition stand in the caches.
struct PartitionRows {
  // The live keys; no other is read.
  int begin = 0, end = 0;
  // From the cache's first element, of the live keys.
  int64_t offsets[kPartition];

  bool is_live(int key) const { return begin <= key && key < end; }
  void clear() { begin = end = 0; }
};

// A key's row; zeros if it is not live.
template <typename Element>
inline const Element* row_of(const Element* cache, const PartitionRows& rows, int key) {
  alignas(64) static constexpr Element kZeros[kMaxHeadDim] = {};
  return rows.is_live(key) ? cache + rows.offsets[key] : kZeros;
}

// Keys and values that will soon be wanted.
template <typename Element>
struct NextRows {
  const Element* key_cache;
  const Element* value_cache;
  int64_t head_dim;
  const PartitionRows& rows;

  // Asks for one key and its value, in the second-level cache: as many requests to memory as are
  // needed at once fit between that cache and memory, but not between the first and the second.
  // Too many in a row are dropped, so that there has to be work between two calls. (Unless it is
  // inlined, g++ takes a function that only prefetches for one without effect.)
  __attribute__((always_inline)) void prefetch_row(int key) const {
    if (!rows.is_live(key)) return;
    for (const Element* cache : {key_cache, value_cache}) {
      const char* row = reinterpret_cast<const char*>(cache + rows.offsets[key]);
      for (int64_t byte = 0; byte < head_dim * int64_t(sizeof(Element)); byte += kCacheLine) {
        prefetch(row + byte);
      }
    }
  }
};

// The keys' panel, which has the keys as its columns: panel[word][key]. Meanwhile `next` is
// fetched.
template <typename Word, typename Element>
void pack_keys(const Element* cache, int64_t head_dim, const PartitionRows& rows,
               NextRows<Element> next, Matrix<Word> panel) {
  constexpr bool kMustWiden = sizeof(Element) * kNumbersPerWord<Word> != sizeof(Word);
  const int64_t depth = head_dim / kNumbersPerWord<Word>;
  float widened[kMustWiden ? kLanes : 1][kMaxHeadDim];
  for (int first = first_column(rows.begin); first < rows.end; first += kLanes) {
    const uint32_t* words[kLanes];
    for (int i = 0; i < kLanes; ++i) {
      const Element* row = row_of(cache, rows, first + i);
      next.prefetch_row(first + i);
      if constexpr (kMustWiden) {
        copy_row(row, head_dim, widened[i]);
        words[i] = reinterpret_cast<const uint32_t*>(widened[i]);
      } else {
        words[i] = reinterpret_cast<const uint32_t*>(row);
      }
    }
    // head_dim is a multiple of 8, so that words come in fours.
    for (int64_t word = 0; word < depth; word += 4) {
      transpose_words(words, word, reinterpret_cast<uint32_t*>(panel.row(word) + first),
                      panel.stride);
    }
  }
}

// Values where they stand in the cache, as the product's right operand. Of no use where vectors
// reach past the end of a row.
template <typename Element>
struct ValueRows {
  const Element* const* rows;

  auto vector(int64_t index, int64_t column) const {
    if constexpr (kNumbersPerWord<typename Operand<Element>::Word> == 2) {
      return interleave(load_bits<Halves>(rows[2 * index] + column),
                        load_bits<Halves>(rows[2 * index + 1] + column));
    } else {
      return load(rows[index] + column);
    }
  }
};

// Two rows of values, number beside number.
inline void pair_rows(const BFloat16* first, const BFloat16* second, int64_t head_dim,
                      BFloat16Pair* pairs) {
  int64_t d = 0;
  for (; d + kLanes <= head_dim; d += kLanes) {
    store(pairs + d, interleave(load_bits<Halves>(first + d), load_bits<Halves>(second + d)));
  }
  if (d < head_dim) {
    store(pairs + d, interleave(load_first_bits<Halves>(first + d, head_dim - d),
                                load_first_bits<Halves>(second + d, head_dim - d)));
  }
}

// The values' panel, which has the keys as its rows, paired where words are pairs:
// panel[key / numbers per word][d].
template <typename Word, typename Element>
void pack_values(const Element* cache, int64_t head_dim, const PartitionRows& rows,
                 Matrix<Word> panel) {
  constexpr int kKeys = kNumbersPerWord<Word>;
  for (int key = first_column(rows.begin); key < end_column(rows.end); key += kKeys) {
    Word* words = panel.row(key / kKeys);
    const Element* row = row_of(cache, rows, key);
    if constexpr (kKeys == 2) {
      pair_rows(row, row_of(cache, rows, key + 1), head_dim, words);
    } else {
      copy_row(row, head_dim, words);
    }
  }
}

}  // namespace neuron_llm
