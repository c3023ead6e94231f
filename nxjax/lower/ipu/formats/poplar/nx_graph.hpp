// What main.cpp is written with: tensors from tables, vertices in columns, a session with its streams.
//
// Tables hold what would be thousands of lines: where boxes begin, on which tile each is, constants. They are in
// tables.bin, an array after the other: 8 bytes of length in bytes, then the bytes, little endian.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <poplar/DeviceManager.hpp>
#include <poplar/Engine.hpp>
#include <poplar/Graph.hpp>
#include <poplar/IPUModel.hpp>
#include <poplar/Program.hpp>

namespace nx {

using Sizes = std::vector<std::size_t>;
using Strides = std::vector<std::int64_t>;

class Tables {
 public:
  explicit Tables(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error("cannot read " + path);
    std::uint64_t length = 0;
    while (file.read(reinterpret_cast<char *>(&length), sizeof length)) {
      std::vector<char> bytes(length);
      if (length && !file.read(bytes.data(), static_cast<std::streamsize>(length)))
        throw std::runtime_error(path + " ends too early");
      arrays_.push_back(std::move(bytes));
    }
  }
  template <typename T>
  std::vector<T> as(std::size_t table) const {
    const std::vector<char> &bytes = arrays_.at(table);
    std::vector<T> values(bytes.size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
    return values;
  }
  const char *bytes(std::size_t table) const { return arrays_.at(table).data(); }

 private:
  std::vector<std::vector<char>> arrays_;
};

// Equal boxes of a tensor: where each begins (a table of int64), their sizes and strides in elements.
struct Boxes {
  std::size_t offsets;
  Sizes sizes;
  Strides strides;
};

// One box of a flat tensor as a flat tensor, in the box's order.
inline poplar::Tensor box(const poplar::Tensor &flat, std::int64_t offset, const Sizes &sizes, const Strides &strides) {
  std::size_t count = 1;
  for (std::size_t n : sizes) count *= n;
  if (count == 0) return flat.slice(0, 0);
  // The innermost run of elements that a slice can name; the dimensions around it are walked.
  std::size_t inner = sizes.size();
  std::size_t run = 1;
  while (inner > 0 && (sizes[inner - 1] == 1 || strides[inner - 1] == static_cast<std::int64_t>(run)))
    run *= sizes[--inner];
  std::vector<poplar::Tensor> runs;
  std::vector<std::size_t> at(inner, 0);
  for (;;) {
    std::int64_t begin = offset;
    for (std::size_t d = 0; d < inner; ++d) begin += static_cast<std::int64_t>(at[d]) * strides[d];
    runs.push_back(flat.slice(static_cast<std::size_t>(begin), static_cast<std::size_t>(begin) + run));
    std::size_t d = inner;
    while (d > 0 && ++at[d - 1] == sizes[d - 1]) at[--d] = 0;
    if (d == 0) break;
  }
  return runs.size() == 1 ? runs[0] : poplar::concat(runs);
}

// Where boxes of a variable lie: a table of int32 with a tile for each.
struct Piece {
  Boxes boxes;
  std::size_t tiles;
};

struct Edge {
  const char *field;
  poplar::Tensor flat;
  Boxes boxes;
};

// An attribute: one number, or a table with a number (32 bits) for each vertex.
template <typename T>
struct Attribute {
  const char *name;
  T value;
  std::int64_t table = -1;
};

class Session {
 public:
  Session(int argc, char **argv, const char *version, unsigned ipus)
      : options_(parse(argc, argv)),
        devices_(choose(option("device", "ipu"), version, ipus)),
        graph(devices_.empty() ? poplar::Target::createIPUTarget(ipus, version) : devices_[0].getTarget()),
        tables(option("data", ".") + "/tables.bin") {}

 private:
  std::map<std::string, std::string> options_;
  std::vector<poplar::Device> devices_;  // one, or none when the program is only compiled

 public:
  poplar::Graph graph;
  Tables tables;

  std::string option(const std::string &name, const std::string &otherwise) const {
    const auto found = options_.find(name);
    return found == options_.end() ? otherwise : found->second;
  }

  poplar::Tensor variable(const poplar::Type &type, std::size_t size, const char *name, const std::vector<Piece> &pieces) {
    poplar::Tensor v = graph.addVariable(type, {size}, name);
    place(v, pieces);
    return v;
  }

  template <typename T>
  poplar::Tensor constant(const poplar::Type &type, std::size_t size, const char *name, std::size_t table,
                          const std::vector<Piece> &pieces) {
    const std::vector<T> values = tables.as<T>(table);
    poplar::Tensor v = make(type, size, values, name);
    place(v, pieces);
    return v;
  }

  // Vertices of one codelet, one for each tile of the table `tiles`.
  void vertices(poplar::ComputeSet &set, const char *codelet, std::size_t tiles, std::uint64_t cycles,
                const std::vector<Edge> &edges, const std::vector<Attribute<unsigned>> &unsigneds,
                const std::vector<Attribute<int>> &ints, const std::vector<Attribute<float>> &floats) {
    const std::vector<std::int32_t> where = tables.as<std::int32_t>(tiles);
    std::vector<std::vector<std::int64_t>> offsets;
    for (const Edge &e : edges) offsets.push_back(tables.as<std::int64_t>(e.boxes.offsets));
    for (std::size_t i = 0; i < where.size(); ++i) {
      poplar::VertexRef v = graph.addVertex(set, codelet);
      graph.setTileMapping(v, static_cast<unsigned>(where[i]));
      graph.setPerfEstimate(v, cycles);
      for (std::size_t k = 0; k < edges.size(); ++k)
        graph.connect(v[edges[k].field], box(edges[k].flat, offsets[k][i], edges[k].boxes.sizes, edges[k].boxes.strides));
      initial(v, unsigneds, i);
      initial(v, ints, i);
      initial(v, floats, i);
    }
  }

