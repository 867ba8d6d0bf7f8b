// Describes the simulated GPUs and counts their memory.
#include "device.h"

#include <pthread.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "sharing.h"

namespace device {
namespace {

std::mutex lock;
size_t used[MAX_DEVICES], highest_of_others[MAX_DEVICES];
bool has_communication[MAX_DEVICES];
thread_local int chosen = 0;
thread_local cudaError_t last = cudaSuccess;
std::atomic<bool> is_used{false}, is_forked{false};

const char* text_of(const char* name, const char* otherwise) {
  const char* value = getenv(name);
  return value && *value ? value : otherwise;
}

size_t number_of(const char* name, const char* otherwise) { return strtoull(text_of(name, otherwise), nullptr, 10); }

// As CUDA reads CUDA_VISIBLE_DEVICES: numbers, or GPUs' own names, up to the first that is not there.
void choose_visible(Description* gpu) {
  const char* text = getenv("CUDA_VISIBLE_DEVICES");
  int all = gpu->count;
  for (int number = 0; number < all; number++) gpu->physical[number] = number;
  if (!text) return;
  gpu->count = 0;
  while (*text && gpu->count < all) {
    char* end;
    unsigned number;
    if (sscanf(text, "GPU-%2x", &number) == 1) number--, end = (char*)text + strcspn(text, ",");
    else number = unsigned(strtol(text, &end, 10));
    if (end == text || number >= unsigned(all)) return;
    gpu->physical[gpu->count++] = int(number);
    text = *end == ',' ? end + 1 : "";
  }
}

struct ErrorWords {
  int error;
  const char *name, *text;
};
const ErrorWords ERRORS[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorIllegalState, "cudaErrorIllegalState",
     "the operation cannot be performed in the present state"},
    {cudaErrorPeerAccessAlreadyEnabled, "cudaErrorPeerAccessAlreadyEnabled", "peer access is already enabled"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
};

}  // namespace

const Description& description() {
  static const Description result = [] {
    size_t capability = number_of("TBMEM_GPU_CAPABILITY", "90"), count = number_of("TBMEM_GPU_COUNT", "1");
    Description found;
    found.name = text_of("TBMEM_GPU_NAME", "Simulated GPU");
    found.count = int(count < MAX_DEVICES ? count : MAX_DEVICES);
    found.major = int(capability / 10);
    found.minor = int(capability % 10);
    found.multiprocessors = int(number_of("TBMEM_GPU_MULTIPROCESSORS", "132"));
    found.total = number_of("TBMEM_GPU_BYTES", "85899345920");
    found.context = number_of("TBMEM_GPU_CONTEXT_BYTES", "0");
    found.communication = number_of("TBMEM_GPU_NCCL_BYTES", "0");
    found.l2_cache = number_of("TBMEM_GPU_L2_BYTES", "52428800");
    choose_visible(&found);
    return found;
  }();
  return result;
}

Limits limits() {
  switch (description().major * 10 + description().minor) {
    case 70: return {98304, 98304, 2048, 32};
    case 75: return {65536, 65536, 1024, 16};
    case 80: return {167936, 166912, 2048, 32};
    case 86: return {102400, 101376, 1536, 16};
    case 89: return {102400, 101376, 1536, 24};
    case 120: return {102400, 101376, 1536, 32};
    default: return {233472, 232448, 2048, 32};
  }
}

int kernel_architecture() {
  static const int built_for[] = {TORCH_ARCHITECTURES};  // by library.py, from torch
  int own = description().major * 10 + description().minor, best = built_for[0];
  for (int architecture : built_for)
    if (architecture <= own) best = architecture;
  return best;
}

int current() { return chosen; }

cudaError_t set_current(int number) {
  if (number < 0 || number >= description().count) return fail(cudaErrorInvalidDevice);
  chosen = number;
  return cudaSuccess;
}

cudaError_t fail(cudaError_t error) { return last = error; }

cudaError_t take_last_error() {
  cudaError_t error = last;
  last = cudaSuccess;
  return error;
}

cudaError_t last_error() { return last; }

const char* error_name(int error) {
  for (const ErrorWords& known : ERRORS)
    if (known.error == error) return known.name;
  return "cudaErrorUnknown";
}

const char* error_text(int error) {
  for (const ErrorWords& known : ERRORS)
    if (known.error == error) return known.text;
  return "unknown error";
}

void note_use() {
  if (!is_used.exchange(true)) pthread_atfork(nullptr, nullptr, [] { is_forked = true; });
}

bool is_forked_after_use() { return is_forked; }

bool charge(int number, size_t bytes) {
  std::lock_guard<std::mutex> guard(lock);
  sharing::Turn turn;
  const Description& gpu = description();
  size_t wanted = used[number] + bytes + gpu.context;
  size_t others = sharing::others(gpu.physical[number]);
  if (others > highest_of_others[number]) highest_of_others[number] = others;
  if (wanted + others > gpu.total) return false;
  used[number] += bytes;
  sharing::publish(gpu.physical[number], wanted);
  return true;
}

void release(int number, size_t bytes) {
  std::lock_guard<std::mutex> guard(lock);
  used[number] -= bytes;
  sharing::publish(description().physical[number], used[number] + description().context);
}

size_t own_use(int number) {
  std::lock_guard<std::mutex> guard(lock);
  return used[number] + description().context;
}

size_t in_use(int number) {
  size_t bytes = own_use(number) + sharing::others(description().physical[number]);
  return bytes < description().total ? bytes : description().total;
}

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

void* new_handle() { return calloc(1, 64); }

}  // namespace device

