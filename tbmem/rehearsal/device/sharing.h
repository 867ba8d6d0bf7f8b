// What other processes of the same rehearsal hold of each GPU.
#pragma once
#include "device.h"

namespace sharing {

constexpr int MAX_PROCESSES = 256;

struct Process {
  int pid;
  size_t bytes;
};

// Nobody else changes what is in use while an object of this class lives; it does nothing in a process that is alone.
class Turn {
 public:
  Turn();
  ~Turn();
};

void publish(int device, size_t bytes);  // what this process has in use
size_t others(int device);               // bytes in use by other living processes
int processes(int device, Process* list);  // those, one by one; the list has room for MAX_PROCESSES

}  // namespace sharing
