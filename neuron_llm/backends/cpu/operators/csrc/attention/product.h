// The one matrix product of the library's attention: tiles that stay in registers.
#pragma once

#include "operand.h"

namespace neuron_llm {

// Row-major; `stride` in elements.
template <typename Element>
struct Matrix {
  Element* data;
  int64_t stride;

  Element* row(int64_t index) const { return data + index * stride; }
  // The vector that starts at a column.
  auto vector(int64_t index, int64_t column) const { return load(row(index) + column); }
  Matrix rows_from(int64_t index) const { return {row(index), stride}; }
  Matrix columns_from(int64_t column) const { return {data + column, stride}; }
};

template <typename Element>
inline Matrix<const Element> constant(Matrix<Element> matrix) {
  return {matrix.data, matrix.stride};
}

// Columns from `column` on; `Right` is a matrix, or anything else that has its vectors.
template <int rows, int vectors, typename Word, typename Right>
inline void multiply_tile(Matrix<const Word> left, const Right& right, Matrix<float> result,
                          int64_t depth, int64_t column) {
  Floats sums[rows][vectors];
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v < vectors; ++v) sums[r][v] = Floats{};
  for (int64_t k = 0; k < depth; ++k) {
    decltype(broadcast(Word{})) factors[rows];
    for (int r = 0; r < rows; ++r) factors[r] = broadcast(left.row(r)[k]);
    for (int v = 0; v < vectors; ++v) {
      const auto columns = right.vector(k, column + v * kLanes);
      for (int r = 0; r < rows; ++r) sums[r][v] = multiply_add(columns, factors[r], sums[r][v]);
    }
  }
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v < vectors; ++v) store(result.row(r) + column + v * kLanes, sums[r][v]);
}

// result[r][n] = sum over k < depth of left[r][k] * right[k][n], for at most kTileRows rows and
// `width` columns, a multiple of kLanes. Every element is summed in the order of k, whatever tile
// it falls into.
template <typename Word, typename Right, int rows = kTileRows>
inline void multiply(int num_rows, Matrix<const Word> left, const Right& right,
                     Matrix<float> result, int64_t depth, int64_t width) {
  if constexpr (rows > 1) {
    if (num_rows < rows) {
      return multiply<Word, Right, rows - 1>(num_rows, left, right, result, depth, width);
    }
  }
  constexpr int kTileWidth = kTileVectors * kLanes;
  int64_t column = 0;
  for (; column + kTileWidth <= width; column += kTileWidth) {
    multiply_tile<rows, kTileVectors>(left, right, result, depth, column);
  }
  for (; column < width; column += kLanes) {
    multiply_tile<rows, 1>(left, right, result, depth, column);
  }
}

}  // namespace neuron_llm
