// The driver: devices, contexts, and the virtual memory of expandable segments.
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "memory.h"

using namespace device;

namespace {

struct Physical {  // memory that can be mapped at several addresses; it lives as long as something refers to it
  size_t bytes;
  int device;
  int references;
};

std::mutex lock;
std::map<unsigned long long, Physical> physical;
std::map<CUdeviceptr, unsigned long long> mapped;
unsigned long long next_handle = 1;
char context_of[MAX_DEVICES];

typedef std::lock_guard<std::mutex> Guard;

void drop(unsigned long long handle) {
  auto found = physical.find(handle);
  if (found == physical.end() || --found->second.references) return;
  release(found->second.device, found->second.bytes);
  physical.erase(found);
}

CUresult not_supported() { return cudaErrorNotSupported; }

void* own_function(const char* name) {
  static void* own = [] {
    Dl_info info;
    dladdr((void*)&own_function, &info);
    return dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  }();
  char newer[128];
  snprintf(newer, sizeof newer, "%s_v2", name);
  void* function = dlsym(own, name);
  return function ? function : dlsym(own, newer);
}

cudaError_t entry_point(const char* name, void** function, int* result) {
  *function = own_function(name);
  if (!*function) *function = (void*)&not_supported;
  if (result) *result = 0;
  return cudaSuccess;
}

struct AllocationProperties {
  int type, handle_types, location_type, device;
};

}  // namespace

API cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long,
                                                 int* result) {
  return entry_point(name, function, result);
}
API cudaError_t cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long, int* result) {
  return entry_point(name, function, result);
}
API CUresult cuGetProcAddress_v2(const char* name, void** function, int, uint64_t, int* result) {
  return entry_point(name, function, result);
}

// ---- Devices and contexts ----

API CUresult cuInit(unsigned) { return is_forked_after_use() ? cudaErrorInitializationError : cudaSuccess; }
API CUresult cuDriverGetVersion(int* version) {
  *version = CUDA_VERSION;
  return cudaSuccess;
}
API CUresult cuDeviceGetCount(int* count) {
  *count = description().count;
  return cudaSuccess;
}
API CUresult cuDeviceGet(int* number, int ordinal) {
  if (ordinal < 0 || ordinal >= description().count) return cudaErrorInvalidDevice;
  *number = ordinal;
  return cudaSuccess;
}
API CUresult cuDeviceGetName(char* name, int bytes, int) {
  snprintf(name, size_t(bytes), "%s", description().name.c_str());
  return cudaSuccess;
}
API CUresult cuDeviceGetUuid_v2(char* uuid, int number) {
  memset(uuid, 0, 16);
  uuid[0] = char(description().physical[number] + 1);
  return cudaSuccess;
}
API CUresult cuDeviceTotalMem_v2(size_t* bytes, int) {
  *bytes = description().total;
  return cudaSuccess;
}
API cudaError_t cudaDeviceGetAttribute(int*, int, int);
API CUresult cuDeviceGetAttribute(int* value, int attribute, int number) {
  return cudaDeviceGetAttribute(value, attribute, number);
}
API CUresult cuDevicePrimaryCtxGetState(int number, unsigned* flags, int* active) {
  if (flags) *flags = 0;
  *active = own_use(number) > description().context || number == current();
  return cudaSuccess;
}
API CUresult cuDevicePrimaryCtxRetain(void** context, int number) {
  *context = &context_of[number];
  return cudaSuccess;
}
API CUresult cuCtxGetCurrent(void** context) { return cuDevicePrimaryCtxRetain(context, current()); }
API CUresult cuCtxSetCurrent(void* context) {
  return context ? set_current(int((char*)context - context_of)) : cudaSuccess;
}
API CUresult cuCtxPushCurrent_v2(void* context) { return cuCtxSetCurrent(context); }
API CUresult cuCtxPopCurrent_v2(void** context) { return context ? cuCtxGetCurrent(context) : cudaSuccess; }
API CUresult cuCtxGetDevice(int* number) {
  *number = current();
  return cudaSuccess;
}
API CUresult cuCtxGetLimit(size_t* value, int) {
  *value = MIB;
  return cudaSuccess;
}
API CUresult cuCtxSetLimit(int, size_t) { return cudaSuccess; }
API CUresult cuCtxSynchronize() { return cudaSuccess; }
API CUresult cuStreamSynchronize(void*) { return cudaSuccess; }
API CUresult cuTensorMapEncodeTiled(void*) { return cudaSuccess; }
API CUresult cuTensorMapEncodeIm2col(void*) { return cudaSuccess; }
API CUresult cuGetErrorString(CUresult error, const char** text) {
  *text = error_text(error);
  return cudaSuccess;
}
API CUresult cuGetErrorName(CUresult error, const char** name) {
  *name = error_name(error);
  return cudaSuccess;
}

// ---- Addresses ----

API CUresult cuMemGetAddressRange_v2(CUdeviceptr* begin, size_t* bytes, CUdeviceptr address) {
  memory::Range range;
  if (!memory::find((void*)address, &range)) return CUDA_ERROR_NOT_FOUND;
  if (begin) *begin = (CUdeviceptr)range.begin;
  if (bytes) *bytes = range.bytes;
  return cudaSuccess;
}

