// NVML as far as torch and monitors of memory ask.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "sharing.h"

using namespace device;

enum { NVML_NOT_SUPPORTED = 3, NVML_NOT_FOUND = 6, NVML_INVALID = 2, NVML_INSUFFICIENT_SIZE = 7 };

// NVML sees all GPUs of the machine; what this process has in use is told by the number that CUDA gives to a GPU.
static int machine_count() {
  const char* text = getenv("TBMEM_GPU_COUNT");
  return text ? atoi(text) : 1;
}
static size_t used_by_this(int physical) {
  for (int number = 0; number < description().count; number++)
    if (description().physical[number] == physical) return own_use(number);
  return 0;
}
static size_t used_by_all(int physical) {
  size_t bytes = used_by_this(physical) + sharing::others(physical);
  return bytes < description().total ? bytes : description().total;
}

static char handle_of[MAX_DEVICES];
static int number_of(void* handle) { return int((char*)handle - handle_of); }

API int nvmlInit_v2() { return 0; }
API int nvmlInitWithFlags(unsigned) { return 0; }
API int nvmlShutdown() { return 0; }
API const char* nvmlErrorString(int error) { return error ? "Not Supported" : "Success"; }
API int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = CUDA_VERSION;
  return 0;
}
API int nvmlSystemGetCudaDriverVersion(int* version) { return nvmlSystemGetCudaDriverVersion_v2(version); }
API int nvmlSystemGetDriverVersion(char* text, unsigned bytes) {
  snprintf(text, bytes, "580.0");
  return 0;
}
API int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = unsigned(machine_count());
  return 0;
}
API int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** handle) {
  if (index >= unsigned(machine_count())) return NVML_INVALID;
  *handle = &handle_of[index];
  return 0;
}
API int nvmlDeviceGetHandleByPciBusId_v2(const char* bus, void** handle) {
  unsigned domain = 0, number = 1;
  if (sscanf(bus, "%x:%x", &domain, &number) != 2 || !number) return NVML_NOT_FOUND;
  return nvmlDeviceGetHandleByIndex_v2(number - 1, handle);
}
API int nvmlDeviceGetHandleByUUID(const char* uuid, void** handle) {
  unsigned number;
  if (sscanf(uuid, "GPU-%2x", &number) != 1 || !number) return NVML_NOT_FOUND;
  return nvmlDeviceGetHandleByIndex_v2(number - 1, handle);
}
API int nvmlDeviceGetIndex(void* handle, unsigned* index) {
  *index = unsigned(number_of(handle));
  return 0;
}
API int nvmlDeviceGetUUID(void* handle, char* text, unsigned bytes) {
  snprintf(text, bytes, "GPU-%02x000000-0000-0000-0000-000000000000", number_of(handle) + 1);
  return 0;
}
API int nvmlDeviceGetName(void*, char* text, unsigned bytes) {
  snprintf(text, bytes, "%s", description().name.c_str());
  return 0;
}
struct MemoryInfo {
  unsigned long long total, free, used;
};
API int nvmlDeviceGetMemoryInfo(void* handle, MemoryInfo* info) {
  info->total = description().total;
  info->used = used_by_all(number_of(handle));
  info->free = info->total - info->used;
  return 0;
}
struct MemoryInfo2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
API int nvmlDeviceGetMemoryInfo_v2(void* handle, MemoryInfo2* info) {
  info->total = description().total;
  info->reserved = 0;
  info->used = used_by_all(number_of(handle));
  info->free = info->total - info->used;
  return 0;
}
struct ProcessInfoV1 {
  unsigned pid;
  unsigned long long bytes;
};
struct ProcessInfo {
  unsigned pid;
  unsigned long long bytes;
  unsigned instance, compute_instance;
};
template <typename Info>
static int list_processes(void* handle, unsigned* count, Info* list) {
  sharing::Process found[sharing::MAX_PROCESSES + 1];
  unsigned size = unsigned(sharing::processes(number_of(handle), found));
  if (size_t own = used_by_this(number_of(handle))) found[size++] = {getpid(), own};
  bool has_room = list && *count >= size;
  *count = size;
  if (!has_room) return NVML_INSUFFICIENT_SIZE;
  for (unsigned index = 0; index < size; index++) {
    memset(&list[index], 0xff, sizeof(Info));  // no instances of a partitioned GPU
    list[index].pid = unsigned(found[index].pid);
    list[index].bytes = found[index].bytes;
  }
  return 0;
}
API int nvmlDeviceGetComputeRunningProcesses_v3(void* handle, unsigned* count, ProcessInfo* list) {
  return list_processes(handle, count, list);
}
API int nvmlDeviceGetComputeRunningProcesses(void* handle, unsigned* count, ProcessInfoV1* list) {
  return list_processes(handle, count, list);
}
struct Utilization {
  unsigned gpu, memory;
};
API int nvmlDeviceGetUtilizationRates(void*, Utilization* rates) {
  *rates = {0, 0};
  return 0;
}
API int nvmlDeviceGetNvLinkRemoteDeviceType(void*, unsigned, int*) { return NVML_NOT_SUPPORTED; }
API int nvmlDeviceGetNvLinkRemotePciInfo_v2(void*, unsigned, void*) { return NVML_NOT_SUPPORTED; }
API int nvmlDeviceGetGpuFabricInfoV(void*, char* info) {
  memset(info + 4, 0, 28);  // after the version: no cluster, and a state of 0, not supported
  return 0;
}
API int nvmlDeviceGetP2PStatus(void*, void*, int, int* status) {
  *status = 0;
  return 0;
}
