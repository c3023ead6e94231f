// The names of Poplar's graph interface that our projects use, executed on the host.
//
// Our own small implementation, to run an emitted project without the SDK: it computes, it checks what Poplar checks
// (every element on a tile, every field connected, no conflicts within a compute set), it measures nothing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "Registry.hpp"

namespace poplar {

struct poplar_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Type {
 public:
  Type() = default;
  Type(const char *name, unsigned size) : name_(name), size_(size) {}
  unsigned size() const { return size_; }
  std::string toString() const { return name_; }
  bool operator==(const Type &other) const { return !std::strcmp(name_, other.name_); }
  bool operator!=(const Type &other) const { return !(*this == other); }

 private:
  const char *name_ = "";
  unsigned size_ = 0;
};

inline const Type FLOAT{"float", 4}, HALF{"half", 2}, INT{"int", 4}, UNSIGNED_INT{"unsigned int", 4}, SHORT{"short", 2},
    UNSIGNED_SHORT{"unsigned short", 2}, SIGNED_CHAR{"signed char", 1}, UNSIGNED_CHAR{"unsigned char", 1},
    BOOL{"bool", 1};

enum class TargetType { IPU, IPU_MODEL, CPU };

class Target {
 public:
  static Target createIPUTarget(unsigned ipus, const std::string &version) {
    Target t;
    t.ipus_ = ipus;
    t.tiles_ = version == "ipu1" ? 1216 : 1472;
    return t;
  }
  unsigned getNumIPUs() const { return ipus_; }
  unsigned getTilesPerIPU() const { return tiles_; }
  unsigned getNumTiles() const { return ipus_ * tiles_; }

 private:
  unsigned ipus_ = 1, tiles_ = 1472;
};

template <typename T>
class ArrayRef {
 public:
  ArrayRef(std::initializer_list<T> values) : values_(values) {}
  ArrayRef(const std::vector<T> &values) : values_(values) {}
  const std::vector<T> &vector() const { return values_; }

 private:
  std::vector<T> values_;
};

namespace host {

struct Memory {
  std::string name;
  Type type;
  std::vector<char> bytes;
  std::vector<std::int32_t> tiles;
  bool constant = false;
};

struct Element {
  std::uint32_t variable;
  std::uint64_t index;
};

inline std::size_t product(const std::vector<std::size_t> &shape) {
  std::size_t n = 1;
  for (std::size_t d : shape) n *= d;
  return n;
}

}  // namespace host

// Elements of variables in some order. Only what our projects use: one-dimensional slicing and joining.
class Tensor {
 public:
  Tensor() = default;
  Tensor(Type type, std::vector<std::size_t> shape, std::vector<host::Element> elements)
      : type_(type), shape_(std::move(shape)), elements_(std::move(elements)) {}

  const Type &elementType() const { return type_; }
  std::size_t numElements() const { return elements_.size(); }
  const std::vector<std::size_t> &shape() const { return shape_; }
  unsigned rank() const { return static_cast<unsigned>(shape_.size()); }
  Tensor flatten() const { return {type_, {elements_.size()}, elements_}; }
  Tensor reshape(ArrayRef<std::size_t> shape) const {
    if (host::product(shape.vector()) != elements_.size()) throw poplar_error("reshape: another number of elements");
    return {type_, shape.vector(), elements_};
  }
  Tensor slice(std::size_t begin, std::size_t end, unsigned dimension = 0) const {
    if (dimension != 0 || shape_.empty() || begin > end || end > shape_[0]) throw poplar_error("slice: out of range");
    const std::size_t inner = shape_[0] ? elements_.size() / shape_[0] : 0;
    std::vector<std::size_t> shape = shape_;
    shape[0] = end - begin;
    return {type_, shape, {elements_.begin() + static_cast<std::ptrdiff_t>(begin * inner),
                           elements_.begin() + static_cast<std::ptrdiff_t>(end * inner)}};
  }
  Tensor operator[](std::size_t i) const {
    Tensor found = slice(i, i + 1);
    found.shape_.erase(found.shape_.begin());
    return found;
  }
  const std::vector<host::Element> &elements() const { return elements_; }

 private:
  Type type_;
  std::vector<std::size_t> shape_;
  std::vector<host::Element> elements_;
};

inline Tensor concat(const std::vector<Tensor> &parts, unsigned dimension = 0) {
  if (parts.empty() || dimension != 0) throw poplar_error("concat: nothing to join, or not along dimension 0");
  std::vector<host::Element> all;
  std::size_t rows = 0;
  for (const Tensor &t : parts) {
    if (t.elementType() != parts[0].elementType()) throw poplar_error("concat: tensors of different types");
    all.insert(all.end(), t.elements().begin(), t.elements().end());
    rows += t.shape().at(0);
  }
  std::vector<std::size_t> shape = parts[0].shape();
  shape[0] = rows;
  return {parts[0].elementType(), shape, std::move(all)};
}

class ComputeSet {
 public:
  std::size_t id = 0;
};

class DataStream {
 public:
  std::string handle;
  std::size_t bytes = 0;
};

class Function {
 public:
  std::size_t id = 0;
};

class Graph;

class FieldRef {
 public:
  std::size_t set, vertex;
  std::string name;
};

class VertexRef {
 public:
  FieldRef operator[](const std::string &name) const { return {set, vertex, name}; }
  std::size_t set = 0, vertex = 0;
};

namespace host {

struct Vertex {
  const CodeletEntry *codelet;
  std::int32_t tile = -1;
  std::map<std::string, std::vector<Element>> fields;
  std::map<std::string, std::uint32_t> attributes;
};

}  // namespace host

namespace program {
class Program;
}

class Graph {
 public:
  explicit Graph(const Target &target) : target_(target) {}
  const Target &getTarget() const { return target_; }

