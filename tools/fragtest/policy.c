/* The list of policies: see policy.h. */
#include "policy.h"

const struct policy_ops *policy_at(unsigned index)
{
    const struct policy_ops *const policies[POLICY_COUNT] = {
        policy_block_splitting(),
        policy_expandable(),
        policy_vmmcache(),
    };
    return policies[index];
}
