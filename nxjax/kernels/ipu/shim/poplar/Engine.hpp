// Runs control programs on the host, vertex after vertex.
#pragma once

#include <ostream>
#include <set>

#include "Graph.hpp"
#include "Program.hpp"

namespace poplar {

using OptionFlags = std::map<std::string, std::string>;

class Device {
 public:
  static Device createCPUDevice() { return Device(Target::createIPUTarget(1, "ipu2")); }
  explicit Device(const Target &target) : target_(target) {}
  const Target &getTarget() const { return target_; }
  bool attach() const { return true; }

 private:
  Target target_;
};

namespace host {

class Machine {
 public:
  Machine(Graph &graph, std::map<std::string, char *> &streams) : graph_(graph), streams_(streams) {}

  char *at(const Element &e) {
    Memory &m = graph_.memory[e.variable];
    return m.bytes.data() + e.index * m.type.size();
  }
  void copy(const Tensor &source, const Tensor &target) {
    const unsigned size = source.elementType().size();
    std::vector<char> held(source.numElements() * size);
    for (std::size_t i = 0; i < source.numElements(); ++i) std::memcpy(&held[i * size], at(source.elements()[i]), size);
    write(held.data(), target);
  }
  void write(const char *from, const Tensor &target) {
    const unsigned size = target.elementType().size();
    for (std::size_t i = 0; i < target.numElements(); ++i) std::memcpy(at(target.elements()[i]), from + i * size, size);
  }
  void read(const Tensor &source, char *to) {
    const unsigned size = source.elementType().size();
    for (std::size_t i = 0; i < source.numElements(); ++i) std::memcpy(to + i * size, at(source.elements()[i]), size);
  }
  char *stream(const DataStream &s) {
    const auto found = streams_.find(s.handle);
    if (found == streams_.end()) throw poplar_error("stream " + s.handle + " is not connected");
    return found->second;
  }
  void execute(const ComputeSet &set) {
    auto &vertices = graph_.sets[set.id].second;
    for (const Vertex &v : vertices) run(v);
  }
  const program::Program &function(const Function &f) { return *graph_.functions[f.id]; }

 private:
  void run(const Vertex &v) {
    const CodeletEntry &c = *v.codelet;
    std::vector<std::uint64_t> state(c.size / 8 + 2);
    std::vector<std::vector<char>> held(static_cast<std::size_t>(c.fieldCount));
    for (int k = 0; k < c.fieldCount; ++k) {
      const FieldEntry &f = c.fields[k];
      const std::vector<Element> &elements = v.fields.at(f.name);
      std::vector<char> &bytes = held[static_cast<std::size_t>(k)];
      bytes.resize(elements.size() * f.itemsize + 64);
      for (std::size_t i = 0; f.reads && i < elements.size(); ++i)
        std::memcpy(&bytes[i * f.itemsize], at(elements[i]), f.itemsize);
      f.connect(state.data(), bytes.data(), static_cast<unsigned>(elements.size()));
    }
    for (int k = 0; k < c.attributeCount; ++k)
      c.attributes[k].set(state.data(), &v.attributes.at(c.attributes[k].name));
    c.run(state.data());
    for (int k = 0; k < c.fieldCount; ++k) {
      const FieldEntry &f = c.fields[k];
      if (!f.writes) continue;
      const std::vector<Element> &elements = v.fields.at(f.name);
      for (std::size_t i = 0; i < elements.size(); ++i)
        std::memcpy(at(elements[i]), &held[static_cast<std::size_t>(k)][i * f.itemsize], f.itemsize);
    }
  }

  Graph &graph_;
  std::map<std::string, char *> &streams_;
};

// What Poplar refuses when it compiles a graph.
inline void check(const Graph &graph) {
  for (const Memory &m : graph.memory)
    for (std::int32_t tile : m.tiles)
      if (tile < 0) throw poplar_error(m.name + ": an element without a tile");
  for (const auto &set : graph.sets) {
    std::map<std::pair<std::uint32_t, std::uint64_t>, std::size_t> writer;
    const auto name = [](const Element &e) { return std::make_pair(e.variable, e.index); };
    for (int pass = 0; pass < 2; ++pass)
      for (std::size_t i = 0; i < set.second.size(); ++i) {
        const Vertex &v = set.second[i];
        if (v.tile < 0) throw poplar_error(set.first + ": a vertex without a tile");
        for (int k = 0; k < v.codelet->fieldCount; ++k) {
          const FieldEntry &f = v.codelet->fields[k];
          const auto found = v.fields.find(f.name);
          if (found == v.fields.end()) throw poplar_error(set.first + ": field " + f.name + " is not connected");
          for (const Element &e : found->second) {
            if (pass == 0 && f.writes) {
              if (graph.memory[e.variable].constant) throw poplar_error(set.first + ": writes a constant");
              const auto made = writer.emplace(name(e), i);
              if (!made.second && made.first->second != i) throw poplar_error(set.first + ": two vertices write one element");
            }
            if (pass == 1 && !f.writes) {
              const auto other = writer.find(name(e));
              if (other != writer.end() && other->second != i)
                throw poplar_error(set.first + ": a vertex reads what another one writes");
            }
          }
        }
        if (v.attributes.size() != static_cast<std::size_t>(v.codelet->attributeCount))
          throw poplar_error(set.first + ": an attribute of " + v.codelet->name + " has no value");
      }
  }
}

}  // namespace host

namespace program {

inline void Sequence::run(host::Machine &machine) const {
  for (const auto &step : steps_) step->run(machine);
}
inline void Execute::run(host::Machine &machine) const { machine.execute(set_); }
inline void Copy::run(host::Machine &machine) const {
  if (kind_ == 0) machine.copy(source_, target_);
  if (kind_ == 1) machine.write(machine.stream(stream_), target_);
  if (kind_ == 2) machine.read(source_, machine.stream(stream_));
}
inline void RepeatWhileTrue::run(host::Machine &machine) const {
  for (;;) {
    condition_->run(machine);
    bool again = false;
    machine.read(predicate_, reinterpret_cast<char *>(&again));
    if (!again) return;
    body_->run(machine);
  }
}
inline void Switch::run(host::Machine &machine) const {
  std::int32_t control = 0;
  machine.read(control_, reinterpret_cast<char *>(&control));
  for (const auto &c : cases_)
    if (c.first == control) return c.second->run(machine);
  otherwise_->run(machine);
}
inline void Call::run(host::Machine &machine) const { machine.function(function_).run(machine); }

}  // namespace program

class Engine {
 public:
  Engine(Graph &graph, const std::vector<program::Program> &programs, const OptionFlags & = {})
      : graph_(graph), programs_(programs) {
    host::check(graph);
  }
  void load(const Device &) {}
  void connectStream(const std::string &handle, void *data) { streams_[handle] = static_cast<char *>(data); }
  void run(unsigned program = 0) {
    host::Machine machine(graph_, streams_);
    programs_.at(program).run(machine);
  }
  void printProfileSummary(std::ostream &out, const OptionFlags & = {}) const {
    out << "the host measures no cycles" << std::endl;
  }

 private:
  Graph &graph_;
  std::vector<program::Program> programs_;
  std::map<std::string, char *> streams_;
};

}  // namespace poplar
