/* The list of scenes: see scene.h. */
#include "fragtest/replay/scene.h"

#include "base/size.h"
#include "fragtest/report/wrap.h"

#include <string.h>

const struct scene *scene_at(unsigned index)
{
    static const struct scene *const scenes[SCENES] = { &scene_sleep, &scene_unrecorded,
                                                        &scene_neighbours };
    return scenes[index];
}

const struct scene *scene_find(const char *text)
{
    for (unsigned i = 0; i < SCENES; i++) {
        const struct scene *scene = scene_at(i);
        size_t length = strlen(scene->name);
        bool is_begun = strncmp(text, scene->name, length) == 0;
        if (is_begun && (text[length] == '\0' || (text[length] == ':' && scene->sizes != NULL)))
            return scene;
    }
    return NULL;
}

bool scene_size(const struct scene *scene, const char *text, uint64_t *bytes)
{
    const char *size = text + strlen(scene->name);

    *bytes = scene->bytes;
    return *size == '\0' || (vmm__size_parse(size + 1, bytes) && *bytes >= scene->least_bytes &&
                             *bytes <= scene->most_bytes);
}

void scene_machine_write(const struct scene_run *run)
{
    if (!run->options->quiet)
        wrap_write(run->text, run->style.width, 0, 0, run->machine);
}