  // Codelets are linked in; the file is the SDK's.
  bool addCodelets(const std::string &) { return true; }

  Tensor addVariable(const Type &type, ArrayRef<std::size_t> shape, const std::string &name = "") {
    const std::size_t n = host::product(shape.vector());
    memory.push_back({name, type, std::vector<char>(n * type.size()), std::vector<std::int32_t>(n, -1), false});
    std::vector<host::Element> elements(n);
    for (std::size_t i = 0; i < n; ++i) elements[i] = {static_cast<std::uint32_t>(memory.size() - 1), i};
    return {type, shape.vector(), std::move(elements)};
  }
  template <typename T>
  Tensor addConstant(const Type &type, ArrayRef<std::size_t> shape, const T *values, const std::string &name = "") {
    if (sizeof(T) != type.size()) throw poplar_error(name + ": values of another size than the constant's type");
    Tensor t = addVariable(type, shape, name);
    std::vector<char> &bytes = memory.back().bytes;
    if (!bytes.empty()) std::memcpy(bytes.data(), values, bytes.size());
    memory.back().constant = true;
    return t;
  }
  Tensor addConstantHalf(const Type &type, ArrayRef<std::size_t> shape, const std::uint16_t *values,
                         const std::string &name = "") {
    return addConstant<std::uint16_t>(type, shape, values, name);
  }

  void setTileMapping(const Tensor &t, unsigned tile) {
    check(tile);
    for (const host::Element &e : t.elements()) memory[e.variable].tiles[e.index] = static_cast<std::int32_t>(tile);
  }
  void setTileMapping(const VertexRef &v, unsigned tile) {
    check(tile);
    sets[v.set].second[v.vertex].tile = static_cast<std::int32_t>(tile);
  }

  ComputeSet addComputeSet(const std::string &name = "") {
    sets.emplace_back(name, std::vector<host::Vertex>{});
    ComputeSet made;
    made.id = sets.size() - 1;
    return made;
  }
  VertexRef addVertex(const ComputeSet &set, const std::string &codelet) {
    for (const host::CodeletEntry *e = host::codelets(); e; e = e->next)
      if (codelet == e->name) {
        host::Vertex made;
        made.codelet = e;
        sets[set.id].second.push_back(std::move(made));
        VertexRef ref;
        ref.set = set.id;
        ref.vertex = sets[set.id].second.size() - 1;
        return ref;
      }
    throw poplar_error("no codelet " + codelet);
  }
  void connect(const FieldRef &f, const Tensor &t) {
    host::Vertex &v = sets[f.set].second[f.vertex];
    for (int i = 0; i < v.codelet->fieldCount; ++i)
      if (f.name == v.codelet->fields[i].name) {
        if (t.elementType().size() != v.codelet->fields[i].itemsize)
          throw poplar_error(f.name + " of " + v.codelet->name + ": a tensor of another type");
        v.fields[f.name] = t.elements();
        return;
      }
    throw poplar_error(std::string(v.codelet->name) + " has no field " + f.name);
  }
  template <typename T>
  void setInitialValue(const FieldRef &f, const T &value) {
    static_assert(sizeof(T) == 4, "attributes are words");
    host::Vertex &v = sets[f.set].second[f.vertex];
    for (int i = 0; i < v.codelet->attributeCount; ++i)
      if (f.name == v.codelet->attributes[i].name) {
        std::memcpy(&v.attributes[f.name], &value, 4);
        return;
      }
    throw poplar_error(std::string(v.codelet->name) + " has no attribute " + f.name);
  }
  void setPerfEstimate(const VertexRef &, std::uint64_t) {}

  DataStream addHostToDeviceFIFO(const std::string &handle, const Type &type, std::size_t elements) {
    return stream(handle, type, elements);
  }
  DataStream addDeviceToHostFIFO(const std::string &handle, const Type &type, std::size_t elements) {
    return stream(handle, type, elements);
  }
  inline Function addFunction(const program::Program &body);

  // What the engine executes.
  std::vector<host::Memory> memory;
  std::vector<std::pair<std::string, std::vector<host::Vertex>>> sets;
  std::vector<std::shared_ptr<program::Program>> functions;

 private:
  void check(unsigned tile) const {
    if (tile >= target_.getNumTiles()) throw poplar_error("there is no tile " + std::to_string(tile));
  }
  static DataStream stream(const std::string &handle, const Type &type, std::size_t elements) {
    DataStream made;
    made.handle = handle;
    made.bytes = elements * type.size();
    return made;
  }
  Target target_;
};

}  // namespace poplar
