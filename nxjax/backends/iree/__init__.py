"""GPUs without a PJRT plugin: Vulkan through IREE. StableHLO text, compiled to SPIR-V in a process of its own."""
