// Device memory without a device.
//
// Each allocation is a range of the host's addresses without memory behind it. Pages become real where the host writes:
// copies of up to KEPT_COPY bytes are kept, so that flags, shapes and indices read back as they were written. All other
// bytes are zero, always: kernels write nothing, larger copies are dropped, and when torch's allocator hands out an
// address again, what was written there before is cleared (tbmem_device_allocated).
#include "memory.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <set>
#include <vector>

using namespace device;

namespace {

struct Reservation {
  size_t bytes;
  int device;
};

struct Pool {  // of cudaMallocAsync, one for each device
  size_t used = 0, used_high = 0, reserved = 0, reserved_high = 0;
};

constexpr size_t SMALL_PAGE = 4096;
std::recursive_mutex lock;
std::map<char*, Reservation> reservations;
std::map<char*, size_t> written;  // begin and bytes; they neither overlap nor touch
std::set<char*> live;             // what torch's allocator has handed out
std::map<void*, size_t> charged;  // cudaMalloc
std::map<void*, size_t> pooled;   // cudaMallocAsync
Pool pools[MAX_DEVICES];

typedef void (*ReadObserver)(size_t bytes);
ReadObserver on_unknown_read = nullptr;
thread_local bool is_observing = false;

typedef std::lock_guard<std::recursive_mutex> Guard;

std::map<char*, Reservation>::iterator reservation_of(const void* address) {
  auto after = reservations.upper_bound((char*)address);
  if (after == reservations.begin()) return reservations.end();
  auto found = std::prev(after);
  return (char*)address < found->first + found->second.bytes ? found : reservations.end();
}

// Whole pages are given back: a large range that was filled with zero has none.
void clear_bytes(char* begin, char* end) {
  char *first = (char*)round_up((size_t)begin, SMALL_PAGE), *last = (char*)((size_t)end / SMALL_PAGE * SMALL_PAGE);
  if (first >= last) {
    memset(begin, 0, size_t(end - begin));
    return;
  }
  memset(begin, 0, size_t(first - begin));
  madvise(first, size_t(last - first), MADV_DONTNEED);
  memset(last, 0, size_t(end - last));
}

void forget_written(char* begin, char* end, bool clear) {
  auto it = written.upper_bound(begin);
  if (it != written.begin()) --it;
  while (it != written.end() && it->first < end) {
    char *first = it->first, *last = first + it->second;
    if (last <= begin) {
      ++it;
      continue;
    }
    it = written.erase(it);
    if (first < begin) written[first] = size_t(begin - first);
    if (last > end) written[end] = size_t(last - end);
    char *from = first > begin ? first : begin, *to = last < end ? last : end;
    if (clear) clear_bytes(from, to);
  }
}

void note_written(char* begin, size_t bytes) {
  char* end = begin + bytes;
  forget_written(begin, end, false);
  auto after = written.lower_bound(begin);
  if (after != written.end() && after->first == end) {
    end += after->second;
    after = written.erase(after);
  }
  if (after != written.begin()) {
    auto before = std::prev(after);
    if (before->first + before->second == begin) {
      before->second = size_t(end - before->first);
      return;
    }
  }
  written[begin] = size_t(end - begin);
}

bool overlaps_written(const char* begin, size_t bytes) {
  auto after = written.lower_bound((char*)begin + bytes);
  return after != written.begin() && std::prev(after)->first + std::prev(after)->second > begin;
}

void tell_unknown_read(size_t bytes) {
  if (on_unknown_read && !is_observing) {
    is_observing = true;
    on_unknown_read(bytes);
    is_observing = false;
  }
}

}  // namespace

