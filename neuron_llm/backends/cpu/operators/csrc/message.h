// The text of a thread's last error.
#pragma once

#include <cstdarg>
#include <cstdio>

namespace neuron_llm {

inline thread_local char last_message[512] = "";

// Keeps the text for the thread and returns it.
__attribute__((format(printf, 1, 2))) inline const char* message(const char* format, ...) {
  va_list values;
  va_start(values, format);
  std::vsnprintf(last_message, sizeof last_message, format, values);
  va_end(values);
  return last_message;
}

}  // namespace neuron_llm
