/* The C API of ONNX Runtime, as far as onnxruntime.h uses it. */
#ifndef FAKE_ONNXRUNTIME_C_API_H
#define FAKE_ONNXRUNTIME_C_API_H

#include <stddef.h>
#include <stdint.h>

#define ORT_API_VERSION 23
#define ORT_API_CALL

typedef struct OrtMemoryInfo OrtMemoryInfo;
typedef struct OrtStatus OrtStatus;
typedef enum OrtAllocatorType { OrtDeviceAllocator = 0 } OrtAllocatorType;
typedef enum OrtMemType { OrtMemTypeDefault = 0 } OrtMemType;

typedef struct OrtAllocator {
    uint32_t version;
    void *(*Alloc)(struct OrtAllocator *allocator, size_t bytes);
    void (*Free)(struct OrtAllocator *allocator, void *block);
    const struct OrtMemoryInfo *(*Info)(const struct OrtAllocator *allocator);
    void *(*Reserve)(struct OrtAllocator *allocator, size_t bytes);
    OrtStatus *(*GetStats)(const struct OrtAllocator *allocator, void **out);
    void *(*AllocOnStream)(struct OrtAllocator *allocator, size_t bytes, void *stream);
} OrtAllocator;

typedef struct OrtApi {
    OrtStatus *(*CreateMemoryInfo)(const char *name, OrtAllocatorType type, int device,
                                   OrtMemType memory, OrtMemoryInfo **out);
    void (*ReleaseMemoryInfo)(OrtMemoryInfo *info);
} OrtApi;

#endif
