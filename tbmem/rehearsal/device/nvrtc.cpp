// NVRTC: kernels that torch writes and compiles while a program runs (prod, torch.special, TorchScript's fused ones).
//
// Nothing is compiled: what is loaded is never executed. NVIDIA's own library does not work beside a simulated device.
#include <cstring>

#include "device.h"

using namespace device;

namespace {

enum Result { success = 0 };  // nvrtcResult
constexpr size_t COMPILED = 64;

Result size_of(size_t* bytes, size_t size) {
  *bytes = size;
  return success;
}

Result zeros(char* code) {
  memset(code, 0, COMPILED);
  return success;
}

}  // namespace

API Result nvrtcVersion(int* major, int* minor) {
  *major = CUDA_MAJOR;
  *minor = CUDA_VERSION % 1000 / 10;
  return success;
}
API Result nvrtcCreateProgram(void** program, const char*, const char*, int, const char* const*, const char* const*) {
  *program = new_handle();
  return success;
}
API Result nvrtcDestroyProgram(void** program) {
  *program = nullptr;
  return success;
}
API Result nvrtcAddNameExpression(void*, const char*) { return success; }
API Result nvrtcCompileProgram(void*, int, const char* const*) { return success; }
API Result nvrtcGetLoweredName(void*, const char* expression, const char** name) {
  *name = expression;
  return success;
}
API Result nvrtcGetCUBINSize(void*, size_t* bytes) { return size_of(bytes, COMPILED); }
API Result nvrtcGetCUBIN(void*, char* code) { return zeros(code); }
API Result nvrtcGetPTXSize(void*, size_t* bytes) { return size_of(bytes, COMPILED); }
API Result nvrtcGetPTX(void*, char* code) { return zeros(code); }
API Result nvrtcGetProgramLogSize(void*, size_t* bytes) { return size_of(bytes, 1); }
API Result nvrtcGetProgramLog(void*, char* log) {
  *log = 0;
  return success;
}
API const char* nvrtcGetErrorString(Result) { return "no error"; }
