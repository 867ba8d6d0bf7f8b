// The GPUs' memory is shared by the processes of a rehearsal: a mapped file has a slot for each of them.
//
// A process holds a lock of the kernel on its slot. It ends with the process, however that ends, so that a slot that
// nobody has locked is not counted. Only what reserves memory of a device comes here, never a tensor.
#include "sharing.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>

namespace {

struct Slot {
  std::atomic<int> pid;
  std::atomic<size_t> used[device::MAX_DEVICES];
};
struct Table {
  std::atomic<int> slots;  // that were ever taken
  Slot slot[sharing::MAX_PROCESSES];
};

constexpr off_t TURN = 0, FIRST_SLOT = 1;  // bytes of the file that are locked
int file = -1;
Table* table = nullptr;
Slot* own = nullptr;

struct flock range(short type, off_t begin) {
  struct flock result {};
  result.l_type = type;
  result.l_whence = SEEK_SET;
  result.l_start = begin;
  result.l_len = 1;
  return result;
}

bool change_lock(short type, off_t begin, int command = F_SETLK) {
  struct flock wanted = range(type, begin);
  return fcntl(file, command, &wanted) == 0;
}

bool is_alive(int index) {
  struct flock found = range(F_WRLCK, FIRST_SLOT + index);
  return fcntl(file, F_GETLK, &found) == 0 && found.l_type != F_UNLCK;
}

void take_slot() {
  change_lock(F_WRLCK, TURN, F_SETLKW);
  for (int index = 0; index < sharing::MAX_PROCESSES && !own; index++) {
    if (!change_lock(F_WRLCK, FIRST_SLOT + index)) continue;
    own = &table->slot[index];
    for (auto& bytes : own->used) bytes = 0;
    own->pid = getpid();
    if (table->slots <= index) table->slots = index + 1;
  }
  change_lock(F_UNLCK, TURN);
}

void leave_in_child() {  // a forked child has neither the lock nor the GPU
  if (file >= 0) close(file);
  file = -1;
  own = nullptr;
  table = nullptr;
}

// Open the file when it is first needed; without one this process is alone.
bool is_open() {
  static std::mutex lock;
  static int opened_by = 0;
  std::lock_guard<std::mutex> guard(lock);
  if (opened_by == getpid()) return own;
  opened_by = getpid();
  const char* folder = getenv("TBMEM_GPU_FOLDER");
  if (!folder || !*folder) return false;
  file = open((std::string(folder) + "/memory").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) return false;
  void* mapped = MAP_FAILED;
  if (ftruncate(file, sizeof(Table)) == 0)
    mapped = mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (mapped == MAP_FAILED) {
    leave_in_child();
    return false;
  }
  table = (Table*)mapped;
  take_slot();
  static bool is_watched = !pthread_atfork(nullptr, nullptr, leave_in_child);
  return own && is_watched;
}

}  // namespace

namespace sharing {

Turn::Turn() {
  if (is_open()) change_lock(F_WRLCK, TURN, F_SETLKW);
}

Turn::~Turn() {
  if (own) change_lock(F_UNLCK, TURN);
}

void publish(int device, size_t bytes) {
  if (own) own->used[device] = bytes;
}

int processes(int device, Process* list) {
  if (!is_open()) return 0;
  int count = 0;
  for (int index = 0; index < table->slots; index++) {
    Slot& slot = table->slot[index];
    size_t bytes = slot.used[device];
    if (&slot != own && bytes && is_alive(index)) list[count++] = {slot.pid, bytes};
  }
  return count;
}

size_t others(int device) {
  Process list[MAX_PROCESSES];
  size_t result = 0;
  for (int index = processes(device, list); index > 0; index--) result += list[index - 1].bytes;
  return result;
}

}  // namespace sharing
