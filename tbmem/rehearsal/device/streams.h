// Streams and what is captured on them.
#pragma once
#include "device.h"

namespace streams {

void note_launch(void* stream);  // of a kernel: time passes, a captured graph has one node more

}
