// Vectors as wide as a register of the instruction set that the compiler was told to use.
//
// Kernels are written once, in terms of `kLanes`: a GCC vector wider than a register is taken apart
// through memory, so the type follows the register and not the other way round. Intrinsics stand in
// this file only. All arithmetic is lane by lane in a fixed order; sources are compiled with
// -ffp-contract=off, so that nothing is fused unless `multiply_add` says so.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace neuron_llm {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

// Of a product: 6 x 4 vectors take 29 of AVX-512's 32 registers, 6 x 2 take 15 of the others' 16.
constexpr int kTileRows = 6;
constexpr int kTileVectors = kLanes == 16 ? 4 : 2;

typedef float Floats __attribute__((vector_size(4 * kLanes)));
typedef int32_t Ints __attribute__((vector_size(4 * kLanes)));
// 32 bits a lane: mostly pairs of 16-bit numbers, the first in the low half.
typedef uint32_t Words __attribute__((vector_size(4 * kLanes)));
typedef uint16_t Halves __attribute__((vector_size(2 * kLanes)));

struct BFloat16 { uint16_t bits; };
struct Float16 { uint16_t bits; };
// Two neighbouring numbers, taken through the dot product together.
struct BFloat16Pair {
  BFloat16 first, second;
};

// Subtracting zero changes no number, so that nothing is left of it; adding it would change -0.
inline Floats broadcast(float x) { return x - Floats{}; }

inline Words broadcast(BFloat16Pair pair) {
  uint32_t bits;
  std::memcpy(&bits, &pair, sizeof bits);
  return Words{} + bits;
}

inline Floats as_floats(Words bits) { return (Floats)bits; }
inline Words as_words(Floats numbers) { return (Words)numbers; }

