// The names of Poplar's vertex interface that codelets use, for the host's compiler.
//
// Our own small implementation: a vertex's members have the layout that nxhost.hpp fills in, nothing else is meant to
// be compatible. Code for tiles is compiled against Poplar's own header of this name instead.
#pragma once

#include "HalfFloat.hpp"

namespace poplar {

enum class VectorLayout { SPAN, ONE_PTR, COMPACT_PTR };

// A tile's six worker threads run a MultiVertex together. Which of them does what changes no result, so the model may
// run all of it as one worker's work, in one go.
#ifndef NX_WORKERS
#define NX_WORKERS 6
#endif
constexpr unsigned workersPerTile = NX_WORKERS;

class Vertex {};

class MultiVertex {
 public:
  static constexpr unsigned numWorkers() { return workersPerTile; }
};

class SupervisorVertex {};

// A field of several elements: a pointer, and for spans the number of elements.
template <typename T, VectorLayout layout = VectorLayout::SPAN, unsigned align = 0, bool interleaved = false>
class Vector {
 public:
  T &operator[](unsigned long i) const { return first_[i]; }
  T &operator*() const { return *first_; }
  T *begin() const { return first_; }
  T *end() const {
    static_assert(layout == VectorLayout::SPAN, "only spans know their size");
    return first_ + count_;
  }
  T *data() const { return first_; }
  unsigned size() const {
    static_assert(layout == VectorLayout::SPAN, "only spans know their size");
    return count_;
  }

  T *first_;
  unsigned count_;
};

namespace detail {

// A scalar field: a pointer to its one element.
template <typename T>
class Scalar {
 public:
  T &operator*() const { return *first_; }
  operator T &() const { return *first_; }

  T *first_;
  unsigned count_;
};

template <typename T>
struct Reads {
  using type = Scalar<const T>;
};
template <typename T, VectorLayout layout, unsigned align, bool interleaved>
struct Reads<Vector<T, layout, align, interleaved>> {
  using type = Vector<const T, layout, align, interleaved>;
};

template <typename T>
struct Writes {
  class type : public Scalar<T> {
   public:
    const T &operator=(const T &value) const { return *this->first_ = value; }
  };
};
template <typename T, VectorLayout layout, unsigned align, bool interleaved>
struct Writes<Vector<T, layout, align, interleaved>> {
  using type = Vector<T, layout, align, interleaved>;
};

}  // namespace detail

template <typename T>
class Input : public detail::Reads<T>::type {};

template <typename T>
class Output : public detail::Writes<T>::type {
 public:
  using detail::Writes<T>::type::operator=;
};

template <typename T>
class InOut : public detail::Writes<T>::type {
 public:
  using detail::Writes<T>::type::operator=;
};

}  // namespace poplar
