// Kernels: they can be registered, asked about and launched, and do nothing.
#include <cstdlib>
#include <cstring>
#include <vector>

#include "device.h"
#include "streams.h"

using namespace device;

namespace {

struct LaunchConfiguration {
  dim3 grid, block;
  size_t shared;
  void* stream;
};
thread_local std::vector<LaunchConfiguration> pushed;

int blocks_that_fit(int threads, size_t shared) {
  Limits limit = limits();
  int by_threads = threads > 0 ? limit.threads / threads : limit.blocks;
  int by_shared = shared ? int(size_t(limit.shared_per_multiprocessor) / (shared + 1024)) : limit.blocks;
  int fit = by_threads < by_shared ? by_threads : by_shared;
  return fit < limit.blocks ? fit : limit.blocks;
}

}  // namespace

// ---- What nvcc's host code calls ----

API void** __cudaRegisterFatBinary(void*) { return (void**)new_handle(); }
API char __cudaInitModule(void**) { return 1; }
API cudaError_t __cudaGetKernel(const void** kernel, const void* function) {
  *kernel = function;
  return cudaSuccess;
}
API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void* stream) {
  pushed.push_back({grid, block, shared, stream});
  return 0;
}
API cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  if (pushed.empty()) return fail(cudaErrorInvalidValue);
  LaunchConfiguration top = pushed.back();
  pushed.pop_back();
  *grid = top.grid;
  *block = top.block;
  *shared = top.shared;
  *(void**)stream = top.stream;
  return cudaSuccess;
}
API cudaError_t cudaLaunchKernel(const void*, dim3, dim3, void**, size_t, void* stream) {
  streams::note_launch(stream);
  return cudaSuccess;
}
API cudaError_t __cudaLaunchKernel(const void*, dim3, dim3, void**, size_t, void* stream) {
  streams::note_launch(stream);
  return cudaSuccess;
}
API cudaError_t cudaLaunchCooperativeKernel(const void*, dim3, dim3, void**, size_t, void* stream) {
  streams::note_launch(stream);
  return cudaSuccess;
}
struct LaunchOptions {
  dim3 grid, block;
  size_t shared;
  void* stream;
};
API cudaError_t cudaLaunchKernelExC(const LaunchOptions* options, const void*, void**) {
  streams::note_launch(options->stream);
  return cudaSuccess;
}

API cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* result, const void*) {
  memset(result, 0, sizeof *result);
  result->maxThreadsPerBlock = 1024;
  result->numRegs = 32;
  result->binaryVersion = result->ptxVersion = kernel_architecture();  // cub looks its tuning up by it
  result->maxDynamicSharedSizeBytes = limits().shared_per_block_optin;
  return cudaSuccess;
}
API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int threads, size_t shared) {
  *blocks = blocks_that_fit(threads, shared);
  return cudaSuccess;
}
API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int threads,
                                                                       size_t shared, unsigned) {
  *blocks = blocks_that_fit(threads, shared);
  return cudaSuccess;
}
API cudaError_t cudaGetSymbolAddress(void** address, const void*) {
  static void* area = calloc(1, MIB);
  *address = area;
  return cudaSuccess;
}
API cudaError_t cudaLibraryLoadData(void** library, const void*) {
  *library = new_handle();
  return cudaSuccess;
}
API cudaError_t cudaLibraryGetKernel(void** kernel, void*, const char*) {
  *kernel = new_handle();
  return cudaSuccess;
}

// ---- The driver's modules: what Triton and torch's own compiler load ----

static CUresult module_of(void** module) {
  *module = new_handle();
  return cudaSuccess;
}
API CUresult cuModuleLoad(void** module, const char*) { return module_of(module); }
API CUresult cuModuleLoadData(void** module, const void*) { return module_of(module); }
API CUresult cuModuleLoadDataEx(void** module, const void*, unsigned, void*, void**) { return module_of(module); }
API CUresult cuModuleGetFunction(void** function, void*, const char*) { return module_of(function); }
API CUresult cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* bytes, void*, const char*) {
  void* area;
  cudaGetSymbolAddress(&area, nullptr);
  if (address) *address = (CUdeviceptr)area;
  if (bytes) *bytes = 8;
  return cudaSuccess;
}
API CUresult cuLinkCreate_v2(unsigned, void*, void**, void** state) { return module_of(state); }
API CUresult cuLinkComplete(void*, void** cubin, size_t* bytes) {
  *bytes = 64;
  return module_of(cubin);
}
API CUresult cuFuncGetAttribute(int* value, int attribute, void*) {
  *value = attribute == 0 ? 1024 : attribute == 4 ? 32 : 0;  // threads of a block; registers; else shared, spilled, ...
  return cudaSuccess;
}
API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void*, int threads, size_t shared) {
  *blocks = blocks_that_fit(threads, shared);
  return cudaSuccess;
}
API CUresult cuOccupancyMaxActiveClusters(int* clusters, void*, const void*) {
  *clusters = description().multiprocessors;
  return cudaSuccess;
}
API CUresult cuLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void* stream,
                            void**, void**) {
  streams::note_launch(stream);
  return cudaSuccess;
}
API CUresult cuLaunchCooperativeKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                       void* stream, void**) {
  streams::note_launch(stream);
  return cudaSuccess;
}
struct DriverLaunch {
  unsigned grid[3], block[3], shared;
  void* stream;
};
API CUresult cuLaunchKernelEx(const DriverLaunch* launch, void*, void**, void**) {
  streams::note_launch(launch->stream);
  return cudaSuccess;
}
