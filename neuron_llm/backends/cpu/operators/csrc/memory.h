// Scratch memory of a call, on cache lines.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace neuron_llm {

struct FreeMemory {
  void operator()(char* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<char, FreeMemory>;

constexpr int64_t kCacheLine = 64;

inline int64_t whole_lines(int64_t num_bytes) {
  return (num_bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
}

inline Memory allocate(int64_t num_bytes) {
  char* memory = static_cast<char*>(std::aligned_alloc(kCacheLine, whole_lines(num_bytes)));
  if (memory == nullptr) throw std::bad_alloc();
  return Memory(memory);
}

}  // namespace neuron_llm
