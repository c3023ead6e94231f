/* The Linux end: a library with the C interface (VCL) of Intel's NPU compiler, which OpenVINO's NPU plugin loads.

   It computes nothing. Each call goes to the Windows compiler in a process of Wine's, and its answer comes back. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "vcl.h"

typedef struct allocator { uint8_t *(*allocate)(struct allocator *, uint64_t); void *free; } allocator_t;
/* What was made, until it is asked for. */
typedef struct { uint64_t size, blob; uint8_t bytes[]; } kept_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int to = -1, from = -1;

static int start(void) {
    int down[2], up[2];
    if (to >= 0) return 1;
    if (pipe2(down, O_CLOEXEC) || pipe2(up, O_CLOEXEC)) return 0;
    signal(SIGPIPE, SIG_IGN);
    pid_t child = fork();
    if (child < 0) return 0;
    if (!child) {
        dup2(down[0], 0), dup2(up[1], 1);
        setenv("WINEPREFIX", PREFIX, 1), setenv("WINEDEBUG", "-all", 1);
        execl(WINE, WINE, HOST, COMPILER, (char *)0);
        _exit(127);
    }
    close(down[0]), close(up[1]);
    to = down[1], from = up[0];
    return 1;
}

static int move(int file, void *bytes, uint64_t size, int writes) {
    uint8_t *at = bytes;
    while (size) {
        ssize_t done = writes ? write(file, at, size) : read(file, at, size);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return 0;
        at += done, size -= done;
    }
    return 1;
}

/* Ask the host; the answer's bytes, for whoever wants them, are the caller's to free. */
static int32_t ask(request_t r, const void *a, const void *b, reply_t *reply, uint8_t **bytes) {
    uint8_t *got = 0;
    memset(reply, 0, sizeof *reply);
    pthread_mutex_lock(&lock);
    int well = start() && move(to, &r, sizeof r, 1) && move(to, (void *)a, r.size[0], 1) &&
               move(to, (void *)b, r.size[1], 1) && move(from, reply, sizeof *reply, 0) &&
               (got = malloc(reply->size + 1)) && move(from, got, reply->size, 0);
    pthread_mutex_unlock(&lock);
    if (!well) reply->status = UNKNOWN;
    if (bytes && well) *bytes = got;
    else free(got);
    return reply->status;
}

static int32_t keep(uint32_t what, void *compiler, job_t job, kept_t **kept) {
    reply_t reply;
    uint8_t *bytes = 0;
    request_t r = {what, 0, (uint64_t)compiler, {job.model_size, job.options_size}};
    int32_t status = ask(r, job.model, job.options, &reply, &bytes);
    if (!status && !(*kept = malloc(sizeof(kept_t) + reply.size))) status = NO_MEMORY;
    if (!status) (*kept)->size = reply.size, (*kept)->blob = reply.handle[0], memcpy((*kept)->bytes, bytes, reply.size);
    free(bytes);
    return status;
}

static int32_t give(const void *from, uint64_t have, void *bytes, uint64_t *size) {
    if (bytes) memcpy(bytes, from, have < *size ? have : *size);
    *size = have;
    return SUCCESS;
}

int32_t vclGetVersion(version_t *compiler, version_t *profiling) {
    reply_t reply;
    uint8_t *bytes = 0;
    int32_t status = ask((request_t){VERSION, 0, 0, {0}}, 0, 0, &reply, &bytes);
    if (!status) {
        memcpy(compiler, bytes, sizeof *compiler), memcpy(profiling, bytes + sizeof *compiler, sizeof *profiling);
    }
    free(bytes);
    return status;
}

int32_t vclCompilerCreate(compiler_desc_t *desc, device_desc_t *device, void **compiler, void **log) {
    reply_t reply;
    request_t r = {CREATE, 0, 0, {sizeof *desc, sizeof *device}};
    int32_t status = ask(r, desc, device, &reply, 0);
    *compiler = (void *)reply.handle[0];
    if (log) *log = (void *)reply.handle[1];
    return status;
}

