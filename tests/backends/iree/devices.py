"""Words of Vulkan drivers, as IREE gives them, cut to what is read."""

LAVAPIPE = """name: llvmpipe (LLVM 15.0.6, 256 bits)
path: GPU-6d65
api: 1.3.230
type: cpu
vendor_id: 0x10005
device_id: 0x0000
driver: llvmpipe
driver_info: Mesa 22.3.6 (LLVM 15.0.6)
features: storageBuffer8BitAccess=yes storageBuffer16BitAccess=yes shaderInt8=yes shaderFloat16=yes \
shaderIntegerDotProduct=yes cooperativeMatrix=no
subgroup: size=8 operations=0x000000bf minSubgroupSize=8 maxSubgroupSize=8 requiredSubgroupSizeStages=0x00000030
memory_heaps: 1
  [0] size=2147483648 flags=0x00000001
"""
RADEON = """name: AMD Radeon 780M (RADV PHOENIX)
api: 1.3.274
type: integrated-gpu
vendor_id: 0x1002
driver: radv
driver_info: Mesa 24.0.5
features: storageBuffer8BitAccess=yes storageBuffer16BitAccess=yes shaderInt8=yes shaderFloat16=yes \
shaderIntegerDotProduct=yes cooperativeMatrix=yes
subgroup: size=64 operations=0x000000ff minSubgroupSize=32 maxSubgroupSize=64
memory_heaps: 2
  [0] size=8589934592 flags=0x00000000
  [1] size=17179869184 flags=0x00000001
"""
# A device that has what Vulkan grants, and nothing more.
BARE = """name: Some GPU
api: 1.1.0
type: discrete
vendor_id: 0x5143
features: storageBuffer8BitAccess=no shaderInt8=no
subgroup: size=16 operations=0x1
"""
