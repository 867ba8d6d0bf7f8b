// Device memory: address ranges of the host, and the bytes in them that the host has written.
#pragma once
#include "device.h"

namespace memory {

// What the host writes is kept up to this size of a copy; what is larger reads as zero.
constexpr size_t KEPT_COPY = size_t(1) << 20;

struct Range {
  char* begin;
  size_t bytes;
  int device;
};

// Reserve addresses for a device, aligned to a driver's page; nullptr if the host has none.
char* reserve(size_t bytes, int device);
void unreserve(char* begin);
bool find(const void* address, Range* result);

cudaError_t allocate(void** result, size_t bytes, int device);
cudaError_t give_back(void* address);

// Memory of the host: whether it is pinned or managed (cudaMemoryType...), and the end of managed memory.
int host_kind(const void* address);
bool give_back_managed(void* address);

// Copy between any two of host and device.
void copy(void* target, const void* source, size_t bytes);
void forget(void* target, size_t bytes);  // something wrote there, nobody knows what: zero
void fill(void* target, int value, size_t bytes);

// Whether all of it was written by the host, so that reading it is reading what was written.
bool is_known(const void* address, size_t bytes);
bool has_known(const void* address, size_t bytes);  // a part of it

}  // namespace memory