API CUresult cuPointerGetAttribute(void* value, int attribute, CUdeviceptr address) {
  memory::Range range{};
  bool is_device = memory::find((void*)address, &range);
  if (!is_device && attribute != 3) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case 1: *(void**)value = &context_of[range.device]; break;
    case 2: *(int*)value = 2; break;                                   // memory of a device
    case 3: *(CUdeviceptr*)value = address; break;                     // host memory that is mapped: the same
    case 7: *(unsigned long long*)value = (CUdeviceptr)range.begin; break;  // a number of the buffer
    case 9: *(int*)value = range.device; break;
    case 11: *(CUdeviceptr*)value = (CUdeviceptr)range.begin; break;
    case 12: *(size_t*)value = range.bytes; break;
    default: *(int*)value = 0;
  }
  return cudaSuccess;
}

API CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) { return memory::allocate((void**)address, bytes, current()); }
API CUresult cuMemFree_v2(CUdeviceptr address) { return memory::give_back((void*)address); }
API CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  *total = description().total;
  *free = *total - in_use(current());
  return cudaSuccess;
}
API CUresult cuMemcpyHtoD_v2(CUdeviceptr target, const void* source, size_t bytes) {
  memory::copy((void*)target, source, bytes);
  return cudaSuccess;
}
API CUresult cuMemcpyDtoH_v2(void* target, CUdeviceptr source, size_t bytes) {
  memory::copy(target, (const void*)source, bytes);
  return cudaSuccess;
}

// ---- Virtual memory ----

API CUresult cuMemGetAllocationGranularity(size_t* bytes, const void*, int) {
  *bytes = PAGE;
  return cudaSuccess;
}
API CUresult cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t, CUdeviceptr, unsigned long long) {
  note_use();
  char* begin = memory::reserve(bytes, current());
  if (!begin) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = (CUdeviceptr)begin;
  return cudaSuccess;
}
API CUresult cuMemAddressFree(CUdeviceptr address, size_t) {
  memory::unreserve((char*)address);
  return cudaSuccess;
}
API CUresult cuMemCreate(unsigned long long* handle, size_t bytes, const AllocationProperties* properties,
                         unsigned long long) {
  int number = properties->device;
  if (number < 0 || number >= description().count) return CUDA_ERROR_INVALID_VALUE;
  if (!charge(number, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  Guard guard(lock);
  *handle = next_handle++;
  physical[*handle] = {bytes, number, 1};
  return cudaSuccess;
}
API CUresult cuMemRelease(unsigned long long handle) {
  Guard guard(lock);
  drop(handle);
  return cudaSuccess;
}
API CUresult cuMemMap(CUdeviceptr address, size_t, size_t, unsigned long long handle, unsigned long long) {
  Guard guard(lock);
  auto found = physical.find(handle);
  if (found == physical.end() || mapped.count(address)) return CUDA_ERROR_INVALID_VALUE;
  found->second.references++;
  mapped[address] = handle;
  return cudaSuccess;
}
API CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  Guard guard(lock);
  auto first = mapped.lower_bound(address), last = mapped.lower_bound(address + bytes);
  for (auto it = first; it != last; ++it) drop(it->second);
  mapped.erase(first, last);
  return cudaSuccess;
}
API CUresult cuMemSetAccess(CUdeviceptr, size_t, const void*, size_t) { return cudaSuccess; }
API CUresult cuMemRetainAllocationHandle(unsigned long long* handle, void* address) {
  Guard guard(lock);
  auto found = mapped.upper_bound((CUdeviceptr)address);
  if (found == mapped.begin()) return CUDA_ERROR_INVALID_VALUE;
  *handle = std::prev(found)->second;
  physical[*handle].references++;
  return cudaSuccess;
}
API CUresult cuMemGetAllocationPropertiesFromHandle(AllocationProperties* properties, unsigned long long handle) {
  Guard guard(lock);
  auto found = physical.find(handle);
  if (found == physical.end()) return CUDA_ERROR_INVALID_VALUE;
  *properties = {1, 1, 1, found->second.device};
  return cudaSuccess;
}
// A file that another process can read the size from: there is nothing else to share.
API CUresult cuMemExportToShareableHandle(int* file, unsigned long long handle, int, unsigned long long) {
  Guard guard(lock);
  auto found = physical.find(handle);
  if (found == physical.end()) return CUDA_ERROR_INVALID_VALUE;
  *file = memfd_create("tbmem", MFD_CLOEXEC);
  return *file < 0 || pwrite(*file, &found->second, sizeof(Physical), 0) < 0 ? CUDA_ERROR_INVALID_VALUE : cudaSuccess;
}
API CUresult cuMemImportFromShareableHandle(unsigned long long* handle, void* file, int) {
  Physical other;
  if (pread(int(intptr_t(file)), &other, sizeof other, 0) != sizeof other) return CUDA_ERROR_INVALID_VALUE;
  Guard guard(lock);
  *handle = next_handle++;
  physical[*handle] = {0, other.device, 1};  // the exporting process has it in its count
  return cudaSuccess;
}
API CUresult cuMemsetD32Async(CUdeviceptr address, unsigned value, size_t count, void*) {
  memory::fill((void*)address, int(value & 255), count * 4);  // torch fills with zero only
  return cudaSuccess;
}