using namespace device;

// What the Python side asks for (device_use.py): bytes in use by this process, and the most that others had in use when
// this one asked for memory.
API size_t tbmem_device_own(int number) { return own_use(number); }
API size_t tbmem_device_others(int number) {
  std::lock_guard<std::mutex> guard(lock);
  return highest_of_others[number];
}

API cudaError_t cudaGetDeviceCount(int* count) {
  if (is_forked_after_use()) return fail(cudaErrorInitializationError);
  *count = description().count;
  return *count ? cudaSuccess : fail(cudaErrorNoDevice);
}

API cudaError_t cudaGetDevice(int* number) {
  if (is_forked_after_use()) return fail(cudaErrorInitializationError);
  *number = current();
  return cudaSuccess;
}

API cudaError_t cudaSetDevice(int number) {
  if (is_forked_after_use()) return fail(cudaErrorInitializationError);
  note_use();
  return set_current(number);
}

API cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *total = description().total;
  *free = *total - in_use(current());
  return cudaSuccess;
}

static cudaError_t properties(cudaDeviceProp* result, int number) {
  if (number < 0 || number >= description().count) return fail(cudaErrorInvalidDevice);
  const Description& gpu = description();
  Limits limit = limits();
  memset(result, 0, sizeof *result);
  strncpy(result->name, gpu.name.c_str(), sizeof result->name - 1);
  result->uuid[0] = char(gpu.physical[number] + 1);
  result->totalGlobalMem = gpu.total;
  result->major = gpu.major;
  result->minor = gpu.minor;
  result->multiProcessorCount = gpu.multiprocessors;
  result->sharedMemPerBlock = 49152;
  result->sharedMemPerBlockOptin = limit.shared_per_block_optin;
  result->sharedMemPerMultiprocessor = limit.shared_per_multiprocessor;
  result->reservedSharedMemPerBlock = 1024;
  result->regsPerBlock = result->regsPerMultiprocessor = 65536;
  result->warpSize = 32;
  result->memPitch = 2147483647;
  result->maxThreadsPerBlock = result->maxThreadsDim[0] = result->maxThreadsDim[1] = 1024;
  result->maxThreadsDim[2] = 64;
  result->maxGridSize[0] = 2147483647;
  result->maxGridSize[1] = result->maxGridSize[2] = 65535;
  result->maxThreadsPerMultiProcessor = limit.threads;
  result->maxBlocksPerMultiProcessor = limit.blocks;
  result->totalConstMem = 65536;
  result->textureAlignment = 512;
  result->l2CacheSize = int(gpu.l2_cache);
  result->memoryBusWidth = 5120;
  result->asyncEngineCount = 3;
  result->pciBusID = gpu.physical[number] + 1;
  result->canMapHostMemory = result->concurrentKernels = result->unifiedAddressing = result->managedMemory = 1;
  result->streamPrioritiesSupported = result->cooperativeLaunch = result->hostRegisterSupported = 1;
  result->memoryPoolsSupported = result->ipcEventSupported = 1;
  result->clusterLaunch = gpu.major >= 9;
  return cudaSuccess;
}

