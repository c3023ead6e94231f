// Copies between strided arrays: the exchange, as far as values are concerned. Compiled once for all programs.

namespace {

constexpr int maxRank = 8;

struct Pair {
  const char *from;  // first elements
  char *to;
  long long sizes[maxRank];  // at least one dimension
  long long in[maxRank];     // strides, in elements
  long long out[maxRank];
  int rank;
  int itemsize;
};

template <typename T>
void strided(const Pair &p, const T *from, T *to, int d) {
  const long long n = p.sizes[d], in = p.in[d], out = p.out[d];
  if (d + 1 < p.rank) {
    for (long long i = 0; i < n; ++i) strided(p, from + i * in, to + i * out, d + 1);
  } else if (in == 1 && out == 1) {
    __builtin_memcpy(to, from, n * sizeof(T));
  } else if (in == 0 && out == 1) {
    const T value = *from;
    for (long long i = 0; i < n; ++i) to[i] = value;
  } else {
    for (long long i = 0; i < n; ++i) to[i * out] = from[i * in];
  }
}

// Two inner dimensions that change places, by blocks that stay in the cache.
template <typename T>
void transposed(const Pair &p, const T *from, T *to, int d) {
  if (d + 2 < p.rank) {
    for (long long i = 0; i < p.sizes[d]; ++i) transposed(p, from + i * p.in[d], to + i * p.out[d], d + 1);
    return;
  }
  constexpr long long block = 32;
  const long long rows = p.sizes[d], columns = p.sizes[d + 1];
  for (long long r = 0; r < rows; r += block)
    for (long long c = 0; c < columns; c += block) {
      const long long lastRow = r + block < rows ? r + block : rows;
      const long long lastColumn = c + block < columns ? c + block : columns;
      for (long long i = r; i < lastRow; ++i)
        for (long long j = c; j < lastColumn; ++j)
          to[i * p.out[d] + j * p.out[d + 1]] = from[i * p.in[d] + j * p.in[d + 1]];
    }
}

template <typename T>
void copy(const Pair &p) {
  const T *const from = reinterpret_cast<const T *>(p.from);
  T *const to = reinterpret_cast<T *>(p.to);
  const bool turns = p.rank >= 2 && p.in[p.rank - 1] != 1 && p.in[p.rank - 2] == 1 && p.out[p.rank - 1] == 1;
  turns ? transposed(p, from, to, 0) : strided(p, from, to, 0);
}

}  // namespace

extern "C" void nx_copy(const Pair *pairs, long long begin, long long end) {
  for (long long i = begin; i < end; ++i) switch (pairs[i].itemsize) {
      case 1: copy<unsigned char>(pairs[i]); break;
      case 2: copy<unsigned short>(pairs[i]); break;
      default: copy<unsigned>(pairs[i]);
    }
}
