// Memory for weights, on huge pages where the system grants them: a forward reads all weights, page after page.
#pragma once

#include <stdlib.h>
#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <utility>

namespace peakplan {

constexpr size_t kHugePage = size_t{2} << 20;

template <typename T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t count) {
    const size_t bytes = (count * sizeof(T) + kHugePage - 1) / kHugePage * kHugePage;
    data_ = static_cast<T*>(aligned_alloc(kHugePage, bytes));
    if (data_ == nullptr) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE  // Linux alone
    madvise(data_, bytes, MADV_HUGEPAGE);
#endif
  }
  Buffer(Buffer&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    return *this;
  }
  ~Buffer() { free(data_); }
  T* get() const { return data_; }

 private:
  T* data_ = nullptr;
};

}  // namespace peakplan