  // Streams, and the run: inputs from in_<i>.bin, outputs to out_<i>.bin, in the folder --data.
  void input(poplar::program::Sequence &steps, const poplar::Tensor &v, std::size_t bytes) {
    const std::string name = "in_" + std::to_string(inputs_.size());
    poplar::DataStream stream = graph.addHostToDeviceFIFO(name, v.elementType(), v.numElements());
    steps.add(poplar::program::Copy(stream, v));
    inputs_.emplace_back(bytes);
  }
  void output(poplar::program::Sequence &steps, const poplar::Tensor &v, std::size_t bytes) {
    const std::string name = "out_" + std::to_string(outputs_.size());
    poplar::DataStream stream = graph.addDeviceToHostFIFO(name, v.elementType(), v.numElements());
    steps.add(poplar::program::Copy(v, stream));
    outputs_.emplace_back(bytes);
  }

  // Programs: load states, one run, save states.
  int run(const std::vector<poplar::program::Program> &programs, const poplar::OptionFlags &flags) {
    poplar::Engine engine(graph, programs, flags);
    if (devices_.empty()) return 0;
    engine.load(devices_[0]);
    const std::string data = option("data", ".");
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const std::string name = "in_" + std::to_string(i);
      std::ifstream file(data + "/" + name + ".bin", std::ios::binary);
      if (!inputs_[i].empty() && !file.read(inputs_[i].data(), static_cast<std::streamsize>(inputs_[i].size())))
        throw std::runtime_error("cannot read " + name + ".bin");
      engine.connectStream(name, inputs_[i].data());
    }
    for (std::size_t i = 0; i < outputs_.size(); ++i)
      engine.connectStream("out_" + std::to_string(i), outputs_[i].data());
    const int runs = std::atoi(option("runs", "1").c_str());
    engine.run(0);
    for (int i = 0; i < runs; ++i) engine.run(1);
    engine.run(2);
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      std::ofstream file(data + "/out_" + std::to_string(i) + ".bin", std::ios::binary);
      file.write(outputs_[i].data(), static_cast<std::streamsize>(outputs_[i].size()));
      if (!file) throw std::runtime_error("cannot write out_" + std::to_string(i) + ".bin");
    }
    if (option("profile", "").size()) engine.printProfileSummary(std::cout, {});
    return 0;
  }

 private:
  std::vector<std::vector<char>> inputs_, outputs_;

  static std::map<std::string, std::string> parse(int argc, char **argv) {
    std::map<std::string, std::string> found;
    for (int i = 1; i < argc; ++i) {
      const std::string word = argv[i];
      const std::size_t equals = word.find('=');
      if (word.rfind("--", 0) != 0 || equals == std::string::npos)
        throw std::runtime_error("options are --device=ipu|model|cpu|offline, --data=FOLDER, --runs=N, --profile=1");
      found[word.substr(2, equals - 2)] = word.substr(equals + 1);
    }
    return found;
  }

  static std::vector<poplar::Device> choose(const std::string &kind, const char *version, unsigned ipus) {
    std::vector<poplar::Device> found;
    if (kind == "cpu") {
      found.push_back(poplar::Device::createCPUDevice());
    } else if (kind == "model") {
      poplar::IPUModel model(version);
      model.numIPUs = ipus;
      found.push_back(model.createDevice());
    } else if (kind == "ipu") {
      poplar::DeviceManager manager = poplar::DeviceManager::createDeviceManager();
      for (poplar::Device &d : manager.getDevices(poplar::TargetType::IPU, ipus))
        if (found.empty() && d.attach()) found.push_back(std::move(d));
      if (found.empty()) throw std::runtime_error("no " + std::to_string(ipus) + " free IPUs here");
    } else if (kind != "offline") {
      throw std::runtime_error("--device is ipu, model, cpu or offline, not " + kind);
    }
    return found;
  }

  template <typename T>
  poplar::Tensor make(const poplar::Type &type, std::size_t size, const std::vector<T> &values, const char *name) {
    return graph.addConstant<T>(type, {size}, values.data(), name);
  }

  void place(const poplar::Tensor &v, const std::vector<Piece> &pieces) {
    for (const Piece &p : pieces) {
      const std::vector<std::int64_t> offsets = tables.as<std::int64_t>(p.boxes.offsets);
      const std::vector<std::int32_t> tiles = tables.as<std::int32_t>(p.tiles);
      for (std::size_t i = 0; i < tiles.size(); ++i)
        graph.setTileMapping(box(v, offsets[i], p.boxes.sizes, p.boxes.strides), static_cast<unsigned>(tiles[i]));
    }
  }

  template <typename T>
  void initial(poplar::VertexRef &v, const std::vector<Attribute<T>> &attributes, std::size_t i) {
    for (const Attribute<T> &a : attributes) {
      const T value = a.table < 0 ? a.value : tables.as<T>(static_cast<std::size_t>(a.table))[i];
      graph.setInitialValue(v[a.name], value);
    }
  }
};

// Halves are constants by their bits.
template <>
inline poplar::Tensor Session::make<std::uint16_t>(const poplar::Type &type, std::size_t size,
                                                   const std::vector<std::uint16_t> &values, const char *name) {
  if (type == poplar::HALF) return graph.addConstantHalf(type, {size}, values.data(), name);
  return graph.addConstant<std::uint16_t>(type, {size}, values.data(), name);
}

}  // namespace nx