API cudaError_t cudaGetDeviceProperties(cudaDeviceProp* result, int number) { return properties(result, number); }
API cudaError_t cudaGetDeviceProperties_v2(cudaDeviceProp* result, int number) { return properties(result, number); }

// Attributes have the same numbers in the runtime and the driver; what is not listed is not supported: 0.
API cudaError_t cudaDeviceGetAttribute(int* value, int attribute, int number) {
  cudaDeviceProp gpu;
  if (cudaError_t error = properties(&gpu, number)) return error;
  switch (attribute) {
    case 1: case 2: case 3: *value = 1024; break;  // threads of a block, in all and in x and y
    case 4: *value = 64; break;
    case 5: *value = 2147483647; break;  // blocks of a grid
    case 6: case 7: *value = 65535; break;
    case 8: *value = int(gpu.sharedMemPerBlock); break;
    case 9: *value = 65536; break;  // constant memory
    case 10: *value = gpu.warpSize; break;
    case 11: *value = int(gpu.memPitch); break;
    case 12: case 82: *value = gpu.regsPerBlock; break;
    case 13: *value = 1500000; break;  // clock in kHz
    case 14: *value = int(gpu.textureAlignment); break;
    case 16: *value = gpu.multiProcessorCount; break;
    case 33: *value = gpu.pciBusID; break;
    case 36: *value = 1500000; break;  // memory clock in kHz
    case 37: *value = gpu.memoryBusWidth; break;
    case 38: *value = gpu.l2CacheSize; break;
    case 39: *value = gpu.maxThreadsPerMultiProcessor; break;
    case 40: *value = gpu.asyncEngineCount; break;
    case 75: *value = gpu.major; break;
    case 76: *value = gpu.minor; break;
    case 81: *value = int(gpu.sharedMemPerMultiprocessor); break;
    case 97: *value = int(gpu.sharedMemPerBlockOptin); break;
    case 106: *value = gpu.maxBlocksPerMultiProcessor; break;
    case 111: *value = int(gpu.reservedSharedMemPerBlock); break;
    case 120: *value = gpu.clusterLaunch; break;
    case 15: case 19: case 31: case 41: case 78: case 83: case 90: case 95: case 99: case 102: case 103: case 115:
      *value = 1;  // overlap, mapped memory, concurrent kernels, unified addresses, priorities, managed memory,
      break;       // preemption, cooperative launches, registered memory, virtual memory and its handles, pools
    default: *value = 0;
  }
  return cudaSuccess;
}

API cudaError_t cudaDeviceGetPCIBusId(char* text, int bytes, int number) {
  snprintf(text, size_t(bytes), "0000:%02x:00.0", description().physical[number] + 1);
  return cudaSuccess;
}

API cudaError_t cudaDeviceCanAccessPeer(int* can, int one, int other) {
  *can = one != other;
  return cudaSuccess;
}

API cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDA_VERSION;
  return cudaSuccess;
}
API cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }
API cudaError_t cudaGetLastError() { return take_last_error(); }
API cudaError_t cudaPeekAtLastError() { return last_error(); }
API const char* cudaGetErrorString(cudaError_t error) { return error_text(error); }
API const char* cudaGetErrorName(cudaError_t error) { return error_name(error); }
