/* The list of policies: see policy.h. */
#include "fragtest/policies/policy.h"

#include "base/size.h"

const char *const policy_reuse_words[POLICY_REUSE_WORDS] = {
    [VMM_REUSE_DEFAULT] = "default",
    [VMM_REUSE_ANY_USE] = "any_use",
    [VMM_REUSE_DECLARED] = "declared",
    [VMM_REUSE_STREAM_WAIT] = "stream_wait",
};

const char *const policy_compaction_words[POLICY_COMPACTION_WORDS] = {
    [VMM_DEFAULT] = "default",
    [VMM_ON] = "on",
    [VMM_OFF] = "off",
};

const struct policy_ops *policy_at(unsigned index)
{
    static const struct policy_ops *const policies[POLICY_COUNT] = {
        &policy_block_splitting,
        &policy_expandable,
        &policy_vmmcache,
    };
    return policies[index];
}

uint64_t policy_limit(const char *memory, uint64_t whole_bytes)
{
    uint64_t bytes = 0;

    if (memory == NULL)
        return 0;
    (void)vmm__size_or_share_parse(memory, whole_bytes, &bytes);
    return bytes == 0 ? 1 : bytes;
}
