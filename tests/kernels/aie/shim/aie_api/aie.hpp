// The part of AMD's AIE API that the kernels use, for the host's compiler: what each call means, element by element.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

using int8 = int8_t;
using int16 = int16_t;
using int32 = int32_t;

struct bfloat16 {
  uint16_t bits;
  bfloat16() = default;
  explicit bfloat16(float x) {
    uint32_t u;
    std::memcpy(&u, &x, 4);
    bits = std::isnan(x) ? 0x7fc0 : (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
  }
  operator float() const {
    uint32_t u = (uint32_t)bits << 16;
    float x;
    std::memcpy(&x, &u, 4);
    return x;
  }
};

struct accauto {};
struct accfloat {};
struct acc32 {};
struct acc64 {};

namespace aie {
enum class rounding_mode { floor, conv_even, symmetric_inf, positive_inf };
enum class saturation_mode { none, saturate };
inline rounding_mode rounding = rounding_mode::floor;
inline saturation_mode saturation = saturation_mode::none;
inline void set_rounding(rounding_mode m) { rounding = m; }
inline void set_saturation(saturation_mode m) { saturation = m; }

template <class T, unsigned N> struct vector {
  T v[N];
};
template <unsigned N, class T> vector<T, N> load_v(const T *p) {
  vector<T, N> y;
  std::memcpy(y.v, p, sizeof(y.v));
  return y;
}
template <class T, unsigned N> void store_v(T *p, const vector<T, N> &x) { std::memcpy(p, x.v, sizeof(x.v)); }
template <class T, unsigned N> vector<T, N> broadcast(T x) {
  vector<T, N> y;
  for (auto &e : y.v) e = x;
  return y;
}
template <class T, unsigned N> vector<T, N> zeros() { return broadcast<T, N>(T(0)); }
template <class T, unsigned N> vector<T, 2 * N> concat(const vector<T, N> &a, const vector<T, N> &b) {
  vector<T, 2 * N> y;
  std::memcpy(y.v, a.v, sizeof(a.v));
  std::memcpy(y.v + N, b.v, sizeof(b.v));
  return y;
}
template <class T, unsigned N> vector<T, N> add(const vector<T, N> &a, const vector<T, N> &b) {
  vector<T, N> y;
  for (unsigned i = 0; i < N; ++i) y.v[i] = (T)((uint32_t)a.v[i] + (uint32_t)b.v[i]);
  return y;
}
template <class T, unsigned N> vector<T, N> add(const vector<T, N> &a, T b) { return add(a, broadcast<T, N>(b)); }
template <class T, unsigned N> vector<T, N> max(const vector<T, N> &a, const vector<T, N> &b) {
  vector<T, N> y;
  for (unsigned i = 0; i < N; ++i) y.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i];
  return y;
}
template <class T, unsigned N> vector<T, N> min(const vector<T, N> &a, const vector<T, N> &b) {
  vector<T, N> y;
  for (unsigned i = 0; i < N; ++i) y.v[i] = a.v[i] < b.v[i] ? a.v[i] : b.v[i];
  return y;
}

template <class T> struct lane { using type = int64_t; };
template <> struct lane<float> { using type = float; };
template <> struct lane<bfloat16> { using type = float; };
template <> struct lane<accfloat> { using type = float; };

inline int64_t shifted(int64_t x, int shift) {
  if (!shift) return x;
  const int64_t half = (int64_t)1 << (shift - 1);
  if (rounding == rounding_mode::floor) return x >> shift;
  if (rounding == rounding_mode::symmetric_inf && x < 0) return -((-x + half) >> shift);
  return (x + half) >> shift;
}
template <class T> T kept(int64_t x) {
  const int64_t high = ((int64_t)1 << (8 * sizeof(T) - 1)) - 1;
  if (saturation == saturation_mode::saturate) x = x > high ? high : x < -high - 1 ? -high - 1 : x;
  return (T)x;
}
template <class Tag, unsigned N> struct accum {
  using L = typename lane<Tag>::type;
  L v[N];
  accum() = default;
  template <class T> explicit accum(const vector<T, N> &x) {
    for (unsigned i = 0; i < N; ++i) v[i] = (L)x.v[i];
  }
  template <class T> void from_vector(const vector<T, N> &x) { *this = accum(x); }
  template <class T> vector<T, N> to_vector(int shift = 0) const {
    vector<T, N> y;
    for (unsigned i = 0; i < N; ++i) {
      if constexpr (sizeof(L) == 4) y.v[i] = T((float)v[i]);
      else y.v[i] = kept<T>(shifted(v[i], shift));
    }
    return y;
  }
};
template <unsigned N> accum<acc64, N> mul(const vector<int32, N> &a, const vector<int32, N> &b) {
  accum<acc64, N> y;
  for (unsigned i = 0; i < N; ++i) y.v[i] = (int64_t)a.v[i] * b.v[i];
  return y;
}
template <unsigned N> accum<accfloat, N> mul(const vector<bfloat16, N> &a, const vector<bfloat16, N> &b) {
  accum<accfloat, N> y;
  for (unsigned i = 0; i < N; ++i) y.v[i] = (float)a.v[i] * (float)b.v[i];
  return y;
}
template <class Tag, class T, unsigned N> accum<Tag, N> add(const accum<Tag, N> &a, const vector<T, N> &b) {
  accum<Tag, N> y = a;
  for (unsigned i = 0; i < N; ++i) y.v[i] += (typename lane<Tag>::type)b.v[i];
  return y;
}

template <unsigned M, unsigned K, unsigned N, class A, class B, class Tag> struct mmul {
  static constexpr unsigned size_A = M * K, size_B = K * N, size_C = M * N;
  using L = typename lane<A>::type;
  L v[M * N];
  template <class T> explicit mmul(const vector<T, M * N> &c) {
    for (unsigned i = 0; i < M * N; ++i) v[i] = (L)c.v[i];
  }
  void mac(const vector<A, M * K> &a, const vector<B, K * N> &b) {
    for (unsigned i = 0; i < M; ++i)
      for (unsigned j = 0; j < N; ++j) {
        if constexpr (sizeof(L) == 4) {
          double sum = 0;
          for (unsigned l = 0; l < K; ++l) sum += (double)(float)a.v[i * K + l] * (double)(float)b.v[l * N + j];
          v[i * N + j] = (float)(v[i * N + j] + sum);
        } else {
          for (unsigned l = 0; l < K; ++l) v[i * N + j] += (int64_t)a.v[i * K + l] * b.v[l * N + j];
        }
      }
  }
  template <class T> vector<T, M * N> to_vector() const {
    vector<T, M * N> y;
    for (unsigned i = 0; i < M * N; ++i) y.v[i] = T(v[i]);
    return y;
  }
};
} // namespace aie
