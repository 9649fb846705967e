/* All of the shim as one file: PyTorch's headers take most of the time of a compilation. */
#include "torch/shim/allocator.cpp"
#include "torch/shim/history.cpp"
#include "torch/shim/install.cpp"
#include "torch/shim/pools.cpp"
#include "torch/shim/report.cpp"
#include "torch/shim/reuse.cpp"
#include "torch/shim/trackers.cpp"