// 0, 1, 2, ...
inline Ints lane_numbers() {
#if defined(__AVX512F__)
  return Ints{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
#elif defined(__AVX2__)
  return Ints{0, 1, 2, 3, 4, 5, 6, 7};
#else
  return Ints{0, 1, 2, 3};
#endif
}

// ---- conversions -------------------------------------------------------------------------------

inline Words widen(Halves bits) {
#if defined(__AVX512F__)
  // The masked forms: g++ 12 takes the others for uses of uninitialised memory.
  return (Words)_mm512_maskz_cvtepu16_epi32(0xffff, (__m256i)bits);
#elif defined(__AVX2__)
  return (Words)_mm256_cvtepu16_epi32((__m128i)bits);
#else
  return __builtin_convertvector(bits, Words);
#endif
}

// Pairs of the numbers in the same lane.
inline Words interleave(Halves first, Halves second) {
#if defined(__AVX512F__)
  const Words lane = (Words)lane_numbers();
  const __m512i places = (__m512i)(lane | (lane + 2 * kLanes) << 16);
  return (Words)_mm512_permutex2var_epi16(_mm512_castsi256_si512((__m256i)first), places,
                                          _mm512_castsi256_si512((__m256i)second));
#else
  return widen(first) | widen(second) << 16;
#endif
}

inline Floats widen_bfloat16(Halves bits) { return as_floats(widen(bits) << 16); }

inline Halves narrow_bfloat16(Floats numbers) {
#if defined(__AVX512BF16__)
  return (Halves)_mm512_cvtneps_pbh(numbers);
#else
  const Words bits = as_words(numbers);
  const Words rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const Words quiet_nan = (bits >> 16) | 0x40;
  return __builtin_convertvector(numbers == numbers ? rounded : quiet_nan, Halves);
#endif
}

inline Floats widen_float16(Halves bits) {
#if defined(__AVX512F__)
  return _mm512_maskz_cvtph_ps(0xffff, (__m256i)bits);
#elif defined(__F16C__)
  return _mm256_cvtph_ps((__m128i)bits);
#else
  const Words wide = widen(bits);
  const Words magnitude = wide & 0x7fff;
  // Multiplying moves the exponent and makes subnormal numbers normal.
  const Words finite = as_words(as_floats(magnitude << 13) * 0x1p112f);
  const Words special = (magnitude << 13) | 0x7f800000;
  return as_floats((magnitude < 0x7c00 ? finite : special) | (wide & 0x8000) << 16);
#endif
}

inline Halves narrow_float16(Floats numbers) {
#if defined(__AVX512F__)
  return (Halves)_mm512_maskz_cvtps_ph(0xffff, numbers, _MM_FROUND_TO_NEAREST_INT);
#elif defined(__F16C__)
  return (Halves)_mm256_cvtps_ph(numbers, _MM_FROUND_TO_NEAREST_INT);
#else
  const Words sign = as_words(numbers) >> 16 & 0x8000;
  const Words bits = as_words(numbers) & 0x7fffffff;
  // From 65520 on, numbers round to infinity.
  const Words special = bits > 0x7f800000 ? Words{} + 0x7e00 : Words{} + 0x7c00;
  const Words normal = (bits - 0x38000000 + 0xfff + (bits >> 13 & 1)) >> 13;
  // The sum with 0.5 rounds at the last bit of a subnormal result.
  const Words subnormal = as_words(as_floats(bits) + 0.5f) - 0x3f000000;
  const Words finite = bits < 0x38800000 ? subnormal : normal;
  return __builtin_convertvector((bits >= 0x477ff000 ? special : finite) | sign, Halves);
#endif
}

// ---- memory ------------------------------------------------------------------------------------

template <typename Vector, typename Element>
inline Vector load_bits(const Element* source) {
  Vector vector;
  std::memcpy(&vector, source, sizeof vector);
  return vector;
}

inline Floats load(const float* source) { return load_bits<Floats>(source); }
inline Floats load(const BFloat16* source) { return widen_bfloat16(load_bits<Halves>(source)); }
inline Floats load(const Float16* source) { return widen_float16(load_bits<Halves>(source)); }
inline Words load(const BFloat16Pair* source) { return load_bits<Words>(source); }

inline void store(float* target, Floats numbers) { std::memcpy(target, &numbers, sizeof numbers); }
inline void store(BFloat16* target, Floats numbers) {
  const Halves bits = narrow_bfloat16(numbers);
  std::memcpy(target, &bits, sizeof bits);
}
inline void store(Float16* target, Floats numbers) {
  const Halves bits = narrow_float16(numbers);
  std::memcpy(target, &bits, sizeof bits);
}
inline void store(BFloat16Pair* target, Words pairs) { std::memcpy(target, &pairs, sizeof pairs); }

// The first `count` elements, the other lanes zero. Reads nothing past them.
template <typename Vector, typename Element>
inline Vector load_first_bits(const Element* source, int64_t count) {
  Vector vector = {};
  std::memcpy(&vector, source, count * sizeof(Element));
  return vector;
}

inline Floats load_first(const float* source, int64_t count) {
  return load_first_bits<Floats>(source, count);
}
inline Floats load_first(const BFloat16* source, int64_t count) {
  return widen_bfloat16(load_first_bits<Halves>(source, count));
}
inline Floats load_first(const Float16* source, int64_t count) {
  return widen_float16(load_first_bits<Halves>(source, count));
}

template <typename Element>
inline void store_first(Element* target, Floats numbers, int64_t count) {
  Element padded[kLanes];
  store(padded, numbers);
  std::memcpy(target, padded, count * sizeof(Element));
}

// Asks for a line of memory, which need not exist, to be brought into the second-level cache.
__attribute__((always_inline)) inline void prefetch(const char* address) {
  __builtin_prefetch(address, 0, 2);
}

// Four words of each of kLanes rows, from `word` on, become four rows of `target`:
// target[word][row].
inline void transpose_words(const uint32_t* const rows[kLanes], int64_t word, uint32_t* target,
                            int64_t stride) {
#if defined(__AVX512F__)
  Words fours[4];
  for (int i = 0; i < 4; ++i) {
    __m512i four = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i*)(rows[i] + word)));
    four = _mm512_inserti32x4(four, _mm_loadu_si128((const __m128i*)(rows[4 + i] + word)), 1);
    four = _mm512_inserti32x4(four, _mm_loadu_si128((const __m128i*)(rows[8 + i] + word)), 2);
    four = _mm512_inserti32x4(four, _mm_loadu_si128((const __m128i*)(rows[12 + i] + word)), 3);
    fours[i] = (Words)four;
  }
  constexpr Words kLowWords = {0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29};
  constexpr Words kHighWords = {2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31};
  constexpr Words kLowPairs = {0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29};
  constexpr Words kHighPairs = {2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31};
  const Words low01 = __builtin_shuffle(fours[0], fours[1], kLowWords);
  const Words low23 = __builtin_shuffle(fours[2], fours[3], kLowWords);
  const Words high01 = __builtin_shuffle(fours[0], fours[1], kHighWords);
  const Words high23 = __builtin_shuffle(fours[2], fours[3], kHighWords);
  const Words columns[4] = {__builtin_shuffle(low01, low23, kLowPairs),
                            __builtin_shuffle(low01, low23, kHighPairs),
                            __builtin_shuffle(high01, high23, kLowPairs),
                            __builtin_shuffle(high01, high23, kHighPairs)};
  for (int i = 0; i < 4; ++i) std::memcpy(target + i * stride, &columns[i], sizeof(Words));
