// Control programs on the host: what Engine.hpp executes.
#pragma once

#include "Graph.hpp"

namespace poplar {
namespace host {
class Machine;
}

namespace program {

// A value, as Poplar's: a copy of any kind of program is one of it.
class Program {
 public:
  Program() = default;
  Program(const Program &other) : whole_(other.clone()) {}
  Program &operator=(const Program &other) {
    whole_ = other.clone();
    return *this;
  }
  virtual ~Program() = default;
  virtual std::shared_ptr<Program> clone() const { return whole_; }
  virtual void run(host::Machine &machine) const { whole_->run(machine); }

 private:
  std::shared_ptr<Program> whole_;
};

template <typename P>
class Cloned : public Program {
 public:
  Cloned() = default;
  Cloned(const Cloned &) : Program() {}
  Cloned &operator=(const Cloned &) { return *this; }
  std::shared_ptr<Program> clone() const override { return std::make_shared<P>(static_cast<const P &>(*this)); }
};

class Sequence : public Cloned<Sequence> {
 public:
  void add(const Program &step) { steps_.push_back(step.clone()); }
  inline void run(host::Machine &machine) const override;

 private:
  std::vector<std::shared_ptr<Program>> steps_;
};

class Execute : public Cloned<Execute> {
 public:
  explicit Execute(const ComputeSet &set) : set_(set) {}
  inline void run(host::Machine &machine) const override;

 private:
  ComputeSet set_;
};

class Copy : public Cloned<Copy> {
 public:
  Copy(const Tensor &source, const Tensor &target) : source_(source), target_(target) {
    if (source.numElements() != target.numElements() || source.elementType() != target.elementType())
      throw poplar_error("copy: tensors of different types or sizes");
  }
  Copy(const DataStream &stream, const Tensor &target) : target_(target), stream_(stream), kind_(1) {}
  Copy(const Tensor &source, const DataStream &stream) : source_(source), stream_(stream), kind_(2) {}
  inline void run(host::Machine &machine) const override;

 private:
  Tensor source_, target_;
  DataStream stream_;
  int kind_ = 0;
};

class Repeat : public Cloned<Repeat> {
 public:
  Repeat(unsigned count, const Program &body) : count_(count), body_(body.clone()) {}
  void run(host::Machine &machine) const override {
    for (unsigned i = 0; i < count_; ++i) body_->run(machine);
  }

 private:
  unsigned count_;
  std::shared_ptr<Program> body_;
};

class RepeatWhileTrue : public Cloned<RepeatWhileTrue> {
 public:
  RepeatWhileTrue(const Program &condition, const Tensor &predicate, const Program &body)
      : condition_(condition.clone()), predicate_(predicate), body_(body.clone()) {}
  inline void run(host::Machine &machine) const override;

 private:
  std::shared_ptr<Program> condition_;
  Tensor predicate_;
  std::shared_ptr<Program> body_;
};

class Switch : public Cloned<Switch> {
 public:
  template <typename... Bodies>
  Switch(const Tensor &control, const std::vector<std::pair<std::int32_t, Sequence>> &cases, const Program &otherwise)
      : control_(control), otherwise_(otherwise.clone()) {
    for (const auto &c : cases) cases_.emplace_back(c.first, c.second.clone());
  }
  inline void run(host::Machine &machine) const override;

 private:
  Tensor control_;
  std::vector<std::pair<std::int32_t, std::shared_ptr<Program>>> cases_;
  std::shared_ptr<Program> otherwise_;
};

class Call : public Cloned<Call> {
 public:
  explicit Call(const Function &function) : function_(function) {}
  inline void run(host::Machine &machine) const override;

 private:
  Function function_;
};

}  // namespace program

inline Function Graph::addFunction(const program::Program &body) {
  functions.push_back(body.clone());
  Function made;
  made.id = functions.size() - 1;
  return made;
}

}  // namespace poplar
