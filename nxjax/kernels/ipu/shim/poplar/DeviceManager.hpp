// Devices on the host: there are no IPUs.
#pragma once

#include "Engine.hpp"

namespace poplar {

class DeviceManager {
 public:
  static DeviceManager createDeviceManager() { return {}; }
  std::vector<Device> getDevices(TargetType, unsigned) const { return {}; }
};

}  // namespace poplar
