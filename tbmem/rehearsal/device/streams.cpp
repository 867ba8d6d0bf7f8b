// Streams, events and graph capture. All work is done when it is submitted; a captured graph has nodes and no work.
#include "streams.h"

#include <atomic>
#include <chrono>
#include <set>

using namespace device;

namespace {

struct Graph {
  size_t nodes = 0;
};

struct Capture {
  unsigned long long id;
  void* origin;
  int mode;
  Graph* graph;
};

struct Event {
  double time = 0;
  unsigned long long launches = 0, capture = 0;
};

constexpr double LAUNCH_SECONDS = 1e-4;  // who measures a kernel must not measure nothing

std::mutex lock;
std::map<void*, unsigned long long> capturing;  // stream to capture; several streams take part in one
std::map<unsigned long long, Capture> captures;
unsigned long long next_capture = 1;
std::atomic<unsigned long long> launches{0};
std::atomic<size_t> open_captures{0};

typedef std::lock_guard<std::mutex> Guard;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Capture* capture_of(void* stream) {
  auto found = capturing.find(stream);
  return found == capturing.end() ? nullptr : &captures[found->second];
}

cudaError_t begin(void* stream, int mode, Graph* graph) {
  Guard guard(lock);
  if (capture_of(stream)) return fail(cudaErrorIllegalState);
  unsigned long long id = next_capture++;
  captures[id] = {id, stream, mode, graph};
  capturing[stream] = id;
  open_captures++;
  return cudaSuccess;
}

cudaError_t info(void* stream, int* status, unsigned long long* id, void** graph) {
  Guard guard(lock);
  Capture* capture = open_captures ? capture_of(stream) : nullptr;
  *status = capture ? 1 : 0;
  if (id) *id = capture ? capture->id : 0;
  if (graph) *graph = capture ? capture->graph : nullptr;
  return cudaSuccess;
}

}  // namespace

namespace streams {

void note_launch(void* stream) {
  launches++;
  if (!open_captures) return;
  Guard guard(lock);
  if (Capture* capture = capture_of(stream)) capture->graph->nodes++;
}

}  // namespace streams

API cudaError_t cudaStreamCreate(void** stream) {
  note_use();
  *stream = new_handle();
  return cudaSuccess;
}
API cudaError_t cudaStreamCreateWithFlags(void** stream, unsigned) { return cudaStreamCreate(stream); }
API cudaError_t cudaStreamCreateWithPriority(void** stream, unsigned, int) { return cudaStreamCreate(stream); }
API cudaError_t cudaStreamGetPriority(void*, int* priority) {
  *priority = 0;
  return cudaSuccess;
}
API cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return cudaSuccess;
}
API cudaError_t cudaStreamWaitEvent(void* stream, Event* event, unsigned) {
  Guard guard(lock);
  if (event->capture && captures.count(event->capture)) capturing[stream] = event->capture;  // joins it
  return cudaSuccess;
}
API cudaError_t cudaLaunchHostFunc(void* stream, void (*function)(void*), void* data) {
  int status;
  info(stream, &status, nullptr, nullptr);
  if (!status) function(data);
  return cudaSuccess;
}
API cudaError_t cudaStreamAddCallback(void* stream, void (*function)(void*, int, void*), void* data, unsigned) {
  function(stream, cudaSuccess, data);
  return cudaSuccess;
}

// ---- Events ----

API cudaError_t cudaEventCreateWithFlags(Event** event, unsigned) {
  note_use();
  *event = new Event;
  return cudaSuccess;
}
API cudaError_t cudaEventCreate(Event** event) { return cudaEventCreateWithFlags(event, 0); }
API cudaError_t cudaEventDestroy(Event* event) {
  delete event;
  return cudaSuccess;
}
API cudaError_t cudaEventRecord(Event* event, void* stream) {
  event->time = now();
  event->launches = launches;
  event->capture = 0;
  if (open_captures) {
    Guard guard(lock);
    if (Capture* capture = capture_of(stream)) event->capture = capture->id;
  }
  return cudaSuccess;
}
API cudaError_t cudaEventRecordWithFlags(Event* event, void* stream, unsigned) { return cudaEventRecord(event, stream); }
API cudaError_t cudaEventElapsedTime(float* milliseconds, Event* start, Event* end) {
  double launched = double(end->launches - start->launches) * LAUNCH_SECONDS, passed = end->time - start->time;
  *milliseconds = float(1e3 * (passed > launched ? passed : launched));
  return cudaSuccess;
}
API cudaError_t cudaEventElapsedTime_v2(float* milliseconds, Event* start, Event* end) {
  return cudaEventElapsedTime(milliseconds, start, end);
}
API cudaError_t cudaIpcGetEventHandle(void*, Event*) { return cudaSuccess; }
struct EventHandle {
  char bytes[64];
};
API cudaError_t cudaIpcOpenEventHandle(Event** event, EventHandle) { return cudaEventCreate(event); }

