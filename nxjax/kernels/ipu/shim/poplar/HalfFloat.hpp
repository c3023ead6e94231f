// The type `half`: IEEE binary16, stored in two bytes, computed with as float.
//
// Converting a float to half rounds to nearest even; with NX_STOCHASTIC defined it rounds at random, up or down with
// the probability that makes the mean exact, as tiles do when their control register says so ($FP_CTL.ESR).
#pragma once

namespace nxhost {

#ifdef NX_STOCHASTIC
// State of the running vertex's generator. The runner seeds it per vertex: splitmix64 of the run's seed and the
// vertex's number, so that results depend on neither the threads nor the order of vertices.
[[maybe_unused]] static thread_local unsigned long long randomState = 1;

inline unsigned random32() {
  // xorshift64*, Vigna, "An experimental exploration of Marsaglia's xorshift generators, scrambled" (2016).
  unsigned long long s = randomState;
  s ^= s >> 12;
  s ^= s << 25;
  s ^= s >> 27;
  randomState = s;
  return static_cast<unsigned>((s * 2685821657736338717ull) >> 32);
}

// Adds a random number below one unit in the last place of the half, then cuts.
inline unsigned short stochasticBits(float value) {
  unsigned bits;
  __builtin_memcpy(&bits, &value, 4);
  const unsigned short sign = static_cast<unsigned short>((bits >> 16) & 0x8000u);
  const unsigned magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<unsigned short>(sign | 0x7e00u);
  if (magnitude == 0x7f800000u) return static_cast<unsigned short>(sign | 0x7c00u);
  const int exponent = static_cast<int>(magnitude >> 23) - 127;
  // Bits of the float's significand below the half's last one; more for halves that are subnormal.
  const int dropped = exponent >= -14 ? 13 : 13 - 14 - exponent;
  unsigned long long significand = (magnitude & 0x7fffffu) | (exponent >= -126 ? 0x800000u : 0u);
  if (dropped > 40) return sign;  // below any chance that 32 random bits can give
  significand <<= 32;
  const unsigned long long noise = static_cast<unsigned long long>(random32()) << dropped;
  const unsigned long long kept = (significand + noise) >> (32 + dropped);
  unsigned long long half = exponent >= -14 ? (static_cast<unsigned long long>(exponent + 14) << 10) + kept : kept;
  if (half > 0x7c00u) half = 0x7c00u;
  return static_cast<unsigned short>(sign | half);
}
#endif

// Compilers without _Float16 get it from integers: nearest even, by the float's own bits.
#if !defined(__FLT16_MANT_DIG__) && !defined(NX_SOFT_HALF)
#define NX_SOFT_HALF
#endif

#ifdef NX_SOFT_HALF
inline unsigned short nearestBits(float value) {
  unsigned bits;
  __builtin_memcpy(&bits, &value, 4);
  const unsigned sign = (bits >> 16) & 0x8000u;
  unsigned magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<unsigned short>(sign | 0x7e00u);
  // From 65520 on, halfway to what would be 2^16.
  if (magnitude >= 0x477ff000u) return static_cast<unsigned short>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {
    // Subnormal: added to 0.5, the float's last place is the half's, and the addition rounds.
    float shifted;
    __builtin_memcpy(&shifted, &magnitude, 4);
    shifted += 0.5f;
    __builtin_memcpy(&magnitude, &shifted, 4);
    return static_cast<unsigned short>(sign | (magnitude - 0x3f000000u));
  }
  magnitude += 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<unsigned short>(sign | ((magnitude - 0x38000000u) >> 13));
}

inline float valueOf(unsigned short half) {
  unsigned bits = (half & 0x7fffu) << 13;
  const unsigned exponent = bits & 0x0f800000u;
  bits += 0x38000000u;
  float value;
  if (exponent == 0x0f800000u) bits += 0x38000000u;
  if (exponent == 0) {
    bits += 0x00800000u;
    __builtin_memcpy(&value, &bits, 4);
    value -= 0x1p-14f;
  } else {
    __builtin_memcpy(&value, &bits, 4);
  }
  return half & 0x8000u ? -value : value;
}
#endif

class half {
 public:
  half() = default;
  half(float value) {
#ifdef NX_STOCHASTIC
    const unsigned short bits = stochasticBits(value);
    __builtin_memcpy(&value_, &bits, 2);
#elif defined(NX_SOFT_HALF)
    value_ = nearestBits(value);
#else
    value_ = static_cast<_Float16>(value);
#endif
  }
  operator float() const {
#ifdef NX_SOFT_HALF
    return valueOf(value_);
#else
    return static_cast<float>(value_);
#endif
  }

  // Public: the bits are read as such.
#ifdef NX_SOFT_HALF
  unsigned short value_;
#else
  _Float16 value_;
#endif
};

}  // namespace nxhost

using half = nxhost::half;
