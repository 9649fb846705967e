/* What PYTORCH_ALLOC_CONF says for every accelerator: see c10/fake.h. */
#ifndef VMM_TEST_ALLOCATOR_CONFIG_H
#define VMM_TEST_ALLOCATOR_CONFIG_H

#include "c10/fake.h"

namespace c10::CachingAllocator
{

class C10_EXPORT AcceleratorAllocatorConfig
{
  public:
    static bool use_expandable_segments();
    static size_t roundup_power2_divisions(size_t bytes);
};

} // namespace c10::CachingAllocator

#endif