// ---- Capture ----

API cudaError_t cudaStreamBeginCapture(void* stream, int mode) { return begin(stream, mode, new Graph); }
API cudaError_t cudaStreamBeginCaptureToGraph(void* stream, Graph* graph, const void*, const void*, size_t, int mode) {
  return begin(stream, mode, graph);
}
API cudaError_t cudaStreamEndCapture(void* stream, Graph** graph) {
  Guard guard(lock);
  Capture* capture = capture_of(stream);
  if (!capture || capture->origin != stream) return fail(cudaErrorIllegalState);
  unsigned long long id = capture->id;
  *graph = capture->graph;
  captures.erase(id);
  for (auto it = capturing.begin(); it != capturing.end();) it = it->second == id ? capturing.erase(it) : std::next(it);
  open_captures--;
  return cudaSuccess;
}
API cudaError_t cudaStreamDestroy(void* stream) {
  Guard guard(lock);
  capturing.erase(stream);
  return cudaSuccess;
}
API cudaError_t cudaStreamIsCapturing(void* stream, int* status) { return info(stream, status, nullptr, nullptr); }
API cudaError_t cudaThreadExchangeStreamCaptureMode(int* mode) {
  thread_local int own = 0;
  int before = own;
  own = *mode;
  *mode = before;
  return cudaSuccess;
}

#if CUDA_MAJOR >= 13
API cudaError_t cudaStreamGetCaptureInfo(void* stream, int* status, unsigned long long* id, void** graph,
                                         const void** dependencies, const void** edges, size_t* count) {
  if (dependencies) *dependencies = nullptr;
  if (edges) *edges = nullptr;
  if (count) *count = 0;
  return info(stream, status, id, graph);
}
#else
API cudaError_t cudaStreamGetCaptureInfo_v2(void* stream, int* status, unsigned long long* id, void** graph,
                                            const void** dependencies, size_t* count) {
  if (dependencies) *dependencies = nullptr;
  if (count) *count = 0;
  return info(stream, status, id, graph);
}
API cudaError_t cudaStreamGetCaptureInfo(void* stream, int* status, unsigned long long* id) {
  return info(stream, status, id, nullptr);
}
#endif

// ---- Graphs ----

API cudaError_t cudaGraphGetNodes(Graph* graph, void** nodes, size_t* count) {
  if (!nodes) *count = graph->nodes;
  else
    for (size_t node = 0; node < *count; node++) nodes[node] = graph;
  return cudaSuccess;
}
static cudaError_t add_node(void** node, Graph* graph) {
  graph->nodes++;
  *node = graph;
  return cudaSuccess;
}
API cudaError_t cudaGraphAddNode(void** node, Graph* graph) { return add_node(node, graph); }
API cudaError_t cudaGraphAddEmptyNode(void** node, Graph* graph) { return add_node(node, graph); }
API cudaError_t cudaGraphNodeGetType(void*, int* type) {
  *type = 0;  // a kernel
  return cudaSuccess;
}
API cudaError_t cudaGraphNodeGetDependencies(void*, void*, void*, size_t* count) {
  *count = 0;
  return cudaSuccess;
}
API cudaError_t cudaGraphInstantiate(void** executable, Graph*, unsigned long long) {
  *executable = new_handle();
  return cudaSuccess;
}
API cudaError_t cudaGraphInstantiateWithFlags(void** executable, Graph* graph, unsigned long long flags) {
  return cudaGraphInstantiate(executable, graph, flags);
}
API cudaError_t cudaGraphConditionalHandleCreate(unsigned long long* handle) {
  *handle = 1;
  return cudaSuccess;
}
API cudaError_t cudaUserObjectCreate(void** object) {
  *object = new_handle();
  return cudaSuccess;
}
