// The SDK's model of an IPU has no counterpart here: the host only computes.
#pragma once

#include "Engine.hpp"

namespace poplar {

class IPUModel {
 public:
  explicit IPUModel(const std::string &version = "ipu2") : version_(version) {}
  Device createDevice() const { return Device(Target::createIPUTarget(numIPUs, version_)); }
  unsigned numIPUs = 1;

 private:
  std::string version_;
};

}  // namespace poplar
