/* fragtest --workload neighbours: three processes whose peaks come one after the other. */
#include "command_support.h"

#include "fragtest/replay/crowd.h"

#include <signal.h>
#include <sys/prctl.h>

static struct crowd crowd_of(uint64_t need_bytes, const char *memory)
{
    struct progress progress = { .out = NULL };
    const struct options asked = { .scene_bytes = need_bytes, .memory = memory };
    struct crowd crowd = { .run = { .options = &asked, .progress = &progress } };

    if (crowd_run(&crowd.run) != VMM_OK)
        fail_msg("%s", vmm_last_error());
    return crowd;
}

TEST(neighbours_survive_where_processes_alone_die)
{
    struct crowd crowd = crowd_of(64 * MIB, "150%");
    const struct crowd_run *run = &crowd.runs[1];
    uint64_t given = 0;

    assert_false(crowd_survived(&crowd.runs[0]));
    assert_true(crowd_survived(run));
    assert_int_equal(run->sample_count, CROWD_PHASES * CROWD_SAMPLES);
    for (unsigned i = 0; i < CROWD; i++) {
        assert_int_equal(run->members[i].phases, CROWD_PHASES);
        assert_in_range(run->members[i].peak_bytes, 64 * MIB, 80 * MIB);
        assert_true(run->members[i].claims > 0 || i == 0);
        given += run->members[i].given_bytes;
        assert_int_equal(crowd.runs[0].members[i].claims, 0);
    }
    assert_true(given > 64 * MIB);
}

TEST(all_finish_if_there_is_room)
{
    struct crowd crowd = crowd_of(32 * MIB, "128MiB");

    for (unsigned i = 0; i < CROWD_RUNS; i++)
        assert_true(crowd_survived(&crowd.runs[i]));
}

/* Neighbours cannot give what is live. */
TEST(what_is_too_large_for_all_dies)
{
    struct crowd crowd = crowd_of(64 * MIB, "56MiB");

    for (unsigned i = 0; i < CROWD_RUNS; i++)
        assert_int_equal(crowd.runs[i].members[0].status, VMM_ERR_DEVICE_OOM);
}

TEST(the_command_shows_all_three)
{
    command_expect("--workload neighbours:48MiB --driver host 2>&1", 0);
    assert_contains(ran.output, "died in phase 2");
    assert_contains(ran.output, "without neighbours not all finished");
    assert_contains(ran.output, "with neighbours all finished and verified");
    command_expect("--workload neighbours:32MiB --quiet --json - 2>/dev/null", 0);
    assert_contains(ran.output, "\"workload\":\"neighbours\"");
    assert_contains(ran.output, "\"status\":\"VMM_ERR_DEVICE_OOM\"");
    command_expect("--workload list", 0);
    assert_contains(ran.output, "neighbours[:SIZE]");
    command_refuse("--workload neighbours --driver sim", "runs with --driver host");
    command_refuse("--workload neighbours --workload sleep", "runs alone");
    command_refuse("--workload neighbours --timeline x.csv", "no timeline");
}

enum { NAP_US = 10000, NAPS = 2000 };

/* The folder of the processes of a run, once all have opened its device. */
static void folder_wait(pid_t leader, char *folder, size_t folder_bytes)
{
    char command[512];
    char line[128];
    unsigned members = 0;

    (void)snprintf(command, sizeof(command),
                   "for stat in $(grep -lsE '^[0-9]+ .fragtest. . %d ' /proc/[0-9]*/stat); do "
                   "readlink ${stat%%/stat}/fd/* | grep -m1 '^/dev/shm/fragtest.*/device$'; done",
                   (int)leader);
    for (unsigned i = 0; i < NAPS && members < CROWD; i++) {
        FILE *lines = popen(command, "r");
        assert_non_null(lines);
        for (members = 0; fgets(line, sizeof(line), lines) != NULL; members++)
            (void)snprintf(folder, folder_bytes, "%.*s", (int)(strrchr(line, '/') - line), line);
        (void)pclose(lines);
        (void)usleep(NAP_US);
    }
    assert_int_equal(members, CROWD);
}

/* Ends a run by a signal to its first process alone: all must end. Returns whether the folder stays. */
static bool run_end(int number)
{
    char folder[128] = "";
    struct test_path program = program_path();
    int status;
    pid_t ended = 0;

    pid_t leader = fork();
    if (leader == 0) {
        (void)signal(number, SIG_DFL); /* the caller of the test may ignore it */
        (void)execl(program.text, program.text, "--workload", "neighbours:64MiB", "--quiet",
                    (char *)NULL);
        _exit(127);
    }
    folder_wait(leader, folder, sizeof(folder));
    assert_int_equal(kill(leader, number), 0);
    assert_int_equal(waitpid(leader, &status, 0), leader);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), number);
    for (unsigned i = 0; i < NAPS && ended >= 0; i++) {
        ended = waitpid(-1, NULL, WNOHANG);
        (void)usleep(NAP_US);
    }
    assert_int_equal(ended, -1); /* there is no process left */
    bool stays = access(folder, F_OK) == 0;
    assert_int_equal(system(line_of("rm -rf '%s'", folder)), 0);
    return stays;
}

TEST(all_end_with_the_first)
{
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0); /* this process gets the orphans */
    assert_false(run_end(SIGINT));
    assert_false(run_end(SIGTERM));
    assert_false(run_end(SIGHUP));
    (void)run_end(SIGKILL);
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
}
