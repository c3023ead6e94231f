// How the host runs vertices: the columns of a group of vertices, and the loop over them.
//
// The structures have the layout of their namesakes in host.py.
#pragma once

#include <poplar/Vertex.hpp>

namespace nxhost {

constexpr int maxRank = 8;

struct Column {
  char *base;                // the variable's memory
  const long long *offsets;  // elements, one per vertex
  long long count;           // elements of a box
  long long sizes[maxRank];
  long long strides[maxRank];  // in elements
  long long scratch;           // bytes from the scratch memory's start; -1: the box is contiguous
  int rank;
  int itemsize;
  int reads;
  int writes;
};

struct Number {
  const unsigned *words;
  long long step;  // 0: all vertices have the same one
};

struct Launch {
  const Column *columns;
  const Number *numbers;
  unsigned long long seed;
};

// Rows of a box that lie as columns: `depth` elements far apart, rows side by side.
template <typename T, int depth>
inline void turned(T *__restrict to, const T *__restrict from, long long rows, long long step) {
  for (long long r = 0; r < rows; ++r)
    for (int j = 0; j < depth; ++j) to[r * depth + j] = from[r + j * step];
}

template <typename T>
inline void gather(T *to, const T *from, const Column &c, int d) {
  const long long n = c.sizes[d], step = c.strides[d];
  if (d + 1 == c.rank) {
    if (step == 1)
      __builtin_memcpy(to, from, n * sizeof(T));
    else
      for (long long i = 0; i < n; ++i) to[i] = from[i * step];
    return;
  }
  if (d + 2 == c.rank && step == 1 && (c.sizes[d + 1] == 8 || c.sizes[d + 1] == 16)) {
    c.sizes[d + 1] == 8 ? turned<T, 8>(to, from, n, c.strides[d + 1]) : turned<T, 16>(to, from, n, c.strides[d + 1]);
    return;
  }
  long long inner = 1;
  for (int k = d + 1; k < c.rank; ++k) inner *= c.sizes[k];
  for (long long i = 0; i < n; ++i) gather(to + i * inner, from + i * step, c, d + 1);
}

template <typename T>
inline void scatter(T *to, const T *from, const Column &c, int d) {
  const long long n = c.sizes[d], step = c.strides[d];
  if (d + 1 == c.rank) {
    if (step == 1)
      __builtin_memcpy(to, from, n * sizeof(T));
    else
      for (long long i = 0; i < n; ++i) to[i * step] = from[i];
    return;
  }
  long long inner = 1;
  for (int k = d + 1; k < c.rank; ++k) inner *= c.sizes[k];
  for (long long i = 0; i < n; ++i) scatter(to + i * step, from + i * inner, c, d + 1);
}

template <typename F>
inline F *begin(const Column &c, long long vertex, char *scratch) {
  F *const there = reinterpret_cast<F *>(c.base) + c.offsets[vertex];
  if (c.scratch < 0) return there;
  F *const here = reinterpret_cast<F *>(scratch + c.scratch);
  if (c.reads) gather<F>(here, there, c, 0);
  return here;
}

template <typename F>
inline void end(const Column &c, long long vertex, char *scratch) {
  if (c.scratch >= 0 && c.writes)
    scatter<F>(reinterpret_cast<F *>(c.base) + c.offsets[vertex], reinterpret_cast<const F *>(scratch + c.scratch), c,
               0);
}

template <typename M, typename F>
inline void connect(M &member, F *first, long long count) {
  member.first_ = first;
  member.count_ = static_cast<unsigned>(count);
}

// Members that a vertex holds are constants to it; the graph compiler fills them in.
template <typename M>
inline void set(const M &member, const Number &n, long long vertex) {
  static_assert(sizeof(M) == 4, "attributes are words");
  __builtin_memcpy(const_cast<M *>(&member), &n.words[vertex * n.step], 4);
}

inline unsigned long long seedOf(unsigned long long seed, unsigned long long vertex) {
  // splitmix64, Steele, Lea and Flood (2014).
  unsigned long long z = seed + (vertex + 1) * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  z ^= z >> 31;
  return z ? z : 1;
}

}  // namespace nxhost
