/* Names of created and destroyed streams: see stream_names.h. */
#include "driver/stream_names.h"

#include "base/error.h"
#include "base/hostmem.h"

/* Generated names count up from here, far from the names that tests invent. */
#define FIRST_NAME UINT64_C(0x51a0000000000000)

struct stream_name {
    struct map_node node; /* its key is the name */
    bool is_stale;        /* the last stream of that name was destroyed and the name not reused */
};

static struct stream_name *name_find(const struct stream_names *names, vmm_stream name)
{
    return (struct stream_name *)vmm__map_find(&names->names, (uint64_t)(uintptr_t)name);
}

static bool name_set(struct stream_names *names, vmm_stream name, bool is_stale)
{
    struct stream_name *found = name_find(names, name);
    if (found == NULL) {
        found = vmm__host_alloc(1, sizeof *found);
        if (found == NULL)
            return false;
        found->node.key = (uint64_t)(uintptr_t)name;
        vmm__map_add(&names->names, &found->node);
    }
    found->is_stale = is_stale;
    return true;
}

static void name_free(struct map_node *node)
{
    vmm__host_free(node, sizeof(struct stream_name));
}

vmm_stream vmm__stream_names_take(struct stream_names *names)
{
    if (names->destroyed_count == 0)
        return (vmm_stream)(uintptr_t)(FIRST_NAME + ++names->generated);
    vmm_stream name = names->destroyed[--names->destroyed_count];
    name_find(names, name)->is_stale = false;
    return name;
}

bool vmm__stream_names_note(struct stream_names *names, vmm_stream name)
{
    return name_set(names, name, false);
}

bool vmm__stream_names_has(const struct stream_names *names, vmm_stream name)
{
    const struct stream_name *found = name_find(names, name);
    return found != NULL && !found->is_stale;
}

bool vmm__stream_names_drop(struct stream_names *names, vmm_stream name)
{
    if (!vmm__host_array_grow((void **)&names->destroyed, &names->destroyed_capacity,
                              names->destroyed_count, sizeof *names->destroyed))
        return false;
    if (!name_set(names, name, true))
        return false;
    names->destroyed[names->destroyed_count++] = name;
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

void vmm__stream_names_fini(struct stream_names *names)
{
    vmm__map_clear(&names->names, name_free);
    vmm__host_free(names->destroyed, names->destroyed_capacity * sizeof *names->destroyed);
}