#else
  typedef uint32_t Four __attribute__((vector_size(16)));
  for (int row = 0; row < kLanes; row += 4) {
    Four fours[4];
    for (int i = 0; i < 4; ++i) fours[i] = load_bits<Four>(rows[row + i] + word);
    const Four low01 = __builtin_shuffle(fours[0], fours[1], Four{0, 4, 1, 5});
    const Four low23 = __builtin_shuffle(fours[2], fours[3], Four{0, 4, 1, 5});
    const Four high01 = __builtin_shuffle(fours[0], fours[1], Four{2, 6, 3, 7});
    const Four high23 = __builtin_shuffle(fours[2], fours[3], Four{2, 6, 3, 7});
    const Four columns[4] = {__builtin_shuffle(low01, low23, Four{0, 1, 4, 5}),
                             __builtin_shuffle(low01, low23, Four{2, 3, 6, 7}),
                             __builtin_shuffle(high01, high23, Four{0, 1, 4, 5}),
                             __builtin_shuffle(high01, high23, Four{2, 3, 6, 7})};
    for (int i = 0; i < 4; ++i) std::memcpy(target + i * stride + row, &columns[i], sizeof(Four));
  }
#endif
}

// ---- arithmetic --------------------------------------------------------------------------------

// sum + a * b, rounded once where the machine can.
inline Floats multiply_add(Floats a, Floats b, Floats sum) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, sum);
#elif defined(__FMA__)
  return _mm256_fmadd_ps(a, b, sum);
#else
  return sum + a * b;
#endif
}

// sum + a.first * b.first + a.second * b.second in every lane; the lanes hold bfloat16 pairs.
inline Floats multiply_add(Words a, Words b, Floats sum) {
#if defined(__AVX512BF16__)
  return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
#else
  sum = multiply_add(as_floats(a << 16), as_floats(b << 16), sum);
  return multiply_add(as_floats(a & 0xffff0000), as_floats(b & 0xffff0000), sum);
#endif
}

inline Floats maximum(Floats a, Floats b) { return a > b ? a : b; }

template <int step = kLanes / 2>
inline float reduce_add(Floats numbers) {
  numbers += __builtin_shuffle(numbers, lane_numbers() ^ step);
  if constexpr (step > 1) return reduce_add<step / 2>(numbers);
  return numbers[0];
}

template <int step = kLanes / 2>
inline float reduce_maximum(Floats numbers) {
  numbers = maximum(numbers, __builtin_shuffle(numbers, lane_numbers() ^ step));
  if constexpr (step > 1) return reduce_maximum<step / 2>(numbers);
  return numbers[0];
}

// 2^x for x <= 0, within 2 units of the last place, exact for 0; subnormal results may be 0. NaN
// stays NaN.
inline Floats exp2_nonpositive(Floats x) {
#if defined(__AVX512F__)
  const Floats exponent = _mm512_maskz_roundscale_ps(0xffff, x, _MM_FROUND_TO_NEAREST_INT);
#else
  // Adding 1.5 * 2^23 leaves the nearest integer in the lowest bits.
  const Floats shifted = x + 0x1.8p23f;
  const Floats exponent = shifted - 0x1.8p23f;
#endif
  const Floats rest = x - exponent;
  Floats sum = broadcast(0x1.5bba14p-10f);
  sum = multiply_add(sum, rest, broadcast(0x1.3cea88p-7f));
  sum = multiply_add(sum, rest, broadcast(0x1.c6b752p-5f));
  sum = multiply_add(sum, rest, broadcast(0x1.ebf9bcp-3f));
  sum = multiply_add(sum, rest, broadcast(0x1.62e42ap-1f));
  sum = multiply_add(sum, rest, broadcast(1.0f));
#if defined(__AVX512F__)
  return _mm512_maskz_scalef_ps(0xffff, sum, exponent);
#else
  const Floats power = as_floats((as_words(shifted) << 23) + 0x3f800000);
  return x < -126.0f ? Floats{} : sum * power;
#endif
}

}  // namespace neuron_llm
