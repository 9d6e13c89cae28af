// Runs recorded calls against a kernel library, for processors that are here only as an emulator (qemu-user).
//
//   replay LIBRARY CALLS OUTPUT
//
// CALLS holds, in this machine's byte order: the shape, each layer's nine weights, the final norm's, then calls. A call
// is its kind and four numbers, then its inputs; what it computes goes to OUTPUT, bit by bit.
//   0 forward   rows, kept positions, capacity of the cache: hidden, rotary, mask
//   1 multiply  rows, outputs, inputs: weights, x
//   2 scores    tokens, width, vocabulary: weights in bfloat16, row, tokens
// It needs the C library alone, and so is small. Exit code 0 when all was run; 1 with a line on standard error.

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

namespace {

struct Shape {
  int32_t hidden, intermediate, layers, heads, kv_heads, head_dim;
  float epsilon;
};

[[noreturn]] void fail(const char* why) {
  fprintf(stderr, "replay: %s\n", why);
  exit(1);
}

FILE* calls;

// Memory that is zero at first; the process's end frees it.
template <typename T>
T* allocate(size_t count) {
  T* values = static_cast<T*>(calloc(count, sizeof(T)));
  if (values == nullptr) fail("no memory");
  return values;
}

template <typename T>
T* read(size_t count) {
  T* values = allocate<T>(count);
  if (fread(values, sizeof(T), count, calls) != count) fail("the calls end too early");
  return values;
}

template <typename Function>
Function find(void* library, const char* name) {
  void* function = dlsym(library, name);
  if (function == nullptr) fail(dlerror());
  return reinterpret_cast<Function>(function);
}

void* load_model(void* library, const Shape& shape) {
  void* model = find<void* (*)(const Shape*)>(library, "peakplan_create")(&shape);
  if (model == nullptr) fail("no model");
  const size_t hidden = shape.hidden, queries = size_t(shape.heads) * shape.head_dim;
  const size_t keys = size_t(shape.kv_heads) * shape.head_dim, wide = shape.intermediate;
  const size_t sizes[9] = {queries * hidden, keys * hidden, keys * hidden, hidden * queries, wide * hidden,
                           wide * hidden,    hidden * wide, hidden,        hidden};
  const auto set_layer = find<int (*)(void*, int, const float* const*)>(library, "peakplan_set_layer");
  for (int layer = 0; layer < shape.layers; ++layer) {
    float* weights[9];
    for (int i = 0; i < 9; ++i) weights[i] = read<float>(sizes[i]);
    if (set_layer(model, layer, weights) != 0) fail("no layer");
    for (float* each : weights) free(each);
  }
  find<void (*)(void*, const float*)>(library, "peakplan_set_norm")(model, read<float>(hidden));
  return model;
}

}  // namespace

int main(int count, char** words) {
  if (count != 4) fail("replay LIBRARY CALLS OUTPUT");
  void* library = dlopen(words[1], RTLD_NOW);
  if (library == nullptr) fail(dlerror());
  calls = fopen(words[2], "rb");
  FILE* output = fopen(words[3], "wb");
  if (calls == nullptr || output == nullptr) fail("a file cannot be opened");
  const Shape shape = read<Shape>(1)[0];
  void* model = load_model(library, shape);
  const auto forward = find<int (*)(void*, float*, int, const float*, const uint8_t*, float*, long, long)>(
      library, "peakplan_forward");
  const auto create = find<void* (*)(int, int, const float*)>(library, "peakplan_matrix_create");
  const auto multiply = find<int (*)(const void*, const float*, int, float*)>(library, "peakplan_matrix_multiply");
  const auto scores = find<void (*)(const uint16_t*, int, const float*, const int64_t*, long, float*)>(
      library, "peakplan_scores");
  float* cache = nullptr;
  int32_t kind;
  while (fread(&kind, sizeof(kind), 1, calls) == 1) {
    const int32_t* numbers = read<int32_t>(4);
    const size_t rows = numbers[0];
    size_t results = rows;
    float* result;
    if (kind == 0) {
      const long positions = numbers[2];
      if (cache == nullptr)
        cache = allocate<float>(size_t(shape.layers) * 2 * shape.kv_heads * positions * shape.head_dim);
      results = rows * shape.hidden;
      result = read<float>(results);
      const float* rotary = read<float>(rows * 2 * shape.head_dim);
      const uint8_t* mask = read<uint8_t>(rows * rows);
      if (forward(model, result, numbers[0], rotary, mask, cache, positions, numbers[1])) fail("a forward failed");
    } else if (kind == 1) {
      const float* weights = read<float>(size_t(numbers[1]) * numbers[2]);
      const float* x = read<float>(rows * numbers[2]);
      result = allocate<float>(results = rows * numbers[1]);
      if (multiply(create(numbers[1], numbers[2], weights), x, numbers[0], result)) fail("a product failed");
    } else {
      const uint16_t* weights = read<uint16_t>(size_t(numbers[2]) * numbers[1]);
      const float* row = read<float>(numbers[1]);
      const int64_t* tokens = read<int64_t>(rows);
      result = allocate<float>(rows);
      scores(weights, numbers[1], row, tokens, numbers[0], result);
    }
    if (fwrite(result, sizeof(float), results, output) != results) fail("the output is full");
  }
  return fclose(output) == 0 ? 0 : 1;
}
