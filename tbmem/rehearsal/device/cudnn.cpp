// cuDNN: descriptors that remember their shapes, plans without a workspace, and the buffers of recurrent networks.
//
// Workspaces and reserve buffers that only cuDNN's heuristics know are 0 bytes. The reserve buffer of a recurrent
// network is what its backward pass cannot do without: gates, cell states and outputs of each step, layer and direction.
#include <cstdlib>
#include <cstring>
#include <vector>

#include "device.h"

using namespace device;

namespace {

struct Shape {  // of a tensor, filter or sequence
  int type = 0, dimensions = 0, sizes[8] = {}, strides[8] = {};
};

struct Recurrent {
  int mode, has_bias, is_bidirectional, type, input, hidden, projected, layers;
  int gates() const { return mode == 2 ? 4 : mode == 3 ? 3 : 1; }  // LSTM, GRU, or ReLU and tanh
  int directions() const { return is_bidirectional ? 2 : 1; }
  int outputs() const { return projected ? projected : hidden; }
  int inputs_of(int pseudo_layer) const { return pseudo_layer / directions() ? outputs() * directions() : input; }
};

size_t bytes_of(int type) {  // cudnnDataType_t
  switch (type) {
    case 1: case 6: case 10: case 13: return type == 1 ? 8 : type == 6 ? 4 : type == 10 ? 8 : 1;
    case 2: case 9: return 2;
    case 3: case 5: case 8: case 11: case 12: return 1;
    default: return 4;
  }
}

// Elements of the two matrices of one gate, of a layer in one direction.
size_t input_matrix(const Recurrent& net, int layer) { return size_t(net.inputs_of(layer)) * size_t(net.hidden); }
size_t hidden_matrix(const Recurrent& net) { return size_t(net.outputs()) * size_t(net.hidden); }

size_t matrices_of(const Recurrent& net, int layer) {
  size_t projection = net.projected ? size_t(net.projected) * size_t(net.hidden) : 0;
  return size_t(net.gates()) * (input_matrix(net, layer) + hidden_matrix(net)) + projection;
}
size_t biases_of(const Recurrent& net) { return net.has_bias ? size_t(2 * net.gates()) * size_t(net.hidden) : 0; }

size_t weights_of(const Recurrent& net) {
  size_t elements = 0;
  for (int layer = 0; layer < net.layers * net.directions(); layer++) elements += matrices_of(net, layer) + biases_of(net);
  return elements;
}

void set_shape(Shape& shape, int type, int one, int other) {
  shape = Shape{};
  shape.type = type;
  shape.dimensions = 3;
  int sizes[] = {1, one, other}, strides[] = {one * other, other, 1};
  memcpy(shape.sizes, sizes, sizeof sizes);
  memcpy(shape.strides, strides, sizeof strides);
}

}  // namespace

#define DESCRIPTOR(name, type) \
  API int cudnnCreate##name(type** result) { \
    *result = new type(); \
    return 0; \
  } \
  API int cudnnDestroy##name(type* it) { \
    delete it; \
    return 0; \
  }
struct Empty {};
DESCRIPTOR(TensorDescriptor, Shape)
DESCRIPTOR(FilterDescriptor, Shape)
DESCRIPTOR(RNNDataDescriptor, Shape)
DESCRIPTOR(RNNDescriptor, Recurrent)
DESCRIPTOR(ActivationDescriptor, Empty)
DESCRIPTOR(ConvolutionDescriptor, Empty)
DESCRIPTOR(CTCLossDescriptor, Empty)
DESCRIPTOR(DropoutDescriptor, Empty)
DESCRIPTOR(PoolingDescriptor, Empty)
DESCRIPTOR(SpatialTransformerDescriptor, Empty)

API int cudnnCreate(void** handle) {
  *handle = new_handle();
  return 0;
}
API size_t cudnnGetVersion() { return CUDNN_VERSION; }
API size_t cudnnGetCudartVersion() { return CUDA_VERSION; }
API int cudnnGetProperty(int part, int* value) {
  *value = part == 0 ? CUDNN_VERSION / 10000 : part == 1 ? CUDNN_VERSION / 100 % 100 : CUDNN_VERSION % 100;
  return 0;
}
API const char* cudnnGetErrorString(int status) { return status ? "CUDNN_STATUS_NOT_SUPPORTED" : "CUDNN_STATUS_SUCCESS"; }
API void cudnnGetLastErrorString(char* text, size_t bytes) {
  if (bytes) text[0] = 0;
}
API int cudnnGetStream(void*, void** stream) {
  *stream = nullptr;
  return 0;
}