int32_t vclCompilerDestroy(void *compiler) {
    reply_t reply;
    return ask((request_t){DESTROY, 0, (uint64_t)compiler, {0}}, 0, 0, &reply, 0);
}

int32_t vclCompilerGetProperties(void *compiler, properties_t *properties) {
    static char id[256];
    reply_t reply;
    uint8_t *bytes = 0;
    int32_t status = ask((request_t){PROPERTIES, 0, (uint64_t)compiler, {0}}, 0, 0, &reply, &bytes);
    if (!status) {
        memcpy(&properties->version, bytes, 4), memcpy(&properties->opsets, bytes + 4, 4);
        strncpy(id, (char *)bytes + 8, sizeof id - 1), properties->id = id;
    }
    free(bytes);
    return status;
}

int32_t vclQueryNetworkCreate(void *compiler, job_t job, kept_t **query) { return keep(QUERY, compiler, job, query); }
int32_t vclQueryNetwork(kept_t *query, void *bytes, uint64_t *size) { return give(query->bytes, query->size, bytes, size); }
int32_t vclQueryNetworkDestroy(kept_t *query) { return free(query), SUCCESS; }

int32_t vclAllocatedExecutableCreate4(void *compiler, job_t job, allocator_t *room, uint8_t **blob, uint64_t *size,
                                      kept_t **made) {
    int32_t status = keep(COMPILE, compiler, job, made);
    if (status) return status;
    if (!(*blob = room->allocate(room, (*made)->blob))) return free(*made), NO_MEMORY;
    *size = (*made)->blob;
    return memcpy(*blob, (*made)->bytes, *size), SUCCESS;
}

int32_t vclExecutableGetCompatibilityString(kept_t *made, char *bytes, uint64_t *size) {
    if (made->size == made->blob) return UNSUPPORTED;
    return give(made->bytes + made->blob, made->size - made->blob, bytes, size);
}

int32_t vclExecutableDestroy(kept_t *made) { return free(made), SUCCESS; }

static int32_t text(uint32_t what, void *handle, char *bytes, uint64_t *size) {
    reply_t reply;
    uint8_t *got = 0;
    int32_t status = ask((request_t){what, 0, (uint64_t)handle, {0}}, 0, 0, &reply, &got);
    if (!status) give(got, reply.size, bytes, size);
    free(got);
    return status;
}

int32_t vclGetCompilerSupportedOptions(void *compiler, char *bytes, uint64_t *size) {
    return text(OPTIONS, compiler, bytes, size);
}

/* The compiler forgets its log when it is read, so the first call's answer is kept for the second one. */
int32_t vclLogHandleGetString(void *log, size_t *size, char *bytes) {
    static __thread char last[1 << 16];
    static __thread uint64_t have;
    if (!bytes) {
        have = sizeof last;
        int32_t status = text(LOG, log, last, &have);
        if (status) return status;
        if (have > sizeof last) have = sizeof last;
    }
    return give(last, have, bytes, size);
}

int32_t vclGetCompilerIsOptionSupported(void *compiler, const char *option, const char *value) {
    reply_t reply;
    /* A serializer that passes weights as addresses is of no use: another process cannot read them. */
    if (strstr(option, "SERIALIZER")) return UNSUPPORTED;
    request_t r = {HAS_OPTION, value != 0, (uint64_t)compiler, {strlen(option), value ? strlen(value) : 0}};
    return ask(r, option, value, &reply, 0);
}

/* What is not forwarded: other ways to compile, and profiles, which need a chip. */
#define ABSENT(name) int32_t name(void) { return UNSUPPORTED; }
ABSENT(vclExecutableCreate)
ABSENT(vclExecutableGetSerializableBlob)
ABSENT(vclAllocatedExecutableCreate)
ABSENT(vclAllocatedExecutableCreate2)
ABSENT(vclAllocatedExecutableCreateWSOneShot2)
ABSENT(vclProfilingCreate)
ABSENT(vclGetDecodedProfilingBuffer)
ABSENT(vclProfilingDestroy)
ABSENT(vclProfilingGetProperties)