namespace memory {

char* reserve(size_t bytes, int device) {
  bytes = round_up(bytes, PAGE);
  char* raw = (char*)mmap(nullptr, bytes + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  char* begin = (char*)round_up((size_t)raw, PAGE);
  if (begin > raw) munmap(raw, size_t(begin - raw));
  munmap(begin + bytes, size_t(raw + PAGE - begin));
  madvise(begin, bytes, MADV_NOHUGEPAGE);  // a flag of 4 bytes must not cost 2 MiB
  madvise(begin, bytes, MADV_DONTDUMP);
  Guard guard(lock);
  reservations[begin] = {bytes, device};
  return begin;
}

void unreserve(char* begin) {
  Guard guard(lock);
  auto found = reservations.find(begin);
  if (found == reservations.end()) return;
  char* end = begin + found->second.bytes;
  forget_written(begin, end, false);
  live.erase(live.lower_bound(begin), live.lower_bound(end));
  munmap(begin, found->second.bytes);
  reservations.erase(found);
}

bool find(const void* address, Range* result) {
  Guard guard(lock);
  auto found = reservation_of(address);
  if (found == reservations.end()) return false;
  *result = {found->first, found->second.bytes, found->second.device};
  return true;
}

cudaError_t allocate(void** result, size_t bytes, int device) {
  note_use();
  *result = nullptr;
  if (!bytes) return cudaSuccess;
  size_t charge_of = round_up(bytes, PAGE);
  if (!charge(device, charge_of)) return fail(cudaErrorMemoryAllocation);
  *result = reserve(charge_of, device);
  if (!*result) {
    release(device, charge_of);
    return fail(cudaErrorMemoryAllocation);
  }
  Guard guard(lock);
  charged[*result] = charge_of;
  return cudaSuccess;
}

cudaError_t give_back(void* address) {
  if (!address) return cudaSuccess;
  Guard guard(lock);
  auto found = charged.find(address);
  if (found == charged.end()) return give_back_managed(address) ? cudaSuccess : fail(cudaErrorInvalidValue);
  release(reservations[(char*)address].device, found->second);
  charged.erase(found);
  unreserve((char*)address);
  return cudaSuccess;
}

bool is_known(const void* address, size_t bytes) {
  Guard guard(lock);
  auto after = written.upper_bound((char*)address);
  if (after == written.begin()) return false;
  auto before = std::prev(after);
  return (char*)address + bytes <= before->first + before->second;
}

bool has_known(const void* address, size_t bytes) {
  Guard guard(lock);
  return overlaps_written((const char*)address, bytes);
}

void copy(void* target, const void* source, size_t bytes) {
  if (!bytes) return;
  bool is_unknown = false;
  {
    Guard guard(lock);
    bool to_device = reservation_of(target) != reservations.end();
    bool from_device = reservation_of(source) != reservations.end();
    char* begin = (char*)target;
    if (!to_device && !from_device) {
      memmove(target, source, bytes);
    } else if (!to_device) {
      is_unknown = !is_known(source, bytes);
      if (overlaps_written((const char*)source, bytes)) memmove(target, source, bytes);
      else memset(target, 0, bytes);
    } else if (bytes <= KEPT_COPY && (!from_device || is_known(source, bytes))) {
      memmove(target, source, bytes);
      note_written(begin, bytes);
    } else {
      forget_written(begin, begin + bytes, true);
    }
  }
  if (is_unknown) tell_unknown_read(bytes);
}

void forget(void* target, size_t bytes) {
  Guard guard(lock);
  if (reservation_of(target) != reservations.end()) forget_written((char*)target, (char*)target + bytes, true);
}

void fill(void* target, int value, size_t bytes) {
  if (!bytes) return;
  Guard guard(lock);
  char* begin = (char*)target;
  if (reservation_of(target) == reservations.end()) {
    memset(target, value, bytes);
    return;
  }
  forget_written(begin, begin + bytes, true);
  if (value == 0) {
    note_written(begin, bytes);  // zero already
  } else if (bytes <= KEPT_COPY) {
    memset(target, value, bytes);
    note_written(begin, bytes);
  }
}

}  // namespace memory

// ---- What the Python side asks for (device_reads.py) ----

// torch's allocator has handed out an address, or has taken it back.
API void tbmem_device_allocated(size_t address) {
  Guard guard(lock);
  char* begin = (char*)address;
  auto found = reservation_of(begin);
  if (found == reservations.end()) return;
  char* end = found->first + found->second.bytes;
  auto next = live.upper_bound(begin);
  if (next != live.end() && *next < end) end = *next;
  live.insert(begin);
  forget_written(begin, end, true);
}

API void tbmem_device_freed(size_t address) {
  Guard guard(lock);
  live.erase((char*)address);
}

// torch's allocator calls this function of libc10 for each block, on every device; here it is seen first. Torch's own
// trace of the GPU would tell the same, but runs Python wherever a tensor is freed: an exception that is being raised at
// that moment, as checkpointing does in each backward pass, would be lost.
namespace c10 {
struct Device {
  int8_t type, index;
};

__attribute__((visibility("default"))) void reportMemoryUsageToProfiler(
    void* address, int64_t bytes, size_t allocated, size_t reserved, Device where) {
  constexpr int8_t CUDA = 1;
  static auto torchs = (decltype(&reportMemoryUsageToProfiler))dlsym(
      dlopen("libc10.so", RTLD_NOLOAD | RTLD_LAZY), "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");
  if (where.type == CUDA) (bytes > 0 ? tbmem_device_allocated : tbmem_device_freed)((size_t)address);
  if (torchs != nullptr) torchs(address, bytes, allocated, reserved, where);
}
}  // namespace c10

// Called, with a number of bytes, when the host reads what it has not written.
API void tbmem_device_on_unknown_read(ReadObserver observer) { on_unknown_read = observer; }

// ---- CUDA's runtime ----

API cudaError_t cudaMalloc(void** result, size_t bytes) { return memory::allocate(result, bytes, current()); }
API cudaError_t cudaFree(void* address) { return memory::give_back(address); }

API cudaError_t cudaMemcpy(void* target, const void* source, size_t bytes, int) {
  memory::copy(target, source, bytes);
  return cudaSuccess;
}
API cudaError_t cudaMemcpyAsync(void* target, const void* source, size_t bytes, int, void*) {
  memory::copy(target, source, bytes);
  return cudaSuccess;
}
API cudaError_t cudaMemcpyPeerAsync(void* target, int, const void* source, int, size_t bytes, void*) {
  memory::copy(target, source, bytes);
  return cudaSuccess;
}
API cudaError_t cudaMemcpy2DAsync(void* target, size_t target_pitch, const void* source, size_t source_pitch,
                                  size_t width, size_t height, int, void*) {
  for (size_t row = 0; row < height; row++)
    memory::copy((char*)target + row * target_pitch, (const char*)source + row * source_pitch, width);
  return cudaSuccess;
}
API cudaError_t cudaMemset(void* target, int value, size_t bytes) {
  memory::fill(target, value, bytes);
  return cudaSuccess;
}
API cudaError_t cudaMemsetAsync(void* target, int value, size_t bytes, void*) {
  return cudaMemset(target, value, bytes);
}

API cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* result, const void* address) {
  memset(result, 0, sizeof *result);
  memory::Range range;
  if (memory::find(address, &range)) {
    result->type = cudaMemoryTypeDevice;
    result->device = range.device;
    result->devicePointer = (void*)address;
    return cudaSuccess;
  }
  result->type = memory::host_kind(address);
  bool is_mapped = result->type != cudaMemoryTypeUnregistered;
  result->device = is_mapped ? current() : -1;
  result->hostPointer = (void*)address;
  result->devicePointer = is_mapped ? (void*)address : nullptr;
  return cudaSuccess;
}

