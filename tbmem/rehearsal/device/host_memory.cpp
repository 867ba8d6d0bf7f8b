// Memory of the host that CUDA knows: pinned, and managed memory, whose pages move to the GPU while it uses them.
//
// Managed memory counts as the host's: CUDA moves it away when the GPU's memory is wanted for something else.
#include <sys/mman.h>

#include <cstdlib>

#include "memory.h"

using namespace device;

namespace {

std::mutex lock;
std::map<char*, size_t> pinned, managed;
typedef std::lock_guard<std::mutex> Guard;

bool is_in(const std::map<char*, size_t>& ranges, const void* address) {
  auto after = ranges.upper_bound((char*)address);
  return after != ranges.begin() && (char*)address < std::prev(after)->first + std::prev(after)->second;
}

}  // namespace

namespace memory {

int host_kind(const void* address) {
  Guard guard(lock);
  if (is_in(managed, address)) return cudaMemoryTypeManaged;
  return is_in(pinned, address) ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
}

bool give_back_managed(void* address) {
  Guard guard(lock);
  auto found = managed.find((char*)address);
  if (found == managed.end()) return false;
  munmap(address, found->second);
  managed.erase(found);
  return true;
}

}  // namespace memory

// Pages become real where the host writes, as those of the device.
API cudaError_t cudaMallocManaged(void** result, size_t bytes, unsigned) {
  note_use();
  int kind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  *result = bytes ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, kind, -1, 0) : MAP_FAILED;
  if (*result == MAP_FAILED) {
    *result = nullptr;
    return fail(bytes ? cudaErrorMemoryAllocation : cudaErrorInvalidValue);
  }
  Guard guard(lock);
  managed[(char*)*result] = bytes;
  return cudaSuccess;
}

API cudaError_t cudaHostAlloc(void** result, size_t bytes, unsigned) {
  *result = aligned_alloc(4096, round_up(bytes ? bytes : 1, 4096));
  if (!*result) return fail(cudaErrorMemoryAllocation);
  Guard guard(lock);
  pinned[(char*)*result] = bytes;
  return cudaSuccess;
}
API cudaError_t cudaMallocHost(void** result, size_t bytes) { return cudaHostAlloc(result, bytes, 0); }
API cudaError_t cudaFreeHost(void* address) {
  {
    Guard guard(lock);
    if (address && !pinned.erase((char*)address)) return fail(cudaErrorInvalidValue);
  }
  free(address);
  return cudaSuccess;
}
API cudaError_t cudaHostRegister(void* address, size_t bytes, unsigned) {
  Guard guard(lock);
  pinned[(char*)address] = bytes;
  return cudaSuccess;
}
API cudaError_t cudaHostUnregister(void* address) {
  Guard guard(lock);
  pinned.erase((char*)address);
  return cudaSuccess;
}
API cudaError_t cudaHostGetDevicePointer(void** result, void* address, unsigned) {
  *result = address;
  return cudaSuccess;
}
API cudaError_t cudaMemPrefetchAsync() { return cudaSuccess; }  // CUDA 12 and 13 give it other arguments