// ---- Shapes ----

API int cudnnSetTensorNdDescriptor(Shape* shape, int type, int dimensions, const int* sizes, const int* strides) {
  if (dimensions > 8) return 3;
  shape->type = type;
  shape->dimensions = dimensions;
  memcpy(shape->sizes, sizes, sizeof(int) * size_t(dimensions));
  memcpy(shape->strides, strides, sizeof(int) * size_t(dimensions));
  return 0;
}
API int cudnnSetFilterNdDescriptor(Shape* shape, int type, int, int dimensions, const int* sizes) {
  if (dimensions > 8) return 3;
  shape->type = type;
  shape->dimensions = dimensions;
  memcpy(shape->sizes, sizes, sizeof(int) * size_t(dimensions));
  return 0;
}
API int cudnnGetTensorNdDescriptor(Shape* shape, int most, int* type, int* dimensions, int* sizes, int* strides) {
  *type = shape->type;
  *dimensions = shape->dimensions;
  int count = most < shape->dimensions ? most : shape->dimensions;
  memcpy(sizes, shape->sizes, sizeof(int) * size_t(count));
  memcpy(strides, shape->strides, sizeof(int) * size_t(count));
  return 0;
}
API int cudnnGetFilterNdDescriptor(Shape* shape, int most, int* type, int* format, int* dimensions, int* sizes) {
  *format = 0;
  int strides[8];
  return cudnnGetTensorNdDescriptor(shape, most, type, dimensions, sizes, strides);
}

// ---- Recurrent networks ----

API int cudnnSetRNNDataDescriptor(Shape* data, int type, int, int steps, int batch, int width, const int*, void*) {
  set_shape(*data, type, batch, width);
  data->sizes[0] = steps;
  return 0;
}
API int cudnnSetRNNDescriptor_v8(Recurrent* net, int, int mode, int bias, int direction, int, int type, int, int,
                                 int input, int hidden, int projected, int layers, void*, unsigned) {
  *net = {mode, bias != 0, direction, type, input, hidden, projected == hidden ? 0 : projected, layers};
  return 0;
}
API int cudnnGetRNNWeightSpaceSize(void*, Recurrent* net, size_t* bytes) {
  *bytes = weights_of(*net) * bytes_of(net->type);
  return 0;
}
API int cudnnGetRNNTempSpaceSizes(void*, Recurrent* net, int is_training, Shape* data, size_t* workspace,
                                  size_t* reserve) {
  size_t samples = size_t(data->sizes[0]) * size_t(data->sizes[1]), element = bytes_of(net->type);
  size_t kept = size_t(net->gates() + (net->mode == 2)) * size_t(net->hidden) + size_t(net->outputs());
  size_t layers = size_t(net->layers * net->directions());
  size_t scratch = samples * size_t(net->gates()) * size_t(net->hidden) * size_t(net->directions()) * element;
  if (workspace) *workspace = scratch;
  if (reserve) *reserve = is_training ? samples * kept * layers * element : 0;
  return 0;
}
// Matrices of all layers come first, then the biases, in the order of the gates: of the input, of the hidden state.
API int cudnnGetRNNWeightParams(void*, Recurrent* net, int layer, size_t, char* weights, int gate, Shape* matrix,
                                char** matrix_at, Shape* bias, char** bias_at) {
  size_t element = bytes_of(net->type), offset = 0, biases = 0, gates = size_t(net->gates());
  for (int each = 0; each < net->layers * net->directions(); each++) {
    if (each < layer) offset += matrices_of(*net, each);
    biases += matrices_of(*net, each);
  }
  biases += size_t(layer) * biases_of(*net) + size_t(gate) * size_t(net->hidden);
  bool of_input = size_t(gate) < gates, of_projection = size_t(gate) == 2 * gates;
  if (of_input) offset += size_t(gate) * input_matrix(*net, layer);
  else offset += gates * input_matrix(*net, layer) + (size_t(gate) - gates) * hidden_matrix(*net);
  if (matrix) {
    int rows = of_projection ? net->projected : net->hidden;
    set_shape(*matrix, net->type, rows, of_projection ? net->hidden : of_input ? net->inputs_of(layer) : net->outputs());
  }
  if (matrix_at) *matrix_at = of_projection && !net->projected ? nullptr : weights + offset * element;
  if (bias) set_shape(*bias, net->type, net->hidden, 1);
  if (bias_at) *bias_at = net->has_bias && !of_projection ? weights + biases * element : nullptr;
  return 0;
}

