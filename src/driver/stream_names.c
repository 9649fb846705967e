/* Names of created and destroyed streams: see stream_names.h. */
#include "driver/stream_names.h"

#include "base/error.h"
#include "base/hostmem.h"

/* Generated names count up from here, far from the names that tests invent. */
#define FIRST_NAME UINT64_C(0x51a0000000000000)

struct stream_name {
    struct map_node node; /* its key is the name */
    bool is_stale;        /* the last stream of that name was destroyed and the name not reused */
    struct stream_name *next_stale;
};

static struct stream_name *name_find(const struct stream_names *names, vmm_stream name)
{
    return (struct stream_name *)vmm__map_find(&names->names, (uint64_t)(uintptr_t)name);
}

/* Finds or adds a name. Returns NULL without host memory. */
static struct stream_name *name_get(struct stream_names *names, vmm_stream name)
{
    struct stream_name *found = name_find(names, name);
    if (found != NULL)
        return found;
    found = vmm__host_alloc(1, sizeof *found);
    if (found == NULL)
        return NULL;
    found->node.key = (uint64_t)(uintptr_t)name;
    vmm__map_add(&names->names, &found->node);
    return found;
}

vmm_stream vmm__stream_names_take(struct stream_names *names)
{
    struct stream_name *taken = names->stale;
    if (taken == NULL)
        return (vmm_stream)(uintptr_t)(FIRST_NAME + ++names->generated);
    names->stale = taken->next_stale;
    taken->is_stale = false;
    return (vmm_stream)(uintptr_t)taken->node.key;
}

bool vmm__stream_names_drop(struct stream_names *names, vmm_stream name)
{
    struct stream_name *dropped = name_get(names, name);
    if (dropped == NULL)
        return false;
    dropped->is_stale = true;
    dropped->next_stale = names->stale;
    names->stale = dropped;
    return true;
}

vmm_status vmm__stream_names_check(const struct stream_names *names, const char *call,
                                   vmm_stream name)
{
    const struct stream_name *found = name_find(names, name);
    if (found != NULL && found->is_stale)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "%s: stream %p was destroyed", call, name);
    return VMM_OK;
}

static void name_free(struct map_node *node)
{
    vmm__host_free(node, sizeof(struct stream_name));
}

void vmm__stream_names_fini(struct stream_names *names)
{
    vmm__map_clear(&names->names, name_free);
}
