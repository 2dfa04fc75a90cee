// SPDX-License-Identifier: Apache-2.0
// The machine of this process, and the software one.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "core/comm/process.hpp"
#include "tests/support/machine.hpp"
#include "tests/support/software_device.hpp"

namespace plexus::testing_device {
namespace {

class SoftwareMachine final : public Machine {
 public:
  SoftwareMachine(int devices, const SoftwareHabits& habits)
      : devices_({.devices = devices, .habits = habits}), count_(devices) {
    Process::instance().use_devices(&devices_);
  }

  [[nodiscard]] std::string name() const override { return "software device"; }
  [[nodiscard]] bool is_software() const noexcept override { return true; }
  [[nodiscard]] bool waits_in_launch() const noexcept override {
    return devices_.waits_in_launch();
  }
  [[nodiscard]] int device_count() const noexcept override { return count_; }
  void set_current(int device) override { SoftwareDevice::set_current(device); }

  // Calls of a program, which may do as it likes.
  void* allocate(int device, size_t size_bytes) override {
    const Allowing all(&devices_, DriverCalls::kAll);
    return devices_.allocate(device, size_bytes).value();
  }
  void release(int device, void* memory) override {
    const Allowing all(&devices_, DriverCalls::kAll);
    devices_.release(device, memory);
  }
  void copy(int device, void* to, const void* from, size_t size_bytes) override {
    const Allowing all(&devices_, DriverCalls::kAll);
    devices_.copy(device, to, from, size_bytes).value();
  }
  PointerFacts describe(const void* pointer) override { return devices_.describe_pointer(pointer); }
  size_t taken() override { return devices_.live(); }

  DeviceStream make_stream(int /*device*/) override { return devices_.make_stream(); }
  void destroy_stream(DeviceStream stream) override { devices_.destroy_stream(stream); }
  void synchronize(DeviceStream stream) override { devices_.synchronize(stream); }
  void copy_in_order(DeviceStream stream, void* to, const void* from, size_t size_bytes) override {
    devices_.enqueue(stream, [to, from, size_bytes] { std::memcpy(to, from, size_bytes); });
  }
  void enqueue(DeviceStream stream, std::function<void()> job) override {
    devices_.enqueue(stream, std::move(job));
  }
  void launch_empty(DeviceStream stream, uint32_t /*blocks*/, uint32_t /*threads*/) override {
    devices_.load_kernel_of_user();
    devices_.enqueue(stream, [] {});
  }

  void begin_capture(DeviceStream stream) override { devices_.begin_capture(stream); }
  Graph end_capture(DeviceStream stream) override { return devices_.end_capture(stream); }
  void replay(const Graph& graph, DeviceStream stream) override {
    devices_.replay(std::static_pointer_cast<SoftwareGraph>(graph), stream);
  }
  GraphShape shape_of(const Graph& graph) override {
    const auto& kernels = static_cast<const SoftwareGraph*>(graph.get())->kernels;
    if (kernels.empty()) {
      return {};
    }
    return {.kernels = static_cast<int>(kernels.size()),
            .blocks = kernels.back().blocks,
            .threads = kernels.back().threads};
  }

  SoftwareDevice& devices() { return devices_; }

 private:
  SoftwareDevice devices_;
  int count_;
};

/// Never destroyed, because threads use it until the process exits.
Machine* make_machine(std::string& reason) {
  const char* const wanted = std::getenv("PLEXUS_TEST_MACHINE");
  if (wanted == nullptr || std::strcmp(wanted, "software") == 0) {
    const char* const devices = std::getenv("PLEXUS_TEST_DEVICES");
    const char* const habits = std::getenv("PLEXUS_TEST_HABITS");
    return new SoftwareMachine(devices == nullptr ? 2 : std::atoi(devices),
                               SoftwareHabits::parse(habits == nullptr ? "" : habits));
  }
  if (std::strcmp(wanted, "cuda") == 0) {
    return make_cuda_machine(reason).release();
  }
  std::fprintf(stderr, "PLEXUS_TEST_MACHINE is '%s'; it takes software or cuda\n", wanted);
  std::exit(2);
}

struct Made {
  std::string reason;
  Machine* machine = make_machine(reason);
};

const Made& made() {
  static const Made* const it = new Made;
  return *it;
}

}  // namespace

Machine& machine() { return *made().machine; }

SoftwareDevice& software_devices() { return dynamic_cast<SoftwareMachine&>(machine()).devices(); }

std::string machine_missing() { return made().machine == nullptr ? made().reason : ""; }

}  // namespace plexus::testing_device