// ---- Pools of cudaMallocAsync: they reserve in steps of 32 MiB and keep what is freed ----

API cudaError_t cudaDeviceGetDefaultMemPool(void** pool, int number) {
  *pool = &pools[number];
  return cudaSuccess;
}

static bool grow(Pool& pool, int number, size_t used) {
  size_t wanted = round_up(used, 32 * MIB);
  if (wanted > pool.reserved) {
    if (!charge(number, wanted - pool.reserved)) {
      wanted = round_up(used, PAGE);  // the last of the device in smaller steps
      if (wanted > pool.reserved && !charge(number, wanted - pool.reserved)) return false;
    }
    if (wanted > pool.reserved) pool.reserved = wanted;
  }
  pool.used = used;
  if (pool.used > pool.used_high) pool.used_high = pool.used;
  if (pool.reserved > pool.reserved_high) pool.reserved_high = pool.reserved;
  return true;
}

API cudaError_t cudaMallocAsync(void** result, size_t bytes, void*) {
  note_use();
  int number = current();
  Guard guard(lock);
  bytes = round_up(bytes ? bytes : 1, 512);
  *result = nullptr;
  if (!grow(pools[number], number, pools[number].used + bytes)) return fail(cudaErrorMemoryAllocation);
  *result = memory::reserve(bytes, number);
  if (!*result) return fail(cudaErrorMemoryAllocation);
  pooled[*result] = bytes;
  return cudaSuccess;
}

