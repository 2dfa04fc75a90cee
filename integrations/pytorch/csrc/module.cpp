// SPDX-License-Identifier: Apache-2.0
// The Python module torch_plexus._C.
#include <pybind11/chrono.h>
#include <torch/extension.h>

#include "process_group.hpp"

PYBIND11_MODULE(_C, module) {
  using torch_plexus::ProcessGroup;
  using without_gil = py::call_guard<py::gil_scoped_release>;
  py::module_::import("torch.distributed");  // knows the base class
  py::class_<ProcessGroup, c10::intrusive_ptr<ProcessGroup>, torch_plexus::GroupBase>(
      module, "ProcessGroupPlexus")
      .def(py::init([](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                       std::chrono::milliseconds timeout) {
             return c10::make_intrusive<ProcessGroup>(store, rank, size, timeout);
           }),
           py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout"), without_gil())
      .def("shrink", &ProcessGroup::shrink, py::arg("excluded"), without_gil())
      .def("gone_ranks", &ProcessGroup::gone_ranks, without_gil())
      .def("use_store", &ProcessGroup::use_store, py::arg("store"))
      .def("abort", &ProcessGroup::abort, py::arg("reason"), without_gil());
  module.def("drain", &torch_plexus::CallQueue::drain_all, without_gil());
  module.def("plexus_version", &plexusGetVersionString);
}
