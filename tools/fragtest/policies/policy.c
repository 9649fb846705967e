/* The list of policies: see policy.h. */
#include "fragtest/policies/policy.h"

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
    const struct policy_ops *const policies[POLICY_COUNT] = {
        policy_block_splitting(),
        policy_expandable(),
        policy_vmmcache(),
    };
    return policies[index];
}
