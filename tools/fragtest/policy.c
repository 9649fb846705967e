/* The list of policies: see policy.h. */
#include "policy.h"

const char *const policy_sharing_words[POLICY_SHARING_WORDS] = {
    [VMM_SHARING_FINISHED] = "finished",
    [VMM_SHARING_WAIT] = "wait",
};

const char *const policy_compaction_words[POLICY_COMPACTION_WORDS] = {
    [VMM_COMPACTION_AUTO] = "auto",
    [VMM_COMPACTION_OFF] = "off",
    [VMM_COMPACTION_ON] = "on",
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
