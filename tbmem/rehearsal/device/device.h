// The simulated GPUs of a process: what they are, and which memory of them is in use.
#pragma once
#include <map>
#include <mutex>
#include <string>

#include "cuda_types.h"

namespace device {

constexpr size_t MIB = size_t(1) << 20;
constexpr size_t PAGE = 2 * MIB;  // granularity of the driver's allocations
constexpr int MAX_DEVICES = 64;

// What a GPU is; read once from the environment (TBMEM_GPU_*), see environment.py.
struct Description {
  std::string name;
  int count, major, minor, multiprocessors;
  int physical[MAX_DEVICES];  // number of each visible GPU in the machine (CUDA_VISIBLE_DEVICES)
  size_t total, context, communication, l2_cache;
};
const Description& description();

// Shared memory, threads and blocks that a multiprocessor of this compute capability has.
struct Limits {
  int shared_per_multiprocessor, shared_per_block_optin, threads, blocks;
};
Limits limits();

// The newest architecture that torch has kernels for and that this GPU runs: 80 for 8.0.
int kernel_architecture();

int current();
cudaError_t set_current(int device);

// Keep an error for cudaGetLastError, and return it.
cudaError_t fail(cudaError_t error);
cudaError_t take_last_error();
cudaError_t last_error();
const char* error_name(int error);
const char* error_text(int error);

// A forked child cannot use the GPUs of its parent, as with CUDA.
bool is_forked_after_use();
void note_use();

// Bytes in use, context included, by this process and by all; charge() is false if that many more do not fit.
bool charge(int device, size_t bytes);
void release(int device, size_t bytes);
size_t own_use(int device);
size_t in_use(int device);

size_t round_up(size_t bytes, size_t unit);
void* new_handle();  // something to point at, never freed: handles are few

}  // namespace device
