// cuBLAS, cuSOLVER, cuSPARSE, cuFFT and CUPTI: handles that can be pointed at, and sizes that somebody allocates.
//
// Workspaces that only a library's own heuristics know are 0 bytes here. torch allocates the workspace of cuBLAS itself.
#include <cstring>

#include "device.h"

using namespace device;

// torch has a workspace for each handle: each is another one.
#define HANDLE(name) \
  API int name(void** handle) { \
    *handle = new_handle(); \
    return 0; \
  }
HANDLE(cublasCreate_v2)
HANDLE(cublasLtCreate)
HANDLE(cusolverDnCreate)
HANDLE(cusparseCreate)

// Descriptors are made and destroyed at each call, and nothing is asked of them: all are the same.
static char descriptor;
#define DESCRIPTOR(name) \
  API int name(void** result) { \
    *result = &descriptor; \
    return 0; \
  }
DESCRIPTOR(cublasLtMatmulDescCreate)
DESCRIPTOR(cublasLtMatmulPreferenceCreate)
DESCRIPTOR(cublasLtMatrixLayoutCreate)
DESCRIPTOR(cusolverDnCreateGesvdjInfo)
DESCRIPTOR(cusolverDnCreateParams)
DESCRIPTOR(cusolverDnCreateSyevjInfo)
DESCRIPTOR(cusparseCreateBsrsm2Info)
DESCRIPTOR(cusparseCreateBsrsv2Info)
DESCRIPTOR(cusparseCreateCoo)
DESCRIPTOR(cusparseCreateCsr)
DESCRIPTOR(cusparseCreateDnMat)
DESCRIPTOR(cusparseCreateDnVec)
DESCRIPTOR(cusparseCreateMatDescr)
DESCRIPTOR(cusparseSpGEMM_createDescr)
DESCRIPTOR(cusparseSpSM_createDescr)
DESCRIPTOR(cusparseSpSV_createDescr)

// ---- cuBLAS ----

struct Heuristic {  // cublasLtMatmulHeuristicResult_t: algorithm, bytes of workspace, status, waves, reserved
  uint64_t algorithm[8];
  size_t workspace;
  int status;
  float waves;
  int reserved[4];
};
API int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*, int, Heuristic* results,
                                       int* count) {
  memset(results, 0, sizeof *results);
  *count = 1;
  return 0;
}
API int cublasLtMatmulAlgoConfigGetAttribute(const void*, int, void* value, size_t bytes, size_t* written) {
  memset(value, 0, bytes);
  if (written) *written = bytes;
  return 0;
}
API int cublasGetMathMode(void*, int* mode) { return *mode = 0; }
API int cublasGetPointerMode_v2(void*, int* mode) { return *mode = 0; }
API int cublasGetStream_v2(void*, void** stream) {
  *stream = nullptr;
  return 0;
}
API int cublasGetVersion_v2(void*, int* version) {
  *version = CUDA_VERSION / 1000 * 10000 + 101;
  return 0;
}
API size_t cublasLtGetVersion() { return size_t(CUDA_VERSION / 1000 * 10000 + 101); }
API const char* cublasGetStatusString(int) { return "CUBLAS_STATUS"; }
API const char* cublasLtGetStatusString(int) { return "CUBLAS_STATUS"; }

// ---- Bytes of workspace: the argument that receives them is at another place in each function ----

#define ARGUMENTS \
  void *a0, void *a1, void *a2, void *a3, void *a4, void *a5, void *a6, void *a7, void *a8, void *a9, void *a10, \
      void *a11, void *a12, void *a13, void *a14, void *a15, void *a16, void *a17, void *a18, void *a19
#define NO_WORKSPACE(name, type, argument) \
  API int name(ARGUMENTS) { \
    *(type*)argument = 0; \
    return 0; \
  }
#define NO_WORKSPACES(name, one, other) \
  API int name(ARGUMENTS) { \
    *(size_t*)one = *(size_t*)other = 0; \
    return 0; \
  }