// The states of one random generator, 48 bytes, for each of 1024 threads of a multiprocessor.
API int cudnnDropoutGetStatesSize(void*, size_t* bytes) {
  *bytes = size_t(description().multiprocessors) * 1024 * 48;
  return 0;
}

// ---- Batch normalization, losses and convolutions of the older interface ----

API int cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(void*, int, int, void*, void*, void*, void*, void*,
                                                                 size_t* bytes) {
  *bytes = 0;
  return 0;
}
API int cudnnGetBatchNormalizationBackwardExWorkspaceSize(void*, int, int, void*, void*, void*, void*, void*, void*,
                                                          void*, size_t* bytes) {
  *bytes = 0;
  return 0;
}
API int cudnnGetBatchNormalizationTrainingExReserveSpaceSize(void*, int, int, void*, void*, size_t* bytes) {
  *bytes = 0;
  return 0;
}
API int cudnnGetCTCLossWorkspaceSize(void*, void*, void*, void*, void*, void*, int, void*, size_t* bytes) {
  *bytes = 0;
  return 0;
}
API int cudnnGetCTCLossWorkspaceSize_v8(void*, int, void*, void*, void*, size_t* bytes) {
  *bytes = 0;
  return 0;
}
#define CONVOLUTION_WORKSPACE(name) \
  API int name(void*, void*, void*, void*, void*, int, size_t* bytes) { \
    *bytes = 0; \
    return 0; \
  }
CONVOLUTION_WORKSPACE(cudnnGetConvolutionForwardWorkspaceSize)
CONVOLUTION_WORKSPACE(cudnnGetConvolutionBackwardDataWorkspaceSize)
CONVOLUTION_WORKSPACE(cudnnGetConvolutionBackwardFilterWorkspaceSize)
struct Algorithm {  // cudnnConvolutionFwdAlgoPerf_t and its two brothers
  int algorithm, status;
  float time;
  size_t bytes;
  int determinism, math, reserved[3];
};
static int one_algorithm(int* count, Algorithm* results) {
  memset(results, 0, sizeof *results);
  *count = 1;
  return 0;
}
#define CONVOLUTION_ALGORITHM(name) \
  API int name(void*, void*, void*, void*, void*, int, int* count, Algorithm* results) { \
    return one_algorithm(count, results); \
  }
CONVOLUTION_ALGORITHM(cudnnGetConvolutionForwardAlgorithm_v7)
CONVOLUTION_ALGORITHM(cudnnGetConvolutionBackwardDataAlgorithm_v7)
CONVOLUTION_ALGORITHM(cudnnGetConvolutionBackwardFilterAlgorithm_v7)
#define CONVOLUTION_SEARCH(name) \
  API int name(void*, void*, void*, void*, void*, void*, void*, void*, int, int* count, Algorithm* results, void*, \
               size_t) { \
    return one_algorithm(count, results); \
  }
CONVOLUTION_SEARCH(cudnnFindConvolutionForwardAlgorithmEx)
CONVOLUTION_SEARCH(cudnnFindConvolutionBackwardDataAlgorithmEx)
CONVOLUTION_SEARCH(cudnnFindConvolutionBackwardFilterAlgorithmEx)

// ---- Graphs of operations: any graph has one engine, which needs no workspace ----

API int cudnnBackendCreateDescriptor(int, void** descriptor) {
  *descriptor = new_handle();
  return 0;
}
API int cudnnBackendDestroyDescriptor(void* descriptor) {
  free(descriptor);
  return 0;
}
// One engine for each graph, without choices and notes; what it needs of memory is 0.
API int cudnnBackendGetAttribute(void*, int attribute, int type, int64_t asked, int64_t* count, void* values) {
  constexpr int INT64 = 3, NUMERICAL_NOTE = 11, BEHAVIOR_NOTE = 19, INT32 = 23, KNOB_CHOICES = 302;
  bool is_list = type == NUMERICAL_NOTE || type == BEHAVIOR_NOTE || attribute == KNOB_CHOICES;
  if (count) *count = is_list ? 0 : 1;
  if (values && asked > 0 && type == INT64) *(int64_t*)values = 0;
  if (values && asked > 0 && type == INT32) *(int32_t*)values = 0;
  return 0;
}