API cudaError_t cudaFreeAsync(void* address, void*) {
  if (!address) return cudaSuccess;
  Guard guard(lock);
  auto found = pooled.find(address);
  if (found == pooled.end()) return fail(cudaErrorInvalidValue);
  pools[reservations[(char*)address].device].used -= found->second;
  pooled.erase(found);
  memory::unreserve((char*)address);
  return cudaSuccess;
}

API cudaError_t cudaMemPoolTrimTo(void* handle, size_t keep) {
  Guard guard(lock);
  Pool& pool = *(Pool*)handle;
  size_t wanted = round_up(pool.used > keep ? pool.used : keep, 32 * MIB);
  if (wanted < pool.reserved) {
    release(int(&pool - pools), pool.reserved - wanted);
    pool.reserved = wanted;
  }
  return cudaSuccess;
}

API cudaError_t cudaMemPoolGetAttribute(void* handle, int attribute, void* value) {
  Guard guard(lock);
  Pool& pool = *(Pool*)handle;
  uint64_t all[] = {pool.reserved, pool.reserved_high, pool.used, pool.used_high};
  if (attribute >= 5 && attribute <= 8) *(uint64_t*)value = all[attribute - 5];
  else *(int*)value = 1;
  return cudaSuccess;
}

API cudaError_t cudaMemPoolSetAttribute(void* handle, int attribute, void*) {
  Guard guard(lock);
  Pool& pool = *(Pool*)handle;
  if (attribute == 6) pool.reserved_high = pool.reserved;
  if (attribute == 8) pool.used_high = pool.used;
  return cudaSuccess;
}

API cudaError_t cudaDeviceGetGraphMemAttribute(int, int, void* value) {
  *(uint64_t*)value = 0;
  return cudaSuccess;
}

// ---- Sharing with other processes: addresses only ----

struct Shared {
  uint64_t address, bytes;
  int pid, device;
};

API cudaError_t cudaIpcGetMemHandle(void* handle, void* address) {
  memory::Range range;
  if (!memory::find(address, &range)) return fail(cudaErrorInvalidValue);
  memset(handle, 0, 64);
  Shared shared{(uint64_t)range.begin, range.bytes, getpid(), range.device};
  memcpy(handle, &shared, sizeof shared);
  return cudaSuccess;
}

struct IpcHandle {
  char bytes[64];
};

API cudaError_t cudaIpcOpenMemHandle(void** result, IpcHandle handle, unsigned) {
  Shared shared;
  memcpy(&shared, handle.bytes, sizeof shared);
  if (!shared.bytes) return fail(cudaErrorInvalidValue);
  *result = memory::reserve(shared.bytes, shared.device < description().count ? shared.device : current());
  return *result ? cudaSuccess : fail(cudaErrorMemoryAllocation);
}

API cudaError_t cudaIpcCloseMemHandle(void* address) {
  memory::unreserve((char*)address);
  return cudaSuccess;
}
