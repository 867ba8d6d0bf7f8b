// NCCL: communicators that know their ranks, and collectives over what the host has written.
//
// A process that is alone is any rank of any world; all others are taken to have the same values. Several processes on
// one machine (torchrun) exchange small known values through files in TBMEM_GPU_FOLDER. Larger messages carry nothing.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "memory.h"

using namespace device;

namespace {

constexpr size_t EXCHANGED = 64 << 10;  // bytes of a message that is passed on
constexpr int SYSTEM_ERROR = 2, INVALID_ARGUMENT = 4;
constexpr int PATIENCE_SECONDS = 600;

struct UniqueId {
  char bytes[128];
};

struct Communicator {
  std::string name;
  int ranks, rank, device;  // ranks: 0 where a process that is alone cannot know them, after a split
  unsigned long long collectives = 0, splits = 0;
  std::map<int, unsigned long long> sent, received;
  size_t known_ranks() const { return size_t(ranks ? ranks : rank + 1); }
};

typedef std::vector<char> Message;

size_t element_bytes(int type) {  // ncclDataType_t
  static const size_t BYTES[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return type >= 0 && type < 12 ? BYTES[type] : 1;
}

const char* folder() { return getenv("TBMEM_GPU_FOLDER"); }
// Without a folder this process is alone; without a name all ranks are in this process.
bool has_peers(const Communicator* group) { return folder() && group->ranks > 1 && !group->name.empty(); }

bool write_file(const std::string& path, const Message& message) {
  std::string unfinished = path + ".part";
  FILE* file = fopen(unfinished.c_str(), "wb");
  if (!file) return false;
  bool is_written = message.empty() || fwrite(message.data(), message.size(), 1, file) == 1;
  return fclose(file) == 0 && is_written && rename(unfinished.c_str(), path.c_str()) == 0;
}

bool wait_for_file(const std::string& path, Message* message) {
  for (long waited = 0; waited < PATIENCE_SECONDS * 1000L; waited++) {
    if (FILE* file = fopen(path.c_str(), "rb")) {
      struct stat about;
      fstat(fileno(file), &about);
      message->resize(size_t(about.st_size));
      bool is_read = message->empty() || fread(message->data(), message->size(), 1, file) == 1;
      fclose(file);
      return is_read;
    }
    usleep(waited < 100 ? 100 : 1000);
  }
  return false;
}

std::string path_of(const Communicator* group, const char* kind, int from, int to, unsigned long long number) {
  char text[64];
  snprintf(text, sizeof text, ".%s.%d.%d.%llu", kind, from, to, number);
  return std::string(folder()) + "/" + group->name + text;
}

// What each rank contributes, in the order of ranks; an unknown or large contribution is an empty message. One that is
// known in parts is passed on: torch pads objects to one length.
bool exchange(Communicator* group, const void* own, size_t bytes, std::vector<Message>* all) {
  Message message;
  if (own && bytes <= EXCHANGED && memory::has_known(own, bytes)) message.assign((char*)own, (char*)own + bytes);
  all->assign(group->known_ranks(), message);
  if (!has_peers(group)) return true;
  unsigned long long number = group->collectives++;
  if (bytes > EXCHANGED) return true;  // of the same size everywhere
  if (!write_file(path_of(group, "all", group->rank, 0, number), message)) return false;
  for (int rank = 0; rank < group->ranks; rank++)
    if (rank != group->rank && !wait_for_file(path_of(group, "all", rank, 0, number), &(*all)[size_t(rank)])) return false;
  if (number >= 2) unlink(path_of(group, "all", group->rank, 0, number - 2).c_str());  // everybody has read it
  return true;
}

void put(void* target, const Message& message, size_t bytes) {
  if (message.size() == bytes) memory::copy(target, message.data(), bytes);
  else memory::forget(target, bytes);
}

template <typename Number>
void combine(Message* result, const Message& other, int operation) {
  Number *values = (Number*)result->data(), *others = (Number*)other.data();
  for (size_t index = 0; index < result->size() / sizeof(Number); index++) {
    Number one = values[index], two = others[index];
    values[index] = operation == 1 ? Number(one * two) : operation == 2 ? (one > two ? one : two)
                  : operation == 3 ? (one < two ? one : two) : Number(one + two);
  }
}

template <typename Number>
void divide(Message* result, int ranks) {
  Number* values = (Number*)result->data();
  for (size_t index = 0; index < result->size() / sizeof(Number); index++) values[index] = Number(values[index] / Number(ranks));
}

// The reduction of all ranks' messages; empty if one is not known. Half precision: the own value, exact for averages.
Message reduce(const std::vector<Message>& all, int type, int operation, int own) {
  Message result = all[0];
  for (const Message& each : all)
    if (each.empty() || each.size() != result.size()) return {};
  if (type == 6 || type >= 9) return all[size_t(own)];
  for (size_t rank = 1; rank < all.size(); rank++) switch (type) {
      case 0: combine<int8_t>(&result, all[rank], operation); break;
      case 1: combine<uint8_t>(&result, all[rank], operation); break;
      case 2: combine<int32_t>(&result, all[rank], operation); break;
      case 3: combine<uint32_t>(&result, all[rank], operation); break;
      case 4: combine<int64_t>(&result, all[rank], operation); break;
      case 5: combine<uint64_t>(&result, all[rank], operation); break;
      case 7: combine<float>(&result, all[rank], operation); break;
      default: combine<double>(&result, all[rank], operation);
    }
  int ranks = int(all.size());
  if (operation >= 4 && type == 7) divide<float>(&result, ranks);
  else if (operation >= 4 && type == 8) divide<double>(&result, ranks);
  return result;
}

int open(Communicator** result, const std::string& name, int ranks, int rank, int number) {
  static std::atomic<unsigned long long> has_buffers{0};
  if (ranks < 0 || rank < 0 || (ranks && rank >= ranks)) return INVALID_ARGUMENT;
  unsigned long long bit = 1ull << number;
  if (ranks != 1 && !(has_buffers.fetch_or(bit) & bit) && !charge(number, description().communication))
    return 1;  // an error of CUDA: no room for its buffers
  *result = new Communicator{name, ranks, rank, number};
  return 0;
}

std::string name_of(const UniqueId& id) { return std::string(id.bytes, strnlen(id.bytes, 40)); }

}  // namespace

API int ncclGetVersion(int* version) {
  *version = 22703;
  return 0;
}
API int ncclGetUniqueId(UniqueId* id) {
  static std::atomic<unsigned> next{0};
  memset(id, 0, sizeof *id);
  snprintf(id->bytes, sizeof id->bytes, "nccl-%d-%u", getpid(), next++);
  return 0;
}
API const char* ncclGetErrorString(int error) { return error ? "unhandled system error" : "no error"; }
API const char* ncclGetLastError(Communicator*) { return ""; }
API int ncclCommGetAsyncError(Communicator*, int* error) { return *error = 0; }
API int ncclCommInitRank(Communicator** result, int ranks, UniqueId id, int rank) {
  return open(result, name_of(id), ranks, rank, current());
}
API int ncclCommInitRankConfig(Communicator** result, int ranks, UniqueId id, int rank, void*) {
  return open(result, name_of(id), ranks, rank, current());
}
API int ncclCommInitRankScalable(Communicator** result, int ranks, int rank, int, UniqueId* ids, void*) {
  return open(result, name_of(ids[0]), ranks, rank, current());
}
API int ncclCommInitAll(Communicator** results, int ranks, const int* numbers) {
  for (int rank = 0; rank < ranks; rank++)
    if (int error = open(&results[rank], "", ranks, rank, numbers ? numbers[rank] : rank)) return error;
  return 0;
}
API int ncclCommCount(Communicator* group, int* ranks) {
  *ranks = group->ranks;
  return 0;
}
API int ncclCommUserRank(Communicator* group, int* rank) {
  *rank = group->rank;
  return 0;
}
API int ncclCommCuDevice(Communicator* group, int* number) {
  *number = group->device;
  return 0;
}
// Ranks of one color, in the order of their keys. To a process that is alone nobody says how many they are; torch's
// keys are the ranks of the new group.
API int ncclCommSplit(Communicator* group, int color, int key, Communicator** result, void*) {
  *result = nullptr;
  int ranks = 0, rank = key;
  if (has_peers(group)) {
    int own[] = {color, key};
    unsigned long long number = group->collectives++;
    Message message((char*)own, (char*)(own + 2));
    if (!write_file(path_of(group, "split", group->rank, 0, number), message)) return SYSTEM_ERROR;
    rank = 0;
    for (int each = 0; each < group->ranks; each++) {
      Message other;
      if (!wait_for_file(path_of(group, "split", each, 0, number), &other)) return SYSTEM_ERROR;
      int theirs[2];
      memcpy(theirs, other.data(), sizeof theirs);
      if (theirs[0] != color) continue;
      ranks++;
      rank += theirs[1] < key || (theirs[1] == key && each < group->rank);
    }
  }
  if (color < 0) return 0;
  char name[32];
  snprintf(name, sizeof name, "-%llu-%d", group->splits++, color);
  return open(result, group->name + name, ranks, rank, current());
}
API int ncclCommDestroy(Communicator*) { return 0; }
API int ncclMemAlloc(void** address, size_t bytes) { return memory::allocate(address, bytes, current()) ? 1 : 0; }
API int ncclMemFree(void* address) { return memory::give_back(address) ? 1 : 0; }
API int ncclCommRegister(Communicator*, void*, size_t, void** handle) {
  *handle = new_handle();
  return 0;
}
API int ncclCommWindowRegister(Communicator*, void*, size_t, void** window, int) {
  *window = new_handle();
  return 0;
}
API int ncclRedOpCreatePreMulSum(int* operation) {
  *operation = 5;
  return 0;
}

// ---- Collectives ----

API int ncclAllReduce(const void* own, void* result, size_t count, int type, int operation, Communicator* group, void*) {
  std::vector<Message> all;
  size_t bytes = count * element_bytes(type);
  if (!exchange(group, own, bytes, &all)) return SYSTEM_ERROR;
  Message reduced = reduce(all, type, operation, group->rank);
  if (reduced.empty()) memory::copy(result, own, bytes);
  else put(result, reduced, bytes);
  return 0;
}
API int ncclReduce(const void* own, void* result, size_t count, int type, int operation, int root, Communicator* group,
                   void* stream) {
  if (group->rank == root) return ncclAllReduce(own, result, count, type, operation, group, stream);
  std::vector<Message> all;
  return exchange(group, own, count * element_bytes(type), &all) ? 0 : SYSTEM_ERROR;
}
API int ncclBroadcast(const void* own, void* result, size_t count, int type, int root, Communicator* group, void*) {
  std::vector<Message> all;
  size_t bytes = count * element_bytes(type);
  bool is_root = group->rank == root;
  if (!exchange(group, is_root ? own : has_peers(group) ? nullptr : result, bytes, &all)) return SYSTEM_ERROR;
  put(result, all[size_t(root)], bytes);
  return 0;
}
API int ncclBcast(void* buffer, size_t count, int type, int root, Communicator* group, void* stream) {
  return ncclBroadcast(buffer, buffer, count, type, root, group, stream);
}
API int ncclAllGather(const void* own, void* result, size_t count, int type, Communicator* group, void*) {
  std::vector<Message> all;
  size_t bytes = count * element_bytes(type);
  if (!exchange(group, own, bytes, &all)) return SYSTEM_ERROR;
  for (size_t rank = 0; rank < all.size(); rank++) put((char*)result + rank * bytes, all[rank], bytes);
  return 0;
}
API int ncclGather(const void* own, void* result, size_t count, int type, int root, Communicator* group, void* stream) {
  if (group->rank == root) return ncclAllGather(own, result, count, type, group, stream);
  std::vector<Message> all;
  return exchange(group, own, count * element_bytes(type), &all) ? 0 : SYSTEM_ERROR;
}
API int ncclReduceScatter(const void* own, void* result, size_t count, int type, int operation, Communicator* group,
                          void*) {
  std::vector<Message> all;
  size_t bytes = count * element_bytes(type);
  if (!exchange(group, own, bytes * group->known_ranks(), &all)) return SYSTEM_ERROR;
  Message reduced = reduce(all, type, operation, group->rank);
  const char* part = (const char*)own + size_t(group->rank) * bytes;
  if (reduced.empty()) memory::copy(result, part, bytes);
  else memory::copy(result, reduced.data() + size_t(group->rank) * bytes, bytes);
  return 0;
}
API int ncclAlltoAll(const void* own, void* result, size_t count, int type, Communicator* group, void*) {
  std::vector<Message> all;
  size_t bytes = count * element_bytes(type);
  if (!exchange(group, own, bytes * group->known_ranks(), &all)) return SYSTEM_ERROR;
  for (size_t rank = 0; rank < all.size(); rank++)
    if (!all[rank].empty())
      memory::copy((char*)result + rank * bytes, all[rank].data() + size_t(group->rank) * bytes, bytes);
  return 0;
}
API int ncclSend(const void* data, size_t count, int type, int peer, Communicator* group, void*) {
  size_t bytes = count * element_bytes(type);
  if (!has_peers(group) || bytes > EXCHANGED) return 0;
  Message message;
  if (memory::has_known(data, bytes)) message.assign((char*)data, (char*)data + bytes);
  return write_file(path_of(group, "send", group->rank, peer, group->sent[peer]++), message) ? 0 : SYSTEM_ERROR;
}
API int ncclRecv(void* data, size_t count, int type, int peer, Communicator* group, void*) {
  size_t bytes = count * element_bytes(type);
  if (!has_peers(group) || bytes > EXCHANGED) {
    memory::forget(data, bytes);
    return 0;
  }
  Message message;
  std::string path = path_of(group, "send", peer, group->rank, group->received[peer]++);
  if (!wait_for_file(path, &message)) return SYSTEM_ERROR;
  unlink(path.c_str());
  put(data, message, bytes);
  return 0;
}
