// NVML as far as torch and monitors of memory ask.
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "device.h"

using namespace device;

enum { NVML_NOT_SUPPORTED = 3, NVML_NOT_FOUND = 6, NVML_INVALID = 2 };

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
  *count = unsigned(description().count);
  return 0;
}
API int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** handle) {
  if (index >= unsigned(description().count)) return NVML_INVALID;
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
  info->used = in_use(number_of(handle));
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
  info->used = in_use(number_of(handle));
  info->free = info->total - info->used;
  return 0;
}
struct ProcessInfo {
  unsigned pid;
  unsigned long long bytes;
  unsigned instance, compute_instance;
};
API int nvmlDeviceGetComputeRunningProcesses_v3(void* handle, unsigned* count, ProcessInfo* list) {
  if (*count && list) list[0] = {unsigned(getpid()), in_use(number_of(handle)), ~0u, ~0u};
  *count = 1;
  return 0;
}
API int nvmlDeviceGetComputeRunningProcesses(void* handle, unsigned* count, ProcessInfo* list) {
  return nvmlDeviceGetComputeRunningProcesses_v3(handle, count, list);
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
