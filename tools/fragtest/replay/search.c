/* The search for the least memory: see search.h. */
#include "fragtest/replay/search.h"

#define RESOLUTION    1000U /* parts of the peak live bytes */
#define MOST_DOUBLING 8U /* of a first excess of a quarter: gives up at 64 times the live bytes */

static bool limit_survives(const struct replay_request *request, uint64_t limit_bytes)
{
    struct replay_request trial = *request;
    struct replay_outcome outcome;

    trial.limit_bytes = limit_bytes;
    trial.passes = 1;
    trial.trims = 0;
    trial.compacts = 0;
    trial.verify = false;
    trial.timeline = NULL;
    replay_run(&trial, &outcome);
    replay_outcome_free(&outcome);
    return outcome.ok;
}

uint64_t search_least(const struct replay_request *request)
{
    uint64_t live_bytes = request->trace->peak_live_bytes;
    uint64_t step_bytes = live_bytes / RESOLUTION + 1;
    uint64_t excess_bytes = live_bytes / 4 + step_bytes;
    uint64_t low = live_bytes;
    uint64_t high = live_bytes;

    for (unsigned i = 0; !limit_survives(request, high); i++) {
        if (i == MOST_DOUBLING)
            return 0;
        low = high;
        high = live_bytes + (excess_bytes << i);
    }
    while (high - low > step_bytes) {
        uint64_t middle = low + (high - low) / 2;
        if (limit_survives(request, middle))
            high = middle;
        else
            low = middle;
    }
    return high;
}