#define REAL_TYPES(stem, argument) \
  NO_WORKSPACE(cusolverDnS##stem##_bufferSize, int, argument) \
  NO_WORKSPACE(cusolverDnD##stem##_bufferSize, int, argument)
#define COMPLEX_TYPES(stem, argument) \
  NO_WORKSPACE(cusolverDnC##stem##_bufferSize, int, argument) \
  NO_WORKSPACE(cusolverDnZ##stem##_bufferSize, int, argument)
#define ALL_TYPES(stem, argument) REAL_TYPES(stem, argument) COMPLEX_TYPES(stem, argument)

ALL_TYPES(geqrf, a5)
ALL_TYPES(gesvd, a3)
ALL_TYPES(gesvdaStridedBatched, a16)
ALL_TYPES(gesvdjBatched, a11)
ALL_TYPES(gesvdj, a12)
ALL_TYPES(getrf, a5)
ALL_TYPES(potrf, a5)
ALL_TYPES(sytrf, a4)
REAL_TYPES(syevd, a7)
REAL_TYPES(syevjBatched, a7)
REAL_TYPES(syevj, a7)
REAL_TYPES(orgqr, a7)
REAL_TYPES(ormqr, a11)
COMPLEX_TYPES(heevd, a7)
COMPLEX_TYPES(heevjBatched, a7)
COMPLEX_TYPES(heevj, a7)
COMPLEX_TYPES(ungqr, a7)
COMPLEX_TYPES(unmqr, a11)
NO_WORKSPACES(cusolverDnXgeev_bufferSize, a17, a18)
NO_WORKSPACES(cusolverDnXgeqrf_bufferSize, a10, a11)
NO_WORKSPACES(cusolverDnXpotrf_bufferSize, a8, a9)
NO_WORKSPACES(cusolverDnXsyevBatched_bufferSize, a11, a12)
NO_WORKSPACES(cusolverDnXsyevd_bufferSize, a11, a12)
NO_WORKSPACES(cusolverDnXsytrs_bufferSize, a11, a12)

#define SPARSE_TYPES(stem, type, argument) \
  NO_WORKSPACE(cusparseS##stem, type, argument) \
  NO_WORKSPACE(cusparseD##stem, type, argument) \
  NO_WORKSPACE(cusparseC##stem, type, argument) \
  NO_WORKSPACE(cusparseZ##stem, type, argument)
SPARSE_TYPES(bsrsm2_bufferSize, int, a13)
SPARSE_TYPES(bsrsv2_bufferSize, int, a11)
SPARSE_TYPES(csrgeam2_bufferSizeExt, size_t, a19)
NO_WORKSPACE(cusparseSDDMM_bufferSize, size_t, a10)
NO_WORKSPACE(cusparseSpMM_bufferSize, size_t, a10)
NO_WORKSPACE(cusparseSpMV_bufferSize, size_t, a9)
NO_WORKSPACE(cusparseSpSM_bufferSize, size_t, a10)
NO_WORKSPACE(cusparseSpSV_bufferSize, size_t, a9)
NO_WORKSPACE(cusparseXcoosort_bufferSizeExt, size_t, a6)
NO_WORKSPACE(cusparseXcsrsort_bufferSizeExt, size_t, a6)
NO_WORKSPACE(cufftXtMakePlanMany, size_t, a12)
API int cusparseSpMatGetSize(void*, int64_t* rows, int64_t* columns, int64_t* entries) {
  *rows = *columns = *entries = 0;  // of a product that nobody computed
  return 0;
}
API const char* cusparseGetErrorString(int) { return "CUSPARSE_STATUS"; }

// ---- cuFFT and CUPTI ----

API int cufftCreate(int* plan) {
  static int next = 1;
  *plan = next++;
  return 0;
}
API int cuptiGetVersion(unsigned* version) {
  *version = CUDA_VERSION / 10 * 10 + 2;
  return 0;
}
API int cuptiGetResultString(int, const char** text) {
  *text = "CUPTI_SUCCESS";
  return 0;
}
API int cuptiActivityGetNumDroppedRecords(void*, unsigned, size_t* count) {
  *count = 0;
  return 0;
}
API int cuptiActivityGetNextRecord(void*, size_t, void**) { return 12; }  // no more records
API int cuptiGetCallbackName(int, unsigned, const char** name) {
  *name = "";
  return 0;
}
API int cuptiGetTimestamp(uint64_t* time) {
  *time = 0;
  return 0;
}
